"""[shell] One rehearsal of a failover: plan it on the real clusters, and return the result.

It reads maps, ends, groups and access rules as the failover would, and writes nothing: its caller records the
result. A plan that is refused, a topic that is not mirrored and a copy that differs are failures. A cluster
that does not answer in the middle gives no result; a source that is gone before is what a failover is for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from hub.errors import CallerError, HubError
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.readers import read_control_state, read_progress
from hub.replication.clusters.rehearsals import Rehearsal, of_link, surplus
from hub.replication.clusters.renaming.link_view import seen_by
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.operations.change_plan import ChangePlan, plan_change
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.pausing import append
from hub.replication.ownership.links import Link
from hub.replication.rehearsal.decision import begun, interrupted
from hub.replication.status.mirror_rows import places_of
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.source_ends import SourceEndsReader
from hub.times import epoch_ms

WITHIN_MS = 600_000


def rehearse(
    file: MirrorsFile, clusters: Mapping[str, ClusterHandle], link: Link, one: Rehearsal
) -> Rehearsal:
    """Return the result of a rehearsal that has begun. Writes nothing; errors are results, too."""
    began_s = time.monotonic()
    try:
        clusters = seen_by(link, clusters)
        plan = plan_change(MirroredClusters(file, clusters), link, "failover", ())
        lag_s, differing = _state(file, clusters, link)
        rehearsal = result_of(one, plan, lag_s, differing)
    except CallerError as error:
        rehearsal = replace(one, state="failed", reason=error.message)
    except HubError as error:
        rehearsal = interrupted(one, error.message, one.started_at_ms)
    return replace(rehearsal, took_ms=round((time.monotonic() - began_s) * 1000))


def result_of(one: Rehearsal, plan: ChangePlan, lag_s: float | None, differing: int) -> Rehearsal:
    """Return the result by a plan. ``differing``: partitions whose copy differs from its source."""
    reasons = [f'topic "{topic}" is not mirrored: {why}' for topic, why in sorted(plan.not_mirrored.items())]
    if differing:
        reasons.append(f"{differing} partitions differ from their source: hub mirror verify {one.link}")
    more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    report = plan.report
    return replace(
        one,
        state="failed" if reasons else "passed",
        reason=reasons[0] + more if reasons else "",
        steps=len(plan.operation.steps),
        topics=len({each.place.topic for each in report.losses}),
        partitions=len(report.losses),
        groups=len({each.group for each in report.effects}),
        lost=report.lost,
        lost_at_least=report.lost_at_least,
        redelivered=report.redelivered,
        redelivered_at_least=report.redelivered_at_least,
        redelivered_at_most=report.redelivered_at_most,
        lag_s=lag_s,
        source_heard_at_ms=report.heard_at_ms,
    )


def _state(file: MirrorsFile, clusters: Mapping[str, ClusterHandle], link: Link) -> tuple[float | None, int]:
    """Return how late the mirror is (None: unknown), and how many partitions differ."""
    target = clusters[link.target]
    board, progress = read_control_state(target), read_progress(target, maps=False)
    places, checkpoints = places_of(link, board, progress), progress.of(link.name)
    ends = SourceEndsReader().ask(clusters[link.source], places, places - checkpoints.keys())
    status = summary_of(file, link, board, progress, epoch_ms(), ends)
    lag_s: float | None = status["lag_s"]
    return lag_s, int(status["different"])


def rehearse_now(
    file: MirrorsFile,
    clusters: Mapping[str, ClusterHandle],
    link: Link,
    by: str,
    within_ms: int = WITHIN_MS,
) -> Rehearsal:
    """Run a rehearsal that a person asked for, and record it at the target. Raises PeerError when the target
    does not answer.
    """
    target = clusters[link.target]
    one = begun(link.name, by, epoch_ms(), within_ms, scheduled=False)
    append(target, [one.record()])
    rehearsal = rehearse(file, clusters, link, one)
    rehearsals = of_link(read_control_state(target, status=False).rehearsals, link.name)
    after = [rehearsal, *(each for each in rehearsals if each.started_at_ms != rehearsal.started_at_ms)]
    append(target, [rehearsal.record(), *(each.forgotten() for each in surplus(after, epoch_ms()))])
    return rehearsal
