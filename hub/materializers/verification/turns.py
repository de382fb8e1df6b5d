"""[core] Views in stores that are verified in turn, and the estimate of a first read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from hub.materializers.stores.store import ViewStore
from hub.materializers.verification.verification_status import (
    REPORT_S,
    SOON_S,
    VerificationState,
    VerificationStatus,
)


@dataclass(frozen=True, slots=True)
class VerifiableView:
    """A view in a store as its readers see it.

    ``store`` is None while the store is closed; ``why``: the reason why the view cannot be verified now.
    """

    view: str
    table: str
    changelog: str
    store: ViewStore | None
    why: str = ""


class CheckedStoreThread(Protocol):
    """Thread of one store."""

    @property
    def name(self) -> str: ...

    def provable(self) -> tuple[Sequence[VerifiableView], str]:
        """Return the store's views, and why the store does not answer ("" while it does)."""


@dataclass
class FirstRead:
    """First read of a changelog: when it began, the records to read then, and the fewest left since."""

    began_s: float
    first: int
    left: int
    needs_s: float = 0.0

    def went_on(self, left: int, now_s: float) -> None:
        """Update the estimated duration. Without progress the estimate stays as it is."""
        if left < self.left:
            self.left = left
            # Hashing the store's rows takes about as much work again.
            self.needs_s = 2 * (now_s - self.began_s) * self.first / (self.first - left)


# The states of a store's views, the time of the last comparison, and of the report (monotonic).
LastReport = tuple[tuple[tuple[str, VerificationState], ...], int, float]


@dataclass
class ViewTurn:
    """One view in one store: its status, and the time of the next look."""

    proof: VerificationStatus
    next_s: float = 0.0
    cost_s: float = 0.0
    away: bool = False
    reading: FirstRead | None = None

    def reads_on(self, left: int) -> None:
        """Note that the first read of the changelog has ``left`` records to go."""
        now_s = time.monotonic()
        if self.reading is None or left > self.reading.first:
            self.reading = FirstRead(now_s, left, left)
        self.reading.went_on(left, now_s)


def due_reports(
    stores: Iterable[str],
    turns: Mapping[tuple[str, str], ViewTurn],
    reported: Mapping[str, LastReport],
    needs_s: Callable[[ViewTurn], float],
    now_s: float,
) -> list[tuple[str, list[VerificationStatus], LastReport]]:
    """Return (store, statuses, resulting records) of each store that has news."""
    due = []
    for name in stores:
        proofs = [
            replace(turn.proof, needs_s=needs_s(turn))
            for (store, _), turn in sorted(turns.items(), key=lambda each: each[0])
            if store == name
        ]
        if not proofs and name not in reported:
            continue
        states = tuple((each.view, each.state) for each in proofs)
        compared_ms = max((each.compared_ms or 0 for each in proofs), default=0)
        before, known_ms, at_s = reported.get(name, ((), 0, 0.0))
        # A further match can wait: a record holds all views of a store and goes into every store.
        pause_s = REPORT_S if compared_ms == known_ms else SOON_S
        if states != before or now_s - at_s > pause_s:
            due.append((name, proofs, (states, compared_ms, now_s)))
    return due
