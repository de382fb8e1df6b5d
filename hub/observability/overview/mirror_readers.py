"""[core] Mirrors as readers of their sources: positions from their checkpoints, and the known end offsets.

When a mirror's source is this cluster, the monitor measures the mirror like a consumer group, with this
cluster's own anchors. The end offsets of another cluster are read together with the mirrors' status; while
that cluster does not answer, the last report of the workers is used. Each such end is an anchor, as a poll
is, so the same rules hold, and records older than the first anchor have no upper bound. A worker that is
silent for longer than its interval allows is no longer trusted: its mirror is UNKNOWN, with the lag that the
known ends prove as a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from hub.observability.lag.anchors import Ring, arrival, observed
from hub.observability.lag.consumers import Consumer, ConsumerId
from hub.observability.lag.states import LagReading, ReaderState

# Status older than this is not used.
MIRRORS_STALE_MS = 60_000


# A worker reports each partition at least every ten seconds. Half of that is added for clock and network
# delays: a worker that is silent for longer has stopped, or cannot report.
MIRROR_SILENT_S = 15.0


@dataclass(frozen=True, slots=True)
class MirrorStatuses:
    """Status of all mirrors, as last read.

    ``mirrors``: as in ``hub mirror status -o json``; a mirror whose target does not answer has the previous
    ``topics_known``. ``here``: the names of this cluster in mirrors.yaml. ``clusters``: the first address of
    each cluster. ``at_ms``: time of the reading, epoch ms; None: not read yet.
    """

    mirrors: Sequence[Mapping[str, Any]] = ()
    here: frozenset[str] = frozenset()
    clusters: Mapping[str, str] = field(default_factory=dict)
    at_ms: int | None = None


# Longest interval between two checks of the source's end by a worker that makes progress.
LOOK_MS = 2_000
# The clusters are polled every ten seconds, and so is their status: older answers are stale.
REPORT_MAX_AGE_S = 30.0
_STANDS = ("paused", "no worker")
_BROKEN = ("stopped", "trouble")

Rings = Mapping[int, Ring]


class MirrorReader(NamedTuple):
    """A mirror as a consumer. ``ends``: by topic and partition, (end offset of the source, time of that
    report in epoch ms); None: the source is this cluster, which is polled directly."""

    consumer: Consumer
    ends: Mapping[str, Mapping[int, tuple[int, int]]] | None


def readers_of(mirrored: MirrorStatuses, now_ms: int) -> Iterator[MirrorReader]:
    """Return every mirror that carries anything, reverse links included, from its last status."""
    old = mirrored.at_ms is None or now_ms - mirrored.at_ms > MIRRORS_STALE_MS
    for status in mirrored.mirrors:
        id = ConsumerId("mirror", str(status["mirror"]))
        # The source of a way back may have renamed copies: these are other topics here.
        renamed = status.get("rename") is not None and status["mirror"] != status.get("declared")
        here = status["source"] in mirrored.here and not renamed
        if old:
            trouble = "the clusters of mirrors.yaml have not reported lately"
            yield MirrorReader(Consumer(id, {}, trouble=trouble), None if here else {})
        elif "workers" not in status:
            trouble = f"its target does not answer: {status.get('reason', '')}"
            yield MirrorReader(Consumer(id, {}, trouble=trouble), None if here else {})
        else:
            by_topic: dict[str, list[Mapping[str, Any]]] = {}
            for row in status["partitions"]:
                if row["state"] != "left":
                    by_topic.setdefault(str(row["topic"]), []).append(row)
            if by_topic:
                reported_ms = mirrored.at_ms or now_ms
                age_s = max(0, now_ms - reported_ms) / 1000
                consumer = _consumer(id, status, by_topic, age_s, here=here)
                yield MirrorReader(consumer, None if here else _ends(by_topic, reported_ms))


def _consumer(
    id: ConsumerId,
    status: Mapping[str, Any],
    by_topic: Mapping[str, Sequence[Mapping[str, Any]]],
    age_s: float,
    *,
    here: bool,
) -> Consumer:
    """Return one mirror as a consumer. ``age_s``: age of the status in seconds."""
    positions = {
        topic: found
        for topic, rows in by_topic.items()
        if (found := {row["partition"]: row["source_next"] for row in rows if row["source_next"] is not None})
    }
    missing = {topic: "nothing of it is mirrored yet" for topic in by_topic if topic not in positions}
    if not here:
        unreported = "no worker has reported the end of its source lately"
        missing = {**dict.fromkeys(positions, unreported), **missing}
    stands = status["state"] in _STANDS
    # "No worker" is a known state whatever waits; "paused" is intended and not a failure.
    state = "stopped" if status["state"] == "no worker" else None
    reader = ReaderState(state, status["reason"] if stands else None, 0 if stands else status["workers"])
    silent = {
        topic: replace(reader, silent=f"{why} ({status['reason']})" if stands else why)
        for topic, rows in by_topic.items()
        if (why := _silent(rows, age_s) or ("" if stands else _unreported(rows)))
    }
    broken = {
        topic: ReaderState("failed", f"partition {row['partition']}: {row['reason']}", status["workers"])
        for topic, rows in by_topic.items()
        for row in rows
        if row["state"] in _BROKEN
    }
    return Consumer(id, positions, reader, missing=missing, readers={**silent, **broken})


def _silent(rows: Sequence[Mapping[str, Any]], age_s: float) -> str:
    """Return how long a topic's partitions have not been reported, as text, once that exceeds the limit; else
    ""."""
    reported_s = max((float(row["seen_s"]) for row in rows if row["seen_s"] is not None), default=0.0)
    if reported_s > MIRROR_SILENT_S:
        return f"its worker has not reported for {reported_s + age_s:.0f} s"
    return f"its target has not reported for {age_s:.0f} s" if age_s > REPORT_MAX_AGE_S else ""


def _unreported(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return why one of a topic's partitions is not reported although others are; "" when all are."""
    unknown = [row for row in rows if row["state"] == "unknown"]
    return f"partition {unknown[0]['partition']}: {unknown[0]['reason']}" if unknown else ""


def _ends(
    by_topic: Mapping[str, Sequence[Mapping[str, Any]]], reported_ms: int
) -> dict[str, dict[int, tuple[int, int]]]:
    return {
        topic: {
            row["partition"]: (row["source_end"], reported_ms - int(age_s * 1000))
            for row in rows
            if row["source_end"] is not None and (age_s := row.get("source_end_s", row["seen_s"])) is not None
        }
        for topic, rows in by_topic.items()
    }


def update_rings(rings: Rings, ends: Mapping[int, tuple[int, int]]) -> dict[int, Ring]:
    """Return the rings of one topic after adding the ends that a worker reported."""
    anchors = dict(rings)
    for partition, (end, at_ms) in ends.items():
        anchors[partition] = observed(anchors.get(partition, ()), end, at_ms - LOOK_MS, at_ms)
    return anchors


def at_least(positions: Mapping[int, int], rings: Rings, now_ms: int) -> LagReading | None:
    """Return the minimum lag of a mirror whose source was not reported recently: records known at that time
    still wait.

    None: not all of its partitions were ever reported, or nothing waited.
    """
    if not positions or any(not rings.get(partition) for partition in positions):
        return None
    records, low_s = 0, 0.0
    for partition, position in positions.items():
        ring = rings[partition]
        if position < ring[-1].end:
            records += ring[-1].end - position
            low_s = max(low_s, arrival(ring, position).waited(position, now_ms)[0])
    if not records:
        return None
    end = sum(rings[partition][-1].end for partition in positions)
    return LagReading(now_ms, sum(positions.values()), end, records, low_s, None, idle_s=low_s)
