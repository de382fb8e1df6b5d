"""[core] Errors of the hub as fields of an error message: SQLSTATE, message, hint, position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hub.caller import Forbidden, TooMany, Unauthenticated
from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.materializers.queries.parser import SqlError

# By code of the error (tests/reference/errors.yaml); Postgres' Appendix A has the states.
_STATES: Final[Mapping[str, str]] = {
    "HUB-1441": "54001",  # statement too complex
    "HUB-1442": "42601",  # syntax error
    "HUB-1443": "42601",
    "HUB-1444": "42P01",  # undefined table
    "HUB-1445": "42804",  # datatype mismatch
    "HUB-1446": "42883",  # undefined function
    "HUB-1447": "22023",  # invalid parameter value
    "HUB-1448": "54000",  # program limit exceeded
    "HUB-1449": "57014",
    "HUB-1450": "22000",
    "HUB-1451": "54000",
    "HUB-1452": "54000",
    "HUB-1471": "42703",  # undefined column
    "HUB-1472": "57014",  # query canceled: out of time
    "HUB-1730": "53400",  # configuration limit exceeded
    "HUB-3066": "53300",  # too many connections
}
_BY_CLASS: Final[tuple[tuple[type[HubError], str], ...]] = (
    (Unauthenticated, "28P01"),
    (Forbidden, "42501"),
    (TooMany, "53300"),
    (NotFound, "42704"),
    (SqlError, "42601"),
    (CallerError, "22023"),
    (PeerError, "57P03"),
)


class PgError(Exception):
    """An error of this room alone, with its SQLSTATE: a protocol's state, a name that does not exist.

    ``position``: of a character of the statement, from 1.
    """

    def __init__(
        self, state: str, message: str, hint: str | None = None, *, position: int | None = None
    ) -> None:
        super().__init__(message)
        self.state, self.message, self.hint, self.position = state, message, hint, position


def state_of(error: HubError) -> str:
    """Return the SQLSTATE of an error.

    >>> state_of(SqlError("no view", code="HUB-1444", line=1, column=8))
    '42P01'
    """
    if error.code in _STATES:
        return _STATES[error.code]
    return next((state for kind, state in _BY_CLASS if isinstance(error, kind)), "XX000")


def error_fields(error: Exception, sql: str = "", offset: int = 0, *, fatal: bool = False) -> dict[str, str]:
    """Return the fields of the message for an error. ``sql`` begins at ``offset`` of the client's text."""
    severity = "FATAL" if fatal else "ERROR"
    fields = {"S": severity, "V": severity}
    position: int | None = None
    if isinstance(error, PgError):
        fields |= {"C": error.state, "M": error.message}
        hint, position = error.hint, error.position
    elif isinstance(error, HubError):
        fields |= {"C": state_of(error), "M": _without_place(error)}
        hint = error.hint
        if isinstance(error, SqlError) and error.line is not None and error.column is not None:
            position = character_of(sql, error.line, error.column) + offset
        fields["D"] = error.code
    else:
        fields |= {"C": "XX000", "M": "the hub failed to answer; its log has the reason"}
        hint = None
    if hint:
        fields["H"] = hint
    if position is not None:
        fields["P"] = str(position)
    return fields


def catching_up_fields(views: Sequence[str]) -> dict[str, str]:
    """Return the fields of the warning that these views still read a backlog of their topics."""
    text = f"{', '.join(views)}: a backlog of its topics is still read, rows of later events are missing"
    return _warning(text, "SELECT again later; hub lag shows how far it is")


def missing_fields(missing: str) -> dict[str, str]:
    """Return the fields of the warning that neither archive nor log has some offsets."""
    return _warning(f"retention removed offsets that no archive has: {missing[:500]}", "hub lake ls")


def _warning(text: str, hint: str) -> dict[str, str]:
    return {"S": "WARNING", "V": "WARNING", "C": "01000", "M": text, "H": hint}


def _without_place(error: HubError) -> str:
    """Return the message without its line and column, which clients show from the position."""
    if isinstance(error, SqlError) and error.line is not None:
        return error.message.removeprefix(f"line {error.line}, column {error.column}: ")
    return error.message


def character_of(sql: str, line: int, column: int) -> int:
    """Return the position of a place, in characters from 1.

    >>> character_of("SELECT a\\nFROM b", 2, 6)
    15
    """
    start = 0
    for _ in range(line - 1):
        start = sql.find("\n", start) + 1
    return start + column
