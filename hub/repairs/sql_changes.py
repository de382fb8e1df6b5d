"""[shell] The change of events by SQL: a condition that drops them, or expressions that set fields.

The condition and the expressions are the hub's SQL over one record, as those of sinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.errors import CallerError, HubError
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.topic_rows import TopicTables
from hub.record import Record
from hub.repairs.outcomes import UNCHANGED
from hub.sinks.selection import SinkSelection, sql_refused
from hub.sinks.sinks_file import SinkEntry, TopicTarget
from hub.topics.dead_letters.repair import changed

_HINT = "write FIELD=EXPRESSION, such as cents=abs(cents)"


@dataclass
class SqlChange:
    """A change of events that meet ``where``. ``sets``: fields by path with the expressions of their new
    values; none: the events are dropped. Raises CallerError for SQL that cannot be used.
    """

    topic: str
    tables: TopicTables
    where: str | None
    sets: Sequence[tuple[str, str]] = ()
    _selection: SinkSelection = field(init=False)

    def __post_init__(self) -> None:
        expressions = [f"{text} AS set_{at}" for at, (_, text) in enumerate(self.sets)]
        entry = SinkEntry.model_construct(
            source=self.topic, where=self.where, fields=expressions or ["1 AS meets"], topic=_TARGET
        )
        try:
            self._selection = SinkSelection(entry, self.tables)
            columns = self._selection.columns  # compiles, so that wrong SQL is refused before the first event
        except SqlError as error:
            raise sql_refused(error) from None
        assert len(columns) >= 1

    def results(self, records: Sequence[Record], events: Sequence[Any]) -> Sequence[Any]:
        """See EventChange."""
        if not records:
            return []
        try:
            selected = self._selection.select(records)
        except SqlError as error:
            raise sql_refused(error) from None
        rows = {(each.record.partition, each.record.offset): each.row for each in selected.events}
        failed = {(each.record.partition, each.record.offset): each.reason for each in selected.refused}
        return [
            self._result((record.partition, record.offset), event, rows, failed)
            for record, event in zip(records, events, strict=True)
        ]

    def close(self) -> None:
        self._selection.close()

    def _result(
        self, place: tuple[int, int], event: Any, rows: dict[Any, Any], failed: dict[Any, str]
    ) -> Sequence[Any] | HubError | object:
        if place in failed:
            return CallerError(f"SQL cannot read it: {failed[place]}")
        row = rows.get(place)
        if row is None:
            return UNCHANGED
        if not self.sets:
            return []
        try:
            return [changed(event, [(name, row[f"set_{at}"]) for at, (name, _) in enumerate(self.sets)])]
        except CallerError as error:
            return error


_TARGET = TopicTarget(name="repair")


def sql_assignment(text: str) -> tuple[str, str]:
    """Parse ``FIELD=EXPRESSION``. Raises CallerError.

    >>> sql_assignment("address.city = upper(address.city)")
    ('address.city', 'upper(address.city)')
    """
    name, sign, expression = (part.strip() for part in text.partition("="))
    if not name or not sign or not expression:
        raise CallerError(f'"{text[:80]}" is not FIELD=EXPRESSION', hint=_HINT)
    return name, expression
