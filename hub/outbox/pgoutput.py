"""[core] Decode messages of Postgres' logical replication (protocol version 1, plug-in pgoutput).

Formats: https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html. A publication of
inserts sends Begin, Relation, Insert and Commit; other messages are passed over. Changes of a transaction
arrive after its commit, and transactions arrive in the order of their commits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

# Postgres counts microseconds from 2000-01-01.
EPOCH_MS = 946_684_800_000

_BEGIN = struct.Struct("!qqi")
_COMMIT = struct.Struct("!bqqq")
_INT16, _INT32 = struct.Struct("!h"), struct.Struct("!i")


class BrokenMessage(ValueError):
    """A message does not have the format of the protocol."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Start of a transaction. ``commit_lsn``: place of its commit record."""

    commit_lsn: int
    committed_at_ms: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction. ``end_lsn``: the place after its commit record."""

    commit_lsn: int
    end_lsn: int
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class PgRelation:
    """A table and its columns; sent before the first row of it, and again after a change."""

    relation_id: int
    namespace: str
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row, with its values as text; None: NULL."""

    relation_id: int
    values: tuple[bytes | None, ...]


Message = Begin | Commit | PgRelation | Insert


def decode(body: bytes) -> Message | None:
    """Return the message; None for kinds that the outbox does not need. Raises BrokenMessage."""
    try:
        match body[:1]:
            case b"I":
                return _insert(body)
            case b"B":
                commit_lsn, at_us, xid = _BEGIN.unpack_from(body, 1)
                return Begin(commit_lsn, _ms(at_us), xid)
            case b"C":
                _flags, commit_lsn, end_lsn, at_us = _COMMIT.unpack_from(body, 1)
                return Commit(commit_lsn, end_lsn, _ms(at_us))
            case b"R":
                return _relation(body)
            case b"":
                raise BrokenMessage("an empty message of logical replication")
            case _:
                return None
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise BrokenMessage(f"message {body[:1]!r} of logical replication is cut short: {error}") from None


def _ms(at_us: int) -> int:
    return EPOCH_MS + at_us // 1000


def _relation(body: bytes) -> PgRelation:
    (relation_id,) = _INT32.unpack_from(body, 1)
    namespace, place = _text(body, 5)
    name, place = _text(body, place)
    (count,) = _INT16.unpack_from(body, place + 1)  # after the replica identity, one byte
    place += 3
    columns = []
    for _ in range(count):
        column, place = _text(body, place + 1)  # after its flags, one byte
        columns.append(column)
        place += 8  # type, type modifier
    if place > len(body):
        raise BrokenMessage("a relation of logical replication is cut short")
    # The schema pg_catalog is sent as an empty name.
    return PgRelation(relation_id, namespace or "pg_catalog", name, tuple(columns))


def _text(body: bytes, place: int) -> tuple[str, int]:
    end = body.find(b"\0", place)
    if end < 0:
        raise BrokenMessage("a name in a message of logical replication does not end")
    return body[place:end].decode(), end + 1


def _insert(body: bytes) -> Insert:
    (relation_id,) = _INT32.unpack_from(body, 1)
    if body[5:6] != b"N":
        raise BrokenMessage(f"an inserted row begins with {body[5:6]!r}, not with N")
    (count,) = _INT16.unpack_from(body, 6)
    place = 8
    values: list[bytes | None] = []
    for _ in range(count):
        kind = body[place : place + 1]
        place += 1
        if kind == b"t":
            (size,) = _INT32.unpack_from(body, place)
            place += 4 + size
            if place > len(body):
                raise BrokenMessage("a row of logical replication is cut short")
            values.append(body[place - size : place])
        elif kind == b"n":
            values.append(None)
        else:
            raise BrokenMessage(f"a value of kind {kind!r} in an inserted row is not known")
    return Insert(relation_id, tuple(values))


def lsn_text(lsn: int) -> str:
    """Return an LSN as Postgres writes it.

    >>> lsn_text(0x1_0152_8FB0)
    '1/1528FB0'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Parse an LSN; the inverse of ``lsn_text``. Raises ValueError.

    >>> parse_lsn("1/1528FB0") == 0x1_0152_8FB0
    True
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
