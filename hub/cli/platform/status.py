"""[edge] ``hub status``: one line per part of the hub: its state, and the command for details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, show
from hub.cli.terminal.watch_option import IntervalOption, WatchOption, looked
from hub.errors import HubError
from hub.lake.note import LakeNote, read_note
from hub.observability import format
from hub.observability.lag.states import LEVEL, LagState, Level
from hub.observability.overview.overview import RUNNING
from hub.outbox.note import read_note as read_outbox_note
from hub.outbox.relay_state import RelayState, relay_state
from hub.sandbox.launch import probed_platform
from hub.sandbox.platforms import Platform, python_of_views
from hub.sinks.note import BAD, SinkRow, known_rows
from hub.supervisor import RunningHub, running_hub
from hub.times import epoch_ms
from hub.topics.tree.tree import LiveTree

_TIMEOUT_S = 15.0
_NAMED = 3


class PartState(StrEnum):
    """State of a part, the worst first. ``off``: the project does not have it, or it does not run."""

    bad = "BAD"
    unknown = "UNKNOWN"
    warn = "WARN"
    ok = "OK"
    off = "off"


_OF_LEVEL = {
    Level.bad: PartState.bad,
    Level.unknown: PartState.unknown,
    Level.warn: PartState.warn,
    Level.ok: PartState.ok,
}


@dataclass(frozen=True, slots=True)
class StatusPart:
    """One line: a part of the hub, its state, details, and the command for more."""

    part: str
    state: PartState
    found: str
    more: str = ""


def status(
    output: OutputOption = Output.table, watch: WatchOption = False, interval: IntervalOption = 2.0
) -> None:
    """Show what runs and what does not: processes, Kafka, topics, views, lag, dead letters, alerts.

    Exit code 0: nothing is BAD or UNKNOWN. 1: something is.

    Example: hub status --watch
    """
    from hub.materializers.definition.load import view_files

    settings = load_settings()
    home, declared = settings.home, settings.outbox_database is not None
    tree = LiveTree(settings.project / "topics.yaml")

    def look() -> Sequence[StatusPart]:
        hub, now_ms = running_hub(home), epoch_ms()
        relay = relay_state(read_outbox_note(home, now_ms), declared=declared)
        local = [
            processes(hub),
            python(settings.transforms, probed_platform()),
            *outbox(relay, runs=hub is not None),
        ]
        wanted = sorted(name for name, topic in tree.topics().items() if topic.lake)
        tables = [*sinks(known_rows(settings.project, home, now_ms))]
        if wanted:
            tables += lake(wanted, read_note(home, now_ms))
        try:
            overview = http.get("/api/overview", timeout_s=_TIMEOUT_S)
            rows = http.get("/api/lag", timeout_s=_TIMEOUT_S)
        except HubError as error:
            return [*local, StatusPart("server", PartState.bad, error.message, error.hint or ""), *tables]
        return [*local, *parts(overview, rows, len(view_files(settings.project))), *tables]

    found = looked(look, lambda rows: show([asdict(each) for each in rows], output), watch, output, interval)
    raise typer.Exit(1 if any(each.state in (PartState.bad, PartState.unknown) for each in found) else 0)


def processes(hub: RunningHub | None) -> StatusPart:
    """Return the line of the hub's own processes on this machine."""
    if hub is None:
        return StatusPart("processes", PartState.off, "no hub runs on this home folder", "hub up --detach")
    if hub.missing:
        return StatusPart(
            "processes", PartState.bad, f"not ready: {', '.join(hub.missing)}", f"hub logs {hub.missing[0]}"
        )
    state = PartState.ok if hub.healthy else PartState.warn
    return StatusPart(
        "processes", state, f"{len(hub.processes)} run" + ("" if hub.healthy else ", starting"), "hub top"
    )


def python(transforms: str, platform: Platform) -> StatusPart:
    """Return the line of the Python functions of views."""
    found = python_of_views(transforms, platform)
    return StatusPart(
        "python", PartState.ok if found.is_complete else PartState.warn, found.text, "hub doctor"
    )


def lake(topics: Sequence[str], known: LakeNote | None) -> list[StatusPart]:
    """Return the line of the topics' Iceberg tables. ``known`` None: no writer reports."""
    if known is None:
        return [StatusPart("lake", PartState.unknown, "no writer of Iceberg tables reports", "hub lake ls")]
    found = [known.topics.get(topic) for topic in topics]
    failing = [each.topic for each in found if each is not None and each.state == "FAILING"]
    if failing:
        return [StatusPart("lake", PartState.bad, f"not written: {_some(failing)}", "hub lake ls")]
    written = sum(each is not None and each.state == "WRITING" for each in found)
    state = PartState.ok if written == len(topics) else PartState.warn
    return [
        StatusPart("lake", state, f"{written} of {len(topics)} Iceberg tables are written", "hub lake ls")
    ]


def sinks(rows: Sequence[SinkRow]) -> list[StatusPart]:
    """Return the line of the sinks; none without any."""
    if not rows:
        return []
    bad = [each.note.sink for each in rows if each.note.state in BAD or each.is_late]
    if bad:
        return [StatusPart("sinks", PartState.bad, f"late or not delivering: {_some(bad)}", "hub sink ls")]
    unknown = [each.note.sink for each in rows if each.note.state == "UNKNOWN"]
    if unknown:
        return [StatusPart("sinks", PartState.unknown, f"not reported: {_some(unknown)}", "hub sink ls")]
    delivering = sum(each.note.state == "DELIVERING" for each in rows)
    state = PartState.ok if delivering == len(rows) else PartState.warn
    return [StatusPart("sinks", state, f"{delivering} of {len(rows)} sinks deliver", "hub sink ls")]


def outbox(relay: RelayState, *, runs: bool) -> list[StatusPart]:
    """Return the line of the outbox's relay; none without one."""
    if relay.state == "off":
        return []
    if relay.state == "unknown" and not runs:
        return [StatusPart("outbox", PartState.off, "no relay runs on this home folder", "hub up --detach")]
    states = {"failing": PartState.bad, "refused": PartState.warn, "unknown": PartState.unknown}
    return [StatusPart("outbox", states.get(relay.state, PartState.ok), relay.found, "hub outbox status")]


def parts(
    overview: Mapping[str, Any], lag: Sequence[Mapping[str, Any]], view_files: int = 0
) -> list[StatusPart]:
    """Return the lines of ``/api/overview`` and ``/api/lag`` (both as the server answers).

    ``view_files``: number of files in the project's views; the server does not know of them at once.
    """
    lines = [_kafka(overview), _topics(overview), _views(overview, view_files)]
    lines += [_lag(lag), _dead_letters(overview), _alerts(overview["totals"].get("alerts_firing"))]
    if overview["connect"] is not None:
        lines.insert(1, _connect(overview["connect"]))
    return lines


def _kafka(overview: Mapping[str, Any]) -> StatusPart:
    kafka = overview["kafka"]
    cut_off = overview["cut_off"]
    if kafka["state"] != "up":
        state = PartState.unknown if kafka["state"] == "connecting" else PartState.bad
        return StatusPart("kafka", state, kafka["error"] or kafka["state"], "hub doctor")
    if cut_off:
        names = _some([each["process"] for each in cut_off])
        return StatusPart("kafka", PartState.bad, f"up, but gives no answer to {names}", "hub doctor")
    return StatusPart("kafka", PartState.ok, f"up at {kafka['bootstrap']}", "hub doctor")


def _connect(connect: Mapping[str, Any]) -> StatusPart:
    failed = connect["failed"]
    if failed is None:
        return StatusPart("connect", PartState.unknown, "no worker answers", "hub doctor")
    return StatusPart(
        "connect",
        PartState.bad if failed else PartState.ok,
        f"{failed} failed tasks and connectors",
        "hub doctor",
    )


def _topics(overview: Mapping[str, Any]) -> StatusPart:
    if overview["totals"]["events"] is None:
        return StatusPart("topics", PartState.unknown, "Kafka has not listed them yet", "hub topic ls")
    count = sum(topic["kind"] == "events" for topic in overview["topics"])
    rate = format.rate(overview["totals"]["events_per_second"])
    return StatusPart(
        "topics",
        PartState.ok,
        f"{count:,} with {overview['totals']['events']:,} events, {rate}/s",
        "hub topic ls",
    )


def _views(overview: Mapping[str, Any], files: int) -> StatusPart:
    views = overview["views"]
    if overview["totals"]["views_live"] is None:
        return StatusPart("views", PartState.unknown, "nothing is known of them yet", "hub view ls")
    if not views and files:
        return StatusPart(
            "views", PartState.unknown, f"{files} in views/, not reported yet", "hub logs materializer"
        )
    if not views:
        return StatusPart("views", PartState.off, "the project has none", "hub view new --help")
    waiting = [view for view in views if view["state"] not in RUNNING]
    found = f"{len(views) - len(waiting)} of {len(views)} live"
    if waiting:
        found += ": " + _some([f"{view['name']} {view['state']}" for view in waiting])
    known = all(view["state"] != "unknown" for view in waiting)
    state = PartState.ok if not waiting else PartState.warn if known else PartState.unknown
    return StatusPart(
        "views", state, found, f"hub view show {waiting[0]['name']}" if waiting else "hub view ls"
    )


def _lag(rows: Sequence[Mapping[str, Any]]) -> StatusPart:
    if not rows:
        return StatusPart("lag", PartState.off, "nobody reads a topic", "hub lag")
    states = Counter(row["state"] for row in rows)
    worst = min((_OF_LEVEL[LEVEL[LagState(state)]] for state in states), key=list(PartState).index)
    found = ", ".join(f"{count} {state}" for state, count in states.most_common())
    bad = [row for row in rows if _OF_LEVEL[LEVEL[LagState(row["state"])]] is worst]
    if worst in (PartState.bad, PartState.warn) and bad[0].get("cause"):
        found += f": {bad[0]['name']}, {bad[0]['cause']}"
    return StatusPart("lag", worst, found, "hub lag")


def _dead_letters(overview: Mapping[str, Any]) -> StatusPart:
    count = overview["totals"]["undecodable"]
    if count is None:
        return StatusPart("dead letters", PartState.unknown, "Kafka has not listed them yet", "hub dlq ls")
    topics = [topic["name"] for topic in overview["topics"] if topic["undecodable"]]
    found = f"{count:,}" + (f" of {_some(topics)}" if topics else "")
    return StatusPart("dead letters", PartState.warn if count else PartState.ok, found, "hub dlq ls")


def _alerts(firing: int | None) -> StatusPart:
    if firing is None:
        return StatusPart("alerts", PartState.off, "not judged (setting alerts)", "hub config explain alerts")
    return StatusPart("alerts", PartState.bad if firing else PartState.ok, f"{firing} firing", "hub alert ls")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
