"""[edge] One connection: reads messages, carries out the session's actions, writes replies.

The session decides (session.py); here is what blocks or waits. Reads and writes have time limits; a client
that does not read its rows for a minute is disconnected.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hub.caller import Unauthenticated
from hub.errors import HubError
from hub.pgwire.actions import (
    Action,
    DescribePortal,
    DescribePrepared,
    DropPortals,
    EndSession,
    FlushNow,
    OpenPortal,
    RunScript,
    Send,
    SendRows,
)
from hub.pgwire.catalog.rewrite import CatalogSession
from hub.pgwire.protocol import backend, frontend
from hub.pgwire.protocol.framing import Framing, ProtocolError
from hub.pgwire.queries import PgQueries, RunningPortal
from hub.pgwire.results import count_of
from hub.pgwire.session import Session, Step, described, failed, on_message, on_statement
from hub.pgwire.session_settings import DEFAULTS, REPORTED
from hub.pgwire.sign_in import DatabaseSignIn, SignedIn
from hub.pgwire.sqlstates import PgError, error_fields
from hub.pgwire.statements import SelectStatement, Statement

STUCK_S = 60.0
_READ = 1 << 16
_SEND_AT = 1 << 16
_LIVE_LOOK_S = 1.0  # how long FETCH of a push query waits for a first row


class PgConnectionLost(Exception):
    """The client has gone, does not read, or was idle for too long."""


@dataclass(slots=True)
class Wire:
    """The bytes of a connection: messages in, replies out, with time limits."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    framing: Framing = field(default_factory=Framing)
    _waiting: bytearray = field(default_factory=bytearray)

    async def packet(self, timeout_s: float, cut: Callable[[], object]) -> object:
        """Return the next packet by ``cut``, reading more until it is complete. Raises ConnectionLost."""
        try:
            async with asyncio.timeout(timeout_s):
                while (found := cut()) is None:
                    data = await self.reader.read(_READ)
                    if not data:
                        raise PgConnectionLost("the client has closed the connection")
                    self.framing.feed(data)
                return found
        except TimeoutError:
            raise PgConnectionLost("idle") from None
        except OSError as error:
            raise PgConnectionLost(str(error)) from None

    async def send(self, data: bytes) -> None:
        """Keep bytes to send; send them when there are many."""
        self._waiting += data
        if len(self._waiting) >= _SEND_AT:
            await self.flush()

    async def flush(self) -> None:
        """Send what waits. Raises ConnectionLost when the client does not read it."""
        data, self._waiting = bytes(self._waiting), bytearray()
        try:
            self.writer.write(data)
            async with asyncio.timeout(STUCK_S):
                await self.writer.drain()
        except (OSError, TimeoutError) as error:
            raise PgConnectionLost(str(error)) from None

    async def gone(self) -> bool:
        return self.reader.at_eof() or self.writer.transport.is_closing()


class PgConnection:
    """A signed-in connection. ``process`` and ``secret`` identify it to a cancel request."""

    def __init__(
        self,
        wire: Wire,
        queries: PgQueries,
        sign_in: DatabaseSignIn,
        known: SignedIn,
        process: int,
        idle_s: float,
    ) -> None:
        self.wire, self.process, self.secret = wire, process, secrets.token_bytes(4)
        self._queries, self._sign_in, self._known, self._idle_s = queries, sign_in, known, idle_s
        self._session = Session()
        self._portals: dict[str, RunningPortal] = {}
        self._active: RunningPortal | None = None
        self._current_query: SelectStatement | None = None  # the query whose error is sent next

    def cancel(self) -> None:
        """Stop the query that the client waits for."""
        if self._active is not None:
            self._active.running.cancel()

    async def run(self, settings: Mapping[str, str]) -> None:
        """Answer messages until the client ends. Raises ConnectionLost, ProtocolError, PgError (fatal)."""
        self._session = Session(settings=settings)
        for name in REPORTED:
            value = settings.get(name.lower(), DEFAULTS[name.lower()])
            await self.wire.send(backend.parameter_status(name, value))
        await self.wire.send(backend.backend_key(self.process, self.secret) + backend.ready("I"))
        await self.wire.flush()
        try:
            while True:
                found = await self.wire.packet(self._idle_s, self.wire.framing.message)
                assert isinstance(found, tuple)
                message = frontend.message(*found)
                known = self._sign_in.recheck(self._known)
                if known is not self._known:
                    self._known = known
                    known.enter()
                if await self._answer(message):
                    return
        finally:
            for portal in self._portals.values():
                portal.close()

    async def _answer(self, message: frontend.Message) -> bool:
        """Answer one message; True: it was the last."""
        self._current_query = None
        try:
            self._session, actions = on_message(self._session, message)
            for action in actions:
                if isinstance(action, EndSession):
                    return True
                await self._do(action)
        except (HubError, PgError) as error:
            simple = isinstance(message, frontend.SimpleQuery)
            sql = self._current_query.sql if self._current_query is not None else ""
            await self._fail(failed(self._session, error, sql, extended=not simple))
            if simple:
                await self._ready()
        return False

    async def _fail(self, step: Step) -> None:
        self._session, actions = step
        for action in actions:
            await self._do(action)
        # A client that waits for it with Flush sends Sync only when it has the error.
        await self.wire.flush()

    async def _ready(self) -> None:
        if self._session.status == "I":
            portals = {name: each for name, each in self._session.portals.items() if each.hold}
            await self._do(DropPortals(tuple(self._session.portals.keys() - portals.keys())))
            self._session = Session(
                *("I", self._session.settings, self._session.prepared, portals, self._session.skipping)
            )
        await self.wire.send(backend.ready(self._session.status))
        await self.wire.flush()

    async def _do(self, action: Action) -> None:
        match action:
            case Send(data):
                await self.wire.send(data)
            case FlushNow():
                await self.wire.flush()
            case RunScript(statements):
                await self._script(statements)
            case DescribePrepared(name, prepared):
                types, fields = list(prepared.types), list[backend.Field]()
                if isinstance(prepared.statement, SelectStatement):
                    self._current_query = prepared.statement
                    types, fields = await self._queries.described(
                        prepared.statement, types, self._session.settings, self._catalog_session
                    )
                    self._session = described(self._session, name, types)
                await self.wire.send(backend.parameter_description(types))
                await self.wire.send(backend.row_description(fields) if fields else backend.NO_DATA)
            case OpenPortal():
                self._portals[action.name] = self._queries.opened(
                    action, self._session.settings, self._catalog_session, self.wire.gone
                )
            case DescribePortal(name):
                fields = await self._waited(name)
                await self.wire.send(backend.row_description(fields))
            case SendRows():
                await self._rows(action)
            case DropPortals(names):
                for name in names:
                    if (portal := self._portals.pop(name, None)) is not None:
                        portal.close()

    @property
    def _catalog_session(self) -> CatalogSession:
        now = datetime.now(UTC).replace(tzinfo=None).isoformat(" ")
        return CatalogSession(self._known.user, self.process, now, self._session.settings)

    async def _script(self, statements: tuple[Statement, ...]) -> None:
        """Run a simple query's statements up to the first error."""
        for statement in statements:
            try:
                self._session, actions = on_statement(self._session, statement)
                for action in actions:
                    await self._do(action)
            except (HubError, PgError) as error:
                query = getattr(statement, "query", statement)
                place = (query.sql, query.offset) if isinstance(query, SelectStatement) else ("", 0)
                await self._fail(failed(self._session, error, *place, extended=False))
                break
        if not statements:
            await self.wire.send(backend.EMPTY_QUERY)
        await self._ready()

    async def _waited(self, name: str) -> list[backend.Field]:
        """Return the columns of a portal as soon as it has them."""
        self._active = portal = self._portals[name]
        self._current_query = portal.query
        try:
            return await portal.spool.columns()
        finally:
            self._active = None

    async def _rows(self, action: SendRows) -> None:
        """Send rows of a portal as far as they are wanted, at the client's pace."""
        await self._waited(action.name)
        self._active = portal = self._portals[action.name]
        copies = action.command == "COPY"
        try:
            if copies:
                await self.wire.send(backend.copy_out(len(portal.spool.fields)))
            before, left = portal.done, action.rows
            live = portal.spool.live
            while action.rows == 0 or left:
                data = await portal.spool.read(left, _LIVE_LOOK_S if live else None)
                if data is None:
                    break
                if not data:
                    if action.command in ("FETCH", "MOVE"):
                        break  # a cursor of a push query returns what is there
                    if await self.wire.gone():
                        raise PgConnectionLost("the client has closed the connection")
                    continue
                if action.rows:
                    count = count_of(data)
                    left, portal.done = left - count, portal.done + count
                if action.command != "MOVE":
                    await self.wire.send(data)
                if live:
                    await self.wire.flush()
            if action.rows == 0:
                portal.done = portal.spool.rows
            if action.suspends and left == 0:
                await self.wire.send(backend.SUSPENDED)
                return
            end = backend.COPY_DONE if copies else b""
            for fields in portal.spool.warnings:
                end += backend.notice(fields)
            await self.wire.send(end + backend.complete(f"{action.command} {portal.done - before}"))
        finally:
            self._active = None


def fatal(error: Exception) -> bytes:
    """Return the message for an error that ends the connection."""
    if isinstance(error, ProtocolError):
        error = PgError("08P01", f"this is not Postgres' protocol 3.0: {error}")
    if isinstance(error, Unauthenticated):
        error = PgError("28P01", error.message, error.hint)
    return backend.error(error_fields(error, fatal=True))
