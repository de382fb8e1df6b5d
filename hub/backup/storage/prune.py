"""[shell] Delete old runs, and the segments that no remaining run has."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hub.backup.storage.vault import Vault
from hub.errors import CallerError, Conflict

_ABANDONED_MS = 600_000


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """``runs``: numbers of runs to delete. ``segments``: names of objects that only those have, or no run."""

    runs: tuple[int, ...]
    segments: tuple[str, ...]


def plan_prune(vault: Vault, keep: int) -> PrunePlan:
    """Return what to delete so that the newest ``keep`` runs remain. Raises Conflict (HUB-1804) while a run
    is in progress.
    """
    if keep < 1:
        raise CallerError("a backup keeps at least its newest run", hint="write --keep 1 or more")
    names = vault.store.names("segments")
    numbers = vault.numbers()
    unfinished = vault.unfinished()  # after the list: a run writes its progress before its first segment
    if unfinished is not None and time.time() * 1000 - unfinished.ended_at_ms < _ABANDONED_MS:
        raise Conflict(
            f'a run writes to the backup "{vault.store.place}", or was killed within the last ten minutes',
            hint="wait until it has ended, or repeat hub backup run first",
            code="HUB-1804",
        )
    manifests = [vault.run(number) for number in numbers[-keep:]]
    known = {
        segment.name
        for run in (*manifests, *([unfinished] if unfinished is not None else []))
        for _, segment in run.segments()
    }
    return PrunePlan(tuple(numbers[:-keep]), tuple(name for name in names if name not in known))


def prune(vault: Vault, plan: PrunePlan) -> None:
    """Carry the plan out; runs first, so that no run ever lacks a segment. Idempotent."""
    for number in plan.runs:
        vault.store.delete(f"manifests/{number:06d}")
    for name in plan.segments:
        vault.store.delete(name)
