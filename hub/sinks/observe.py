"""[shell] Sinks for others: rule ``sink-stopped``, lines of their page, edges of the lineage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hub.alerts.model.matching import labels_of
from hub.alerts.model.rules import Observation, RuleChanges, RuleObservations, Verdict
from hub.observability.lineage.live_graph import ConnectorFlow
from hub.observability.web.pages.monitor.sinks import SinkLine
from hub.sinks.events import group_of
from hub.sinks.note import BAD, SinkRow, known_rows
from hub.times import epoch_ms


def observe_sinks(rows: Iterable[SinkRow], changes: RuleChanges) -> RuleObservations:
    """Return the observations of rule ``sink-stopped``: bad for a sink that does not deliver, or whose oldest
    waiting record is older than its ``late_after``. A paused sink is good.
    """
    return RuleObservations(changes.rule("sink-stopped"), tuple(map(_observed, rows)))


def _observed(row: SinkRow) -> Observation:
    note, owner = row.note, "" if row.entry is None else row.entry.owner
    about, labels = labels_of({"sink": note.sink}), labels_of({"owner": owner} if owner else {})
    if note.state in BAD:
        summary = f"sink {note.sink} does not deliver"
        return Observation(about, Verdict.BAD, summary, note.lag_s, labels, note.trouble)
    if note.state in ("UNKNOWN", "STARTING"):
        return Observation(about, Verdict.UNKNOWN, labels=labels, detail=note.trouble or "it starts")
    if row.is_late and note.state != "PAUSED":
        summary = f"sink {note.sink} is late: its oldest waiting record is {note.lag_s:.0f} s old"
        return Observation(about, Verdict.BAD, summary, note.lag_s, labels)
    return Observation(about, Verdict.GOOD, value=note.lag_s, labels=labels)


@dataclass(frozen=True, slots=True)
class ProjectSinks:
    """Sinks of a project for the web pages: ``hub.observability.web.pages.estate.HasSinks``."""

    project: Path
    home: Path

    def lines(self) -> list[SinkLine]:
        """Return every sink with its state."""
        return [line_of(row) for row in self._rows()]

    def flows(self, topics: Sequence[str]) -> list[ConnectorFlow]:
        """Return the sinks as edges of the lineage."""
        return flows_of(self._rows(), topics)

    def _rows(self) -> list[SinkRow]:
        return known_rows(self.project, self.home, epoch_ms())


def line_of(row: SinkRow) -> SinkLine:
    """Return a sink as its line of the page. What no worker reports is None."""
    note, entry = row.note, row.entry
    is_reported = note.state not in ("UNKNOWN", "PAUSED")
    line = SinkLine(
        note.sink,
        note.state,
        note.trouble,
        lag_s=note.lag_s,
        lag_records=note.lag_records,
        delivered=note.delivered if is_reported else None,
        refused=note.refused if is_reported else None,
        late=row.is_late,
    )
    if entry is None:
        return line
    return replace(
        line,
        source=entry.source,
        kind=entry.kind,
        target=entry.place,
        owner=entry.owner,
        where=entry.where or "",
        tables=tuple(entry.topics[1:]),
    )


def flows_of(rows: Iterable[SinkRow], topics: Sequence[str]) -> list[ConnectorFlow]:
    """Return sinks as flows from their source to the system at the other end. ``topics``: those to show."""
    return [
        ConnectorFlow(
            row.note.sink,
            False,
            f"{row.entry.kind} {row.entry.place}",
            tuple(each for each in row.entry.topics if each in topics),
            row.entry.owner,
            reader=group_of(row.note.sink),
        )
        for row in rows
        if row.entry is not None
    ]
