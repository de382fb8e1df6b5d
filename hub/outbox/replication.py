"""[edge] A connection of Postgres' streaming replication: messages in, confirmations out.

psycopg has no replication mode; its wrapper of libpq (``psycopg.pq``) has all that one needs: COPY BOTH
without blocking. Every wait has a bound. Protocol:
https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from hub.errors import ConfigError, PeerError
from hub.outbox.pgoutput import EPOCH_MS, parse_lsn

T = TypeVar("T")

_XLOG_BYTES = 25  # kind, start, end, time
_KEEPALIVE = struct.Struct("!cqqb")
_STATUS = struct.Struct("!cqqqqb")
_SLOT_IN_USE, _NO_SUCH_OBJECT, _NOT_READY = "55006", "42704", "55000"


class SlotInUse(PeerError):
    """Another connection reads the slot."""

    code = "HUB-3093"


class SlotLost(ConfigError):
    """The slot does not exist, or Postgres removed the log that it needs."""

    code = "HUB-1141"


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Sign of life of the server; everything before ``end_lsn`` has been sent."""

    end_lsn: int
    wants_reply: bool


@dataclass(frozen=True, slots=True)
class SystemIdentity:
    """The database server: ``system_id`` is unique to a server and its replicas;
    ``end_lsn``: end of its log."""

    system_id: str
    end_lsn: int
    database: str


class ReplicationConnection:
    """A replication connection to one database. Not thread safe. Each method raises PeerError (HUB-3092) if
    the connection breaks.
    """

    def __init__(self, url: str, timeout_s: float = 15.0) -> None:
        """Connect. Raises PeerError (HUB-3092), ConfigError (HUB-1140) if the server refuses replication."""
        self._timeout_s = timeout_s
        conninfo = make_conninfo(
            url, replication="database", application_name="hub outbox relay", client_encoding="UTF8"
        )
        self._connection = pq.PGconn.connect_start(conninfo.encode())
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def identify(self) -> SystemIdentity:
        """Return the identity of the server. Raises PeerError."""
        result = self._query("IDENTIFY_SYSTEM")
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._broken("refuses IDENTIFY_SYSTEM", result.error_message)
        system_id, _timeline, end, database = ((result.get_value(0, n) or b"").decode() for n in range(4))
        return SystemIdentity(system_id, parse_lsn(end), database)

    def start(self, slot: str, publication: str) -> None:
        """Start streaming after the confirmed position.
        Raises SlotInUse, SlotLost, ConfigError (HUB-1140)."""
        options = f"(proto_version '1', publication_names '\"{publication}\"')"
        result = self._query(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 {options}')
        if result.status == pq.ExecStatus.COPY_BOTH:
            return
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")
        if state == _SLOT_IN_USE:
            raise SlotInUse(
                f"another relay reads it: {message}", hint="this relay waits; stop one of the two"
            )
        if state in (_NO_SUCH_OBJECT, _NOT_READY) and "slot" in message:
            raise SlotLost(
                f"the relay cannot read the database's log: {message}",
                hint="the first time: hub outbox init. If a relay ran before, events may be missing in "
                "Kafka: docs/how-to/use-the-outbox.md, part `A lost slot`",
            )
        raise ConfigError(
            f'slot "{slot}" cannot be read: {message}', hint="run: hub outbox init", code="HUB-1140"
        )

    def read(self, timeout_s: float) -> bytes | Keepalive | None:
        """Return the next message of the plug-in, or a keepalive; None after ``timeout_s`` without one."""
        deadline = time.monotonic() + timeout_s
        while True:
            size, data = self._guarded(lambda: self._connection.get_copy_data(1))
            if size > 0:
                return _parsed(bytes(data))
            if size < 0:
                result = self._connection.get_result()
                raise self._broken("was ended", b"" if result is None else result.error_message)
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._connection.socket], [], [], left_s)[0]:
                return None
            self._guarded(self._connection.consume_input)

    def confirm(self, lsn: int, now_ms: int) -> None:
        """Confirm everything before ``lsn`` to the server: it may remove that part of its log."""
        status = _STATUS.pack(b"r", lsn, lsn, lsn, (now_ms - EPOCH_MS) * 1000, 0)
        self._guarded(lambda: self._connection.put_copy_data(status))
        self._flush(time.monotonic() + self._timeout_s)

    def close(self) -> None:
        self._connection.finish()

    def _connect(self) -> None:
        deadline = time.monotonic() + self._timeout_s
        while (status := self._connection.connect_poll()) != pq.PollingStatus.OK:
            if status == pq.PollingStatus.FAILED:
                raise self._broken("cannot be made")
            reading = status == pq.PollingStatus.READING
            self._wait(deadline, reads=reading, writes=not reading)
        self._connection.nonblocking = 1

    def _query(self, command: str) -> pq.abc.PGresult:
        """Return the first result of a command; the others are read too, except after COPY BOTH."""
        deadline = time.monotonic() + self._timeout_s
        self._guarded(lambda: self._connection.send_query(command.encode()))
        self._flush(deadline)
        first: pq.abc.PGresult | None = None
        while True:
            while self._connection.is_busy():
                self._wait(deadline, reads=True)
                self._guarded(self._connection.consume_input)
            result = self._connection.get_result()
            first = first or result
            if first is None:
                raise self._broken("was ended")
            if result is None or result.status == pq.ExecStatus.COPY_BOTH:
                return first

    def _flush(self, deadline: float) -> None:
        while self._guarded(self._connection.flush):
            self._wait(deadline, reads=True, writes=True)
            self._guarded(self._connection.consume_input)

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except psycopg.Error as error:
            raise self._broken("is broken", str(error).encode()) from None

    def _wait(self, deadline: float, *, reads: bool = False, writes: bool = False) -> None:
        place = [self._connection.socket]
        left_s = max(0.0, deadline - time.monotonic())
        if not any(select.select(place if reads else [], place if writes else [], [], left_s)):
            raise self._broken(f"has no answer within {self._timeout_s:g} s")

    def _broken(self, why: str, more: bytes = b"") -> PeerError:
        detail = (more or self._connection.error_message).decode(errors="replace").strip()
        return PeerError(
            f"connection to the outbox's database {why}" + (f": {detail.splitlines()[-1]}" if detail else ""),
            hint="the relay reconnects by itself; check the database and `outbox_database`",
            code="HUB-3092",
        )


def _parsed(data: bytes) -> bytes | Keepalive:
    if data[:1] == b"k":
        _kind, end_lsn, _at, wants_reply = _KEEPALIVE.unpack_from(data)
        return Keepalive(end_lsn, bool(wants_reply))
    return data[_XLOG_BYTES:]
