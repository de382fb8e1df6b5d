"""[core] State machine of a session: (session, message) -> (session, actions). No input or output.

A simple query is a script of statements; the extended protocol has prepared statements and portals. A cursor
is a portal by name. Transactions are accepted, and only change what a session may do next: every query is a
read of its own. After an error in the extended protocol everything up to Sync is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hub.pgwire.actions import (
    Action,
    DescribePortal,
    DescribePrepared,
    DropPortals,
    EndSession,
    FlushNow,
    OpenPortal,
    PreparedStatement,
    RunScript,
    Send,
    SendRows,
)
from hub.pgwire.protocol import backend, frontend
from hub.pgwire.session_settings import DEFAULTS, REPORTED, changed, value_of
from hub.pgwire.sqlstates import PgError, error_fields
from hub.pgwire.statements import (
    CloseCursor,
    CopyOut,
    Declare,
    Discard,
    Fetch,
    Nothing,
    RefusedStatement,
    SelectStatement,
    SetTo,
    Show,
    Statement,
    Transaction,
    statements_of,
)

_MOST_PREPARED, _MOST_PORTALS = 1_000, 20
Status = Literal["I", "T", "E"]


@dataclass(frozen=True, slots=True)
class Portal:
    """A bound statement. ``hold``: a cursor that outlives its transaction."""

    statement: Statement | None
    hold: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """State of a session. ``status``: I (no transaction), T (in one), E (in a failed one)."""

    status: Status = "I"
    settings: Mapping[str, str] = field(default_factory=dict)
    prepared: Mapping[str, PreparedStatement] = field(default_factory=dict)
    portals: Mapping[str, Portal] = field(default_factory=dict)
    skipping: bool = False


Step = tuple[Session, list[Action]]


def on_message(session: Session, message: frontend.Message) -> Step:
    """Return the session after a message, and what to do. Raises PgError, for ``failed``."""
    match message:
        case frontend.Terminate():
            return session, [EndSession()]
        case frontend.Sync():
            return _synced(session)
        case frontend.Ignored():
            return session, []
        case _ if session.skipping:
            return session, []
        case frontend.SimpleQuery(sql):
            session, dropped = _without(session, [""])
            return session, [*dropped, RunScript(tuple(statements_of(sql)))]
        case frontend.Parse(name, sql, types):
            return _parse(session, name, sql, types)
        case frontend.Bind():
            return _bind(session, message)
        case frontend.Describe("S", name):
            return session, [DescribePrepared(name, _prepared(session, name))]
        case frontend.Describe(_, name):
            return session, [_portal_description(session, name)]
        case frontend.Execute(portal, rows):
            return _execute(session, portal, rows)
        case frontend.Close(kind, name):
            return _close(session, kind, name)
        case frontend.Flush():
            return session, [FlushNow()]
        case frontend.Unsupported(feature):
            raise PgError("0A000", f"{feature} is not supported")
        case _:
            raise PgError("08P01", "a password is not expected now")


def failed(session: Session, error: Exception, sql: str = "", offset: int = 0, *, extended: bool) -> Step:
    """Return the session after an error, and its message."""
    message = Send(backend.error(error_fields(error, sql, offset)))
    status: Status = "E" if session.status == "T" else session.status
    return replace(session, status=status, skipping=extended), [message]


def described(session: Session, name: str, types: Sequence[int]) -> Session:
    """Return the session with the types of a prepared statement's parameters, as sent to the client."""
    prepared_statement = session.prepared.get(name)
    if prepared_statement is None:
        return session
    return replace(
        session, prepared={**session.prepared, name: replace(prepared_statement, types=tuple(types))}
    )


def _synced(session: Session) -> Step:
    actions: list[Action] = []
    if session.status == "I":
        session, actions = _without(session, _not_held(session))
    return replace(session, skipping=False), [*actions, Send(backend.ready(session.status)), FlushNow()]


def _not_held(session: Session) -> list[str]:
    return [name for name, portal in session.portals.items() if not portal.hold]


def _without(session: Session, names: Sequence[str]) -> Step:
    known = tuple(name for name in names if name in session.portals)
    if not known:
        return session, []
    left = {name: portal for name, portal in session.portals.items() if name not in known}
    return replace(session, portals=left), [DropPortals(known)]


# ---- the extended protocol


def _parse(session: Session, name: str, sql: str, types: tuple[int, ...]) -> Step:
    found = statements_of(sql)
    if len(found) > 1:
        raise PgError("42601", "cannot insert multiple commands into a prepared statement")
    if name and name in session.prepared:
        raise PgError("42P05", f'prepared statement "{name[:63]}" already exists')
    if len(session.prepared) >= _MOST_PREPARED:
        raise PgError("54000", f"{_MOST_PREPARED} prepared statements", "close some: DEALLOCATE ALL")
    statement = found[0] if found else None
    _may(session, statement)
    prepared = {**session.prepared, name: PreparedStatement(statement, types)}
    return replace(session, prepared=prepared), [Send(backend.PARSED)]


def _prepared(session: Session, name: str) -> PreparedStatement:
    prepared_statement = session.prepared.get(name)
    if prepared_statement is None:
        raise PgError("26000", f'prepared statement "{name[:63]}" does not exist')
    return prepared_statement


def _bind(session: Session, message: frontend.Bind) -> Step:
    prepared = _prepared(session, message.statement)
    _may(session, prepared.statement)
    if len(message.formats) not in (0, 1, len(message.values)):
        raise PgError("08P01", f"{len(message.formats)} formats for {len(message.values)} parameters")
    if message.portal and message.portal in session.portals:
        raise PgError("42P03", f'cursor "{message.portal[:63]}" already exists')
    session, actions = _without(session, [message.portal])
    session = _with_portal(session, message.portal, Portal(prepared.statement))
    if isinstance(prepared.statement, SelectStatement):
        actions = [
            *actions,
            OpenPortal(
                *(message.portal, prepared.statement, prepared.types, message.formats),
                *(message.values, message.result_formats),
            ),
        ]
    return session, [*actions, Send(backend.BOUND)]


def _with_portal(session: Session, name: str, portal: Portal) -> Session:
    if len(session.portals) >= _MOST_PORTALS:
        raise PgError("54000", f"{_MOST_PORTALS} open cursors", "close some")
    return replace(session, portals={**session.portals, name: portal})


def _portal(session: Session, name: str) -> Portal:
    portal = session.portals.get(name)
    if portal is None:
        raise PgError("34000", f'cursor "{name[:63]}" does not exist')
    return portal


def _portal_description(session: Session, name: str) -> Action:
    statement = _portal(session, name).statement
    if isinstance(statement, SelectStatement):
        return DescribePortal(name)
    if isinstance(statement, Fetch) and not statement.move:
        _portal(session, statement.cursor)
        return DescribePortal(statement.cursor)
    if isinstance(statement, Show):
        return Send(backend.row_description(_shown_fields(statement)))
    return Send(backend.NO_DATA)


def _execute(session: Session, name: str, rows: int) -> Step:
    statement = _portal(session, name).statement
    _may(session, statement)
    if statement is None:
        return session, [Send(backend.EMPTY_QUERY)]
    if isinstance(statement, SelectStatement):
        return session, [SendRows(name, max(0, rows), suspends=rows > 0)]
    return on_statement(session, statement, described=False)


def _close(session: Session, kind: str, name: str) -> Step:
    if kind == "S":
        left = {each: kept for each, kept in session.prepared.items() if each != name}
        return replace(session, prepared=left), [Send(backend.CLOSED)]
    session, actions = _without(session, [name])
    return session, [*actions, Send(backend.CLOSED)]


# ---- statements


def _may(session: Session, statement: Statement | None) -> None:
    """Raise PgError in a failed transaction, which only its end leaves."""
    if session.status == "E" and not isinstance(statement, Transaction | None):
        raise PgError(
            "25P02",
            "current transaction is aborted, commands ignored until end of transaction block",
            "ROLLBACK",
        )


def on_statement(session: Session, statement: Statement, *, described: bool = True) -> Step:
    """Return the session after a statement, and what to do. Raises PgError.

    ``described``: columns are sent with the rows, as the simple protocol has it.
    """
    _may(session, statement)
    match statement:
        case RefusedStatement(error):
            raise error
        case SelectStatement():
            session, actions = _without(session, [""])
            session = _with_portal(session, "", Portal(statement))
            return session, [*actions, OpenPortal("", statement), DescribePortal(""), SendRows("", 0)]
        case CopyOut(query, form):
            session, actions = _without(session, [""])
            session = _with_portal(session, "", Portal(query))
            return session, [*actions, OpenPortal("", query, copy=form), SendRows("", 0, "COPY")]
        case Transaction(verb, tag):
            return _transaction(session, verb, tag)
        case Declare(cursor, query, hold):
            if session.status == "I" and not hold:
                raise PgError("25P01", "DECLARE CURSOR can only be used in transaction blocks", "BEGIN first")
            if cursor in session.portals:
                raise PgError("42P03", f'cursor "{cursor[:63]}" already exists')
            session = _with_portal(session, cursor, Portal(query, hold))
            return session, [OpenPortal(cursor, query), Send(backend.complete("DECLARE CURSOR"))]
        case Fetch(cursor, rows, move):
            _portal(session, cursor)
            count = 0 if rows is None else rows
            if rows == 0:
                return session, [Send(backend.complete("MOVE 0" if move else "FETCH 0"))]
            shown: list[Action] = [DescribePortal(cursor)] if described and not move else []
            return session, [*shown, SendRows(cursor, count, "MOVE" if move else "FETCH")]
        case CloseCursor(cursor):
            if cursor is not None:
                _portal(session, cursor)
            session, actions = _without(session, list(session.portals) if cursor is None else [cursor])
            tag = "CLOSE CURSOR ALL" if cursor is None else "CLOSE CURSOR"
            return session, [*actions, Send(backend.complete(tag))]
        case _:
            return _setting(session, statement, described)


def _setting(session: Session, statement: Statement, described: bool) -> Step:
    match statement:
        case SetTo(name, value, tag):
            settings = changed(session.settings, name, value)
            reported: list[Action] = [
                Send(backend.parameter_status(each, settings.get(each.lower(), DEFAULTS[each.lower()])))
                for each in REPORTED
                if settings.get(each.lower()) != session.settings.get(each.lower())
            ]
            return replace(session, settings=settings), [*reported, Send(backend.complete(tag))]
        case Show():
            return session, [Send(_setting_rows(session, statement, described))]
        case Discard(name, tag, everything):
            left = {} if name is None else {k: v for k, v in session.prepared.items() if k != name}
            session = replace(session, prepared=left)
            actions: list[Action] = []
            if everything:
                session, actions = _without(session, list(session.portals))
                session = replace(session, settings=changed(session.settings, None, None))
            return session, [*actions, Send(backend.complete(tag))]
        case Nothing(tag):
            return session, [Send(backend.complete(tag))]
        case _:
            raise PgError("0A000", "this statement is not supported here")


def _transaction(session: Session, verb: str, tag: str) -> Step:
    done = Send(backend.complete(tag))
    if verb == "begin":
        return replace(session, status="T" if session.status == "I" else session.status), [done]
    if verb in ("savepoint", "release", "rollback to"):
        if session.status == "I":
            raise PgError("25P01", f"{verb.upper()} can only be used in transaction blocks", "BEGIN first")
        if session.status == "E" and verb != "rollback to":
            raise PgError("25P02", "current transaction is aborted", "ROLLBACK")
        return replace(session, status="T"), [done]
    if session.status == "E":
        done = Send(backend.complete("ROLLBACK"))
    session, actions = _without(session, _not_held(session))
    return replace(session, status="I"), [*actions, done]


def _shown_fields(show: Show) -> list[backend.Field]:
    names = ("name", "setting") if show.name == "all" else (show.name,)
    return [backend.Field(name, 25) for name in names]


def _setting_rows(session: Session, show: Show, described: bool) -> bytes:
    rows = (
        [(name, value_of(session.settings, name)) for name in DEFAULTS]
        if show.name == "all"
        else [(value_of(session.settings, show.name),)]
    )
    head = backend.row_description(_shown_fields(show)) if described else b""
    body = b"".join(backend.data_row([value.encode() for value in row], len(row)) for row in rows)
    return head + body + backend.complete("SHOW")
