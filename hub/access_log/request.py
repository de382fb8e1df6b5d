"""[core] Facts of the current request that only deeper code knows; the guard makes entries of them.

``NOTES`` is None for the hub itself, and while there is no access log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from hub.access_log.actions import LoggedAction


@dataclass(slots=True)
class RequestNotes:
    """Notes of one request. ``subject``: the user who signs in. ``sql``: statements without literals, and
    their tables. ``masked``: kind and name of an object, and the shown part of it. ``change``: logs a change
    before it happens.
    """

    subject: str = ""
    sql: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    masked: set[tuple[str, str, str]] = field(default_factory=set)
    change: Callable[[LoggedAction, str, str], Awaitable[None]] | None = None


NOTES: ContextVar[RequestNotes | None] = ContextVar("access_notes", default=None)


def note_subject(name: str) -> None:
    """Note who signs in."""
    if (notes := NOTES.get()) is not None:
        notes.subject = name


def note_sql(statement: Callable[[], str], tables: Sequence[str]) -> None:
    """Note a SQL statement. ``statement`` returns its text without literals, and is called only if there is a
    log."""
    if (notes := NOTES.get()) is not None:
        notes.sql.append((statement(), tuple(tables)))


async def log_change(action: LoggedAction, kind: str, name: str) -> None:
    """Log a change that the route does not show, before it happens. Raises PeerError if it cannot be logged;
    the change must not happen then."""
    notes = NOTES.get()
    if notes is not None and notes.change is not None:
        await notes.change(action, kind, name)
