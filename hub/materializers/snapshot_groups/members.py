"""[core] Ports between a snapshot group and the running queries of its views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hub.errors import PeerError
from hub.record import Positions


class ReadEnds(Protocol):
    """Control of how far a running query may read."""

    def hold(self, begin: Positions) -> Positions | None:
        """Let no batch begin from now on; a running one finishes. Returns the place after it, at least
        ``begin``.

        None: not possible at this moment. Raises HubError when this Spark cannot be held.
        """

    def until(self, place: Positions) -> None:
        """Let it read up to ``place``, which is not before the result of ``hold``."""

    def free(self) -> None:
        """Let it read everything."""


class Places(Protocol):
    """Places that a member may stop at, and no others (source_transactions/cuts.py)."""

    def first(self, held: Positions) -> Positions | None:
        """Return the first place, not before ``held``; None: not known yet."""

    def read_ahead(self, place: Positions) -> None:
        """Look for places past ``place``."""

    def following(self, place: Positions) -> Positions:
        """Return the newest known place past ``place``, or ``place``."""

    @property
    def at_once(self) -> int:
        """The most events from one place to the next; beyond that the way is taken in parts."""

    def waiting(self) -> str | None:
        """Return what the next place waits for, and since when; None: nothing."""

    def close(self) -> None: ...


@dataclass
class Member:
    """A view's running query as its group sees it.

    The view's thread sets ``reached`` after each commit, and ``open`` to False before another query of the
    view can begin. ``places``: those that it may stop at; None: any. Only the group's thread uses them.
    """

    table: str
    generation: int
    topics: tuple[str, ...]
    changelog: str
    ends: ReadEnds
    reached: Positions
    open: bool = True
    views: tuple[str, ...] = ()  # views of which it reads the changelog
    places: Places | None = None


class RunningVersion(Protocol):
    """A version of a view and the state of its thread.

    ``unheld``: why its query cannot be held. ``reported``: its state, and the reason.
    """

    @property
    def table(self) -> str: ...

    @property
    def group(self) -> str | None: ...

    @property
    def member(self) -> Member | None: ...

    @property
    def unheld(self) -> str | None: ...

    @property
    def reported(self) -> tuple[str, str | None]: ...

    @property
    def served(self) -> bool: ...


def check_members(members: Sequence[Member]) -> None:
    """Raise PeerError (HUB-3061) for members that cannot come to one place."""
    written = {each.changelog for each in members}
    for each in members:
        for topic in each.views:
            if topic not in written:
                raise PeerError(
                    f'view "{each.table}" reads {topic}, which no view of its group writes',
                    hint="write the same `cut` in both views' files; while another version of one is built, "
                    "it passes by itself",
                    code="HUB-3061",
                )
    left = list(members)
    while left:
        free = [
            each
            for each in left
            if not any(other.changelog in each.topics for other in left if other is not each)
        ]
        if not free:
            names = ", ".join(each.table for each in left)
            raise PeerError(
                f"views {names} read one another in a circle", hint="no place has both", code="HUB-3061"
            )
        left = [each for each in left if each not in free]
