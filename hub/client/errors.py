"""[core] Errors of the client's calls, and their translation from the server's answers.

::

    CallerError
    ├── NotFound       the view, row or topic does not exist
    ├── Gone           the view does not keep rows of that time
    ├── Conflict       an idempotency key that was used with another request
    │   └── VersionConflict   the key of an event has another version than the expected one
    └── Refused        the request is understood and wrong; ``reasons`` say which record and which field
    PeerError
    ├── NotCovered     the view does not include the write yet; ``missing`` says what it lacks
    └── Unreachable    the hub did not answer in time, or says that it cannot now
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.errors import CallerError, Conflict, Gone, HubError, NotFound, PeerError
from hub.record import Positions

_FIELD = re.compile(r"((?:key|value|headers)[^\s:]*): ")
_NOT_COVERED = "HUB-3050"


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason for refusing one record. ``record`` counts from 0; ``field`` is a path such as
    ``value.items[1].price``.
    """

    record: int
    message: str
    field: str | None = None
    hint: str | None = None
    code: str | None = None


class Refused(CallerError):
    """The hub refuses the request; a retry is refused too. ``written``: the token of the call's records that
    were written all the same.
    """

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        reasons: Sequence[Reason] = (),
        written: Positions | None = None,
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.reasons = tuple(reasons)
        self.written = written or Positions()


class VersionConflict(Conflict):
    """The key has another version than the expected one; nothing was written. ``version``: its version."""

    code = "HUB-1931"

    def __init__(self, message: str, version: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.version = version


class NotCovered(PeerError):
    """The view does not include the write before the timeout. ``position``: the positions that it covers;
    ``missing``: the part of the token that it does not cover.
    """

    code = _NOT_COVERED

    def __init__(
        self, message: str, position: Positions, missing: Positions, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.position = position
        self.missing = missing

    @property
    def lag_records(self) -> int:
        """Return the number of records that the view still has to process."""
        return sum(offset - self.position.get(tp) for tp, offset in self.missing)


class Unreachable(PeerError):
    """The server did not answer in time, or is temporarily unavailable. Reads changed nothing; a produce call
    may be repeated with the same ``idempotency_key``, and writes nothing twice.
    """

    code = "HUB-3090"


MAY_HAVE_WRITTEN = frozenset({"HUB-3013", "HUB-3043", Unreachable.code})
"""Codes of temporary failures of a write that may be in the log all the same. With any other code the hub has
written nothing; the answer of a proxy has no code, and gets the class's."""


class ConnectionBroken(Exception):
    """A connection failed. Raised by the transport; never leaves the client. ``sent``: the server may have
    the request.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


def error_body(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of an error's body; {} if the body is not one."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def error_of(status: int, body: bytes) -> HubError:
    """Convert an answer of the server to an error."""
    answer = error_body(body)
    message, hint = str(answer.get("message") or f"the hub answers HTTP {status}"), answer.get("hint")
    # The gateway's errors have the shape of REST Proxy's: a number as error_code, and the hub's code in
    # `code`.
    named = answer.get("code") or answer.get("error_code")
    code = named if isinstance(named, str) else None
    if status == 404:
        return NotFound(message, hint=hint, code=code)
    if status == 410:
        return Gone(message, hint=hint, code=code)
    if status == 409 and code == VersionConflict.code:
        return VersionConflict(message, str(answer.get("version")), hint)
    if status == 409:
        return Conflict(message, hint=hint, code=code)
    if code == _NOT_COVERED:
        position, missing = (str(answer.get(name) or "") for name in ("position", "missing"))
        return NotCovered(message, Positions.parse(position), Positions.parse(missing), hint)
    if status >= 500 or status == 429:
        return Unreachable(message, hint=hint, code=code)
    return Refused(message, hint=hint, code=code, reasons=[reason_of(0, answer)] if answer else ())


def reason_of(record: int, line: Mapping[str, Any]) -> Reason:
    """Why a record was refused, of its line in an answer."""
    message = str(line.get("message"))
    found = _FIELD.search(message)
    code = line.get("code") or line.get("error_code")
    return Reason(
        record, message, found and found.group(1), line.get("hint"), None if code is None else str(code)
    )
