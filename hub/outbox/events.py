"""[core] Rows of the outbox table as events, each with the position after it; and their division into
batches.

A position is ``(lsn, done)``: every transaction whose commit record lies before ``lsn`` is relayed, and
``done`` events of the transaction at ``lsn``. Positions are ordered as tuples. A transaction is decoded in
the same order each time, so the position finds the next event after any restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from hub.outbox.pgoutput import Begin, Commit, Insert, Message, PgRelation
from hub.record import Headers, NewRecord

COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload", "headers")
ID_HEADER, TYPE_HEADER = "id", "eventType"


class Position(NamedTuple):
    """Place in the database's log up to which events are relayed; see the module."""

    lsn: int
    done: int


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """A committed row: its id, the record that it becomes, and the position after it. ``broken``: why the row
    cannot be an event; "" if it can.
    """

    id: str
    record: NewRecord
    after: Position
    committed_at_ms: int
    broken: str = ""


class MissingColumns(ValueError):
    """The published table lacks columns of an outbox."""


@dataclass(slots=True)
class TransactionReader:
    """State of decoding. ``position``: the place after the last message that was applied; events up to the
    position at the start are passed over.
    """

    position: Position
    _places: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _begin: Begin | None = None
    _rows: int = 0

    def apply(self, message: Message) -> OutboxEvent | None:
        """Apply the next message and return the event in it that is not relayed yet, if any.

        Raises MissingColumns, BrokenRow.
        """
        match message:
            case PgRelation():
                self._places[message.relation_id] = _places(message)
            case Begin():
                self._begin, self._rows = message, 0
            case Insert():
                return self._inserted(message)
            case Commit():
                self._begin = None
                self.position = max(self.position, Position(message.end_lsn, 0))
        return None

    @property
    def between_transactions(self) -> bool:
        """Return whether no transaction is half read."""
        return self._begin is None

    def _inserted(self, row: Insert) -> OutboxEvent | None:
        assert self._begin is not None, "a row arrives within a transaction"
        self._rows += 1
        after = Position(self._begin.commit_lsn, self._rows)
        if after <= self.position:
            return None
        self.position = after
        values = [row.values[place] for place in self._places[row.relation_id]]
        return event_of(values, after, self._begin.committed_at_ms)


class BrokenRow(ValueError):
    """A row of the table has no id, so it cannot even be refused."""


def event_of(values: list[bytes | None], after: Position, committed_at_ms: int) -> OutboxEvent:
    """Return the event of a row whose values are in the order of ``COLUMNS``. Raises BrokenRow."""
    id_, topic, key, type_, payload, headers = values
    if id_ is None:
        raise BrokenRow("a row of the outbox has no id")
    name = id_.decode(errors="replace")
    try:
        if topic is None:
            raise ValueError("it has no aggregatetype")
        value = None if payload is None else _payload(payload)
        added: Headers = ((ID_HEADER, id_),) if type_ is None else ((ID_HEADER, id_), (TYPE_HEADER, type_))
        record = NewRecord(topic.decode(), key, value, (*_headers(headers), *added), committed_at_ms)
    except ValueError as error:
        broken = f"the row cannot be an event: {error}"
        return OutboxEvent(name, NewRecord("", None, None), after, committed_at_ms, broken)
    return OutboxEvent(name, record, after, committed_at_ms)


def _payload(text: bytes) -> bytes:
    """Return the bytes of a ``bytea`` in its text form, else the text itself: a table of Debezium's may have
    ``jsonb``.
    """
    return bytes.fromhex(text[2:].decode()) if text.startswith(b"\\x") else text


def _headers(text: bytes | None) -> Headers:
    if text is None or text == b"{}":
        return ()
    found = orjson.loads(text)
    if not isinstance(found, dict):
        raise ValueError("its headers are not a JSON object")  # noqa: TRY004
    return tuple((name, None if value is None else str(value).encode()) for name, value in found.items())


def _places(relation: PgRelation) -> tuple[int, ...]:
    missing = [name for name in COLUMNS if name not in relation.columns]
    if missing:
        raise MissingColumns(
            f'table "{relation.namespace}.{relation.name}" has no column {", ".join(missing)}'
        )
    return tuple(relation.columns.index(name) for name in COLUMNS)
