"""[core] Version of a key: the position after its newest event. ``none`` without an event."""

from __future__ import annotations

from dataclasses import dataclass

from hub.errors import CallerError, Conflict
from hub.record import Positions, TopicPartition

NONE = "none"
HEADER = "Expected-Version"
CONFLICT = "HUB-1931"


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """Newest event of a key: the offset after it. ``is_deleted``: it is a tombstone."""

    place: TopicPartition
    after: int
    is_deleted: bool = False

    def __str__(self) -> str:
        return f"{self.place.topic}:{self.place.partition}:{self.after}"


class ExpectedVersionConflict(Conflict):
    """The key has another version than the expected one; nothing was written."""

    code = CONFLICT


def expected_version(topic: str, text: str) -> KeyVersion | None:
    """Parse the header of a request; None: no event of the key is expected. Raises CallerError.

    >>> str(expected_version("shop.orders", "shop.orders:2:18")), expected_version("shop.orders", "none")
    ('shop.orders:2:18', None)
    """
    if text.strip().lower() == NONE:
        return None
    try:
        ((place, after),) = Positions.parse(text)
    except (CallerError, ValueError):
        raise CallerError(
            f'{HEADER} "{text[:80]}" is not a version',
            hint="`none`, or the position of the key's newest event, such as shop.orders:2:18",
            code="HUB-1347",
        ) from None
    if place.topic != topic:
        raise CallerError(
            f'{HEADER} "{text[:80]}" is of topic "{place.topic}", the event of "{topic}"',
            hint="name the version of the key in this topic",
            code="HUB-1347",
        )
    return KeyVersion(place, after)


def is_expected(expected: KeyVersion | None, actual: KeyVersion | None) -> bool:
    """Return whether an event may follow. A deleted key has its tombstone's version, and ``none``."""
    if expected is None:
        return actual is None or actual.is_deleted
    return actual is not None and (actual.place, actual.after) == (expected.place, expected.after)


def conflict(key: str, expected: KeyVersion | None, actual: KeyVersion | None) -> ExpectedVersionConflict:
    """Return the error for a key whose version is not the expected one."""
    wanted, found = (NONE if each is None else str(each) for each in (expected, actual))
    error = ExpectedVersionConflict(
        f'key "{key[:80]}": its version is {found}, not {wanted}; nothing was written',
        hint="read the key's events again, decide again, and send the new version",
    )
    error.details = {"version": found}
    return error


def require_one(records: int) -> None:
    """Raise CallerError unless a request with an expected version has one event."""
    if records != 1:
        raise CallerError(
            f"{HEADER}: one event is needed, the request has {records}",
            hint="send each event with the version that the one before returned",
            code="HUB-1347",
        )
