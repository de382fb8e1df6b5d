"""[core] The error tree. An error shows whose fault it is, whether a retry may help, and the way out.

::

    HubError                    code HUB-0000
    ├── CallerError             the request or the configuration is wrong; a retry fails too
    │   ├── ConfigError         a file, setting or flag              HUB-1xxx
    │   ├── NotFound            the named thing does not exist       HUB-14xx
    │   ├── Gone                it is no longer kept                 HUB-14xx
    │   └── Conflict            it exists, differs or is incompatible HUB-19xx
    ├── PeerError               Kafka, a database, another server    HUB-3xxx   retriable
    └── HubFault                a broken promise of the hub itself   HUB-5xxx

Edges translate: the HTTP app to status codes, the command line to one line and an exit code.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Hint = TypeVar("Hint", bound=str | None)

# Longest name to compare with known ones: the time grows with its square.
_LONGEST_NAME = 250


class HubError(Exception):
    """Base of all errors. The message names the object by kind and name, and what failed.

    ``code`` is stable and documented; ``hint`` is one sentence with the way out; ``retriable``: whether the
    same call may succeed later; ``details``: values for programs, besides the message.
    """

    code = "HUB-0000"
    retriable = False
    details: Mapping[str, str] = {}

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message}\nHint: {self.hint}" if self.hint else self.message


class CallerError(HubError):
    """The request or the configuration is wrong."""

    code = "HUB-1000"


class ConfigError(CallerError):
    """A file, setting or flag is wrong; ``where`` is ``file:line:column`` if known."""

    code = "HUB-1100"

    def __init__(
        self, message: str, *, hint: str | None = None, code: str | None = None, where: str | None = None
    ) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint=hint, code=code)
        self.where = where


class NotFound(CallerError):
    """The named thing does not exist."""

    code = "HUB-1400"


class Gone(CallerError):
    """The named thing may have existed and is not kept now."""

    code = "HUB-1491"


class Conflict(CallerError):
    """The object exists already, differs, or is incompatible with the existing one."""

    code = "HUB-1900"


class PeerError(HubError):
    """Kafka, a database or another server did not do its part (now)."""

    code = "HUB-3000"
    retriable = True


class HubFault(HubError):
    """A defect of the hub itself; a person should look at it."""

    code = "HUB-5000"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, for "did you mean" hints; None when no name is similar."""
    matches = difflib.get_close_matches(name[:_LONGEST_NAME], list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str], otherwise: Hint) -> str | Hint:
    """Return the hint with the known name most like ``name``; ``otherwise`` when no name is similar.

    >>> did_you_mean("orderz", ["orders", "people"], "hub view ls lists them")
    'did you mean "orders"?'
    """
    guess = nearest(name, known)
    return f'did you mean "{guess}"?' if guess else otherwise
