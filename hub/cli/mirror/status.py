"""[edge] ``hub mirror run`` and ``status``: a worker, and how mirrors go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from hub.cli.context import load_settings
from hub.cli.mirror.context import FileOption, NamesArgument, World, open_file, open_world
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.watch_option import IntervalOption, WatchOption, looked
from hub.errors import PeerError
from hub.observability.web.pages.monitor.mirrors import left_behind_lines
from hub.times import epoch_ms, iso

if TYPE_CHECKING:
    from hub.replication.ownership.links import Link
    from hub.replication.status.source_ends import SourceEndsReader


def run(file: FileOption = None) -> None:
    """Run a worker until it is stopped. Any number of workers on any machines share the work.

    `hub up` starts one if the project has a mirrors.yaml.

    Example: hub mirror run -f mirrors.yaml
    """
    from hub.formats.admission import admit
    from hub.kafka.contact.notes import note_for_ever
    from hub.replication.clusters.clusters import own_environ
    from hub.replication.worker.worker import run as work
    from hub.runtime import install_stop_signals, log_to_stderr

    log_to_stderr()
    path, declared = open_file(file)
    settings = load_settings()
    note_for_ever(settings.home, f"mirror-{os.getpid()}")
    if settings.bootstrap in {each.bootstrap for each in declared.clusters.values()}:
        admit(settings, "mirror")  # other clusters may be out of reach, and a worker does not wait for them
    environ = own_environ(settings)
    work(path.absolute(), environ, install_stop_signals(), settings.kafka_timeout_s)


def status(
    names: NamesArgument = None,
    file: FileOption = None,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
) -> None:
    """Show the state of mirrors: partitions, lag, gaps, groups.

    Reads the targets, so it needs no worker. Shows the costs of a failover for each group, and the records
    that the last one left behind.

    With a name: every partition and group of it. Exit code 0: no problems. 1: a part is stopped that
    should run, or is not reported. Lag is measured against the source's current ends if it answers.

    Example: hub mirror status nyc-lon --watch
    """
    from hub.replication.status.source_ends import SourceEndsReader

    world = open_world(file)

    asker = SourceEndsReader()

    def look() -> list[dict[str, Any]]:
        found = [_status(world, link, asker) for link in world.chosen(names, target=True)]
        backs = (_way_back(world, each, asker) for each in found if each.get("acting"))
        return [*found, *(back for back in backs if back)]

    found = looked(look, lambda found: _show_status(found, bool(names), output), watch, output, interval)
    raise typer.Exit(0 if all(each["ok"] for each in found) else 1)


def _status(world: World, link: Link, asker: SourceEndsReader) -> dict[str, Any]:
    from hub.replication.clusters.readers import read_control_state, read_progress
    from hub.replication.operations.divergence.left_at_source import losses_now
    from hub.replication.ownership.links import rename_text
    from hub.replication.status.mirror_rows import places_of
    from hub.replication.status.mirror_status import summary_of, with_losses

    world = world.seen_by(link)
    reached = world.clusters[link.target]
    try:
        board, progress = read_control_state(reached), read_progress(reached, maps=False)
    except PeerError as error:
        return {
            "mirror": link.name,
            "state": "unknown",
            "reason": error.message,
            "ok": False,
            "partitions": [],
            "groups": [],
            "gaps": [],
        }
    places, known = places_of(link, board, progress), progress.of(link.name)
    source_ends = asker.ask(world.clusters[link.source], places, places - known.keys())
    found = summary_of(world.file, link, board, progress, epoch_ms(), source_ends)
    found = {**found, "rename": rename_text(link)}
    return with_losses(found, losses_now(world.file, link, world.clusters, board, progress))


def _way_back(world: World, forward: Mapping[str, Any], asker: SourceEndsReader) -> dict[str, Any] | None:
    """Return the status of a mirror's failback copy while its target serves its source; None if there is
    nothing to report.
    """
    from hub.replication.ownership.links import BACK, links

    link = links(world.file).get(str(forward["mirror"]) + BACK)
    if link is None or forward["acting"].get(forward["source"]) != forward["target"]:
        return None
    found = _status(world, link, asker)
    return found if found["partitions"] else None


_MIRROR_COLUMNS = (
    "mirror",
    "state",
    "workers",
    "topics",
    "partitions",
    "lag_records",
    "lag_bytes",
    "lag_s",
    "records_per_s",
    "bytes_per_s",
    "gaps",
    "groups",
    "different",
    "last_commit_s",
)


_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "state",
    "engine",
    "source_next",
    "source_end",
    "target_next",
    "lag_records",
    "lag_bytes",
    "lag_s",
    "records_per_s",
    "bytes_per_s",
    "last_commit_s",
    "seen_s",
)


_TOPIC_COLUMNS = ("topic", "state", "owner", "reason")


_GROUP_COLUMNS = (
    "group",
    "topic",
    "partition",
    "state",
    "source_offset",
    "position",
    "rpo_records",
    "rpo_s",
    "redelivered",
    "reason",
)


def _show_status(found: Sequence[Mapping[str, Any]], closely: bool, output: Output) -> None:
    if output is Output.json:
        show(found, output)
        return
    rows = []
    for each in found:
        groups, gaps = each["groups"], each["gaps"]
        rows.append({**each, "partitions": len(each["partitions"]), "groups": len(groups), "gaps": len(gaps)})
    show(rows, output, _MIRROR_COLUMNS)
    for each in found:
        _note_trouble(each)
        if closely:
            _note_details(each)
            if apart := [row for row in each.get("topic_states", ()) if row["state"] != "mirroring"]:
                show(apart, output, _TOPIC_COLUMNS)
            show(each["partitions"], output, _PARTITION_COLUMNS)
            if each["groups"]:
                show([row for group in each["groups"] for row in group["places"]], output, _GROUP_COLUMNS)


def _note_trouble(each: Mapping[str, Any]) -> None:
    if each.get("reason"):
        note(f"{each['mirror']}: {each['reason']}")
    for one in each.get("operations", ()):
        whose = ", ".join(one["topics"]) or f"what {one['home']} owns"
        note(
            f"! {each['mirror']}: a {one['kind']} of {whose} is in progress, next: "
            f"{one['next']}. Continue with: hub mirror resume {each['mirror']} (or --abort)"
        )
    for home, acting in each.get("acting", {}).items():
        if home in (each["source"], each["target"]) and each["state"] != "handed over":
            note(f"{each['mirror']}: {acting} serves the topics of {home}")
    for caution in each.get("cautions", ()):
        note(f"! {each['mirror']}, {caution}")
    for row in each.get("deletions", ()):
        note(f"{each['mirror']}, {row['topic']}: {row['text']}")
    for row in each.get("drift", ()):
        if row["open"]:
            note(f"! {each['mirror']}, {row['topic']}: changed at the copy: {row['text']}")
        if row["reverted_at_ms"]:
            put_back = ", ".join(f"{key} was {old or 'default'}" for key, (old, _) in row["reverted"].items())
            note(f"{each['mirror']}, {row['topic']}: put back at {iso(row['reverted_at_ms'])}: {put_back}")
    for topic, why in each.get("trouble", {}).items():
        note(f'✗ {each["mirror"]}, topic "{topic}": {why}')
    for row in each["partitions"]:
        deleted = row["topic"] in {one["topic"] for one in each.get("deletions", ())}
        if row["reason"] and row["state"] != "unknown" and each["state"] != "handed over" and not deleted:
            note(f"! {each['mirror']}, {row['topic']} partition {row['partition']}: {row['reason']}")
    for gap in each["gaps"]:
        until = "its end" if gap["end"] < 0 else str(gap["end"])
        note(
            f"! {each['mirror']}, {gap['topic']} partition {gap['partition']}: offsets {gap['first']} up to"
            f" {until} are not in the target ({gap['reason']})"
        )
    for line in left_behind_lines(each):
        note(f"! {each['mirror']}, {line}")


def _note_details(each: Mapping[str, Any]) -> None:
    for beat in each.get("heartbeats", ()):
        shards = ", ".join(map(str, beat["shards"])) or "none"
        note(f"{each['mirror']}: worker {beat['worker']} beat {beat['ago_s']} s ago, shards {shards}")
    if each.get("verified_s") is not None:
        note(
            f"{each['mirror']}: {each['verified_records']} records compared, {each['unverified_records']} "
            f"offsets not yet, {each['different']} partitions differ; last {each['verified_s']} s ago"
        )
    for row in each["partitions"]:
        if len(row["rules"]) > 1:
            parts = "; ".join(f"{one['first']} to {one['end'] - 1}: {one['rules']}" for one in row["rules"])
            note(
                f"{each['mirror']}, {row['topic']} partition {row['partition']}: mirrored under "
                f"several rules: {parts}"
            )
    rules = {row["topic"]: row["engine_why"] for row in each["partitions"] if row["engine_why"]}
    for topic, why in rules.items():
        note(f"{each['mirror']}, {topic}: its records are re-encoded: {why}")
