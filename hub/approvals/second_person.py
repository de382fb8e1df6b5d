"""[core] The second person: while access is controlled, the requester does not decide."""

from __future__ import annotations

from collections.abc import Collection

from hub.caller import CALLER


def needs_second() -> bool:
    """Return whether a second person decides: while access is not controlled, nobody is known by name."""
    return CALLER.get() is not None


def is_own(by: str, first: Collection[str], *, second: bool) -> bool:
    """Return whether somebody would decide their own request. ``first``: its requester, and who gains by it.

    >>> is_own("ana", ["ana"], second=True), is_own("ben", ["ana"], second=True)
    (True, False)
    """
    return second and by in first
