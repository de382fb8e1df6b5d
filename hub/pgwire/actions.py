"""[core] Actions that a session decides.
The connection carries actions out in order; an error of one drops the rest."""

from __future__ import annotations

from dataclasses import dataclass

from hub.pgwire.statements import CopyForm, SelectStatement, Statement


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """``statement`` None: an empty text. ``types``: OIDs of its parameters, 0 where none is declared."""

    statement: Statement | None
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class RunScript:
    """Run each statement by ``on_statement``, up to the first error; then send that the session is ready."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class DescribePrepared:
    """Send the types of parameters and columns; keep the parameters' (``described``)."""

    name: str
    prepared: PreparedStatement


@dataclass(frozen=True, slots=True)
class OpenPortal:
    """Begin a query. ``types``, ``formats``, ``values`` are its parameters'. ``copy``: as a COPY."""

    name: str
    query: SelectStatement
    types: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    values: tuple[bytes | None, ...] = ()
    result_formats: tuple[int, ...] = ()
    copy: CopyForm | None = None


@dataclass(frozen=True, slots=True)
class DescribePortal:
    name: str


@dataclass(frozen=True, slots=True)
class SendRows:
    """Send up to ``rows`` rows (0: all that are left). ``command``: SELECT, FETCH, MOVE or COPY, of the tag.

    ``suspends``: rows may be left, for another Execute.
    """

    name: str
    rows: int
    command: str = "SELECT"
    suspends: bool = False


@dataclass(frozen=True, slots=True)
class DropPortals:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FlushNow:
    pass


@dataclass(frozen=True, slots=True)
class EndSession:
    pass


Action = (
    Send
    | RunScript
    | DescribePrepared
    | OpenPortal
    | DescribePortal
    | SendRows
    | DropPortals
    | FlushNow
    | EndSession
)
