"""[core] The lease of a home: the order of the log decides which materializer computes its views.

Every materializer writes records ``materializer:<home>:<run>`` to ``_hub.progress``. A record with a higher
epoch takes the lease; one with the same epoch holds it only if it is of the same run, so of two that take it
at once the first in the log has it. Everybody who reads the log comes to the same answer.

Compaction keeps one record of each run, so the claim of a process that lost may outlive the claim that won.
The holder therefore goes to the next epoch when it reads such a claim.

A holder that was stopped and wakes up reads the log before it writes. What it computes until then changes
nothing: batches have numbers in a checkpoint that both share, and rows have versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import orjson

from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord

PREFIX = "materializer:"
LeaseClaim = Literal["held", "released", "waiting"]
_CLAIMS: tuple[LeaseClaim, ...] = ("held", "released", "waiting")


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A record of one run of the materializer about the lease of ``home``.

    ``epoch``: number of takeovers so far; of a waiting one, that it knows of. ``place``: its process
    (place.py).
    """

    home: str
    run: str
    epoch: int
    claim: LeaseClaim
    place: str
    at_ms: int

    def record(self) -> NewRecord:
        body = {"epoch": self.epoch, "claim": self.claim, "place": self.place, "at_ms": self.at_ms}
        return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{self.home}:{self.run}".encode(), orjson.dumps(body))


def erased(home: str, run: str) -> NewRecord:
    """Build the record after which compaction forgets a run."""
    return NewRecord(PROGRESS_TOPIC, f"{PREFIX}{home}:{run}".encode(), None)


def lease_record_of(key: str, value: bytes) -> LeaseRecord:
    """Read a record with a key that begins with PREFIX. Raises ValueError, TypeError or KeyError."""
    home, _, run = key.removeprefix(PREFIX).partition(":")
    body: Mapping[str, Any] = orjson.loads(value)
    claim = body["claim"]
    if claim not in _CLAIMS:
        raise ValueError(f"unknown claim {claim!r}")
    return LeaseRecord(home, run, int(body["epoch"]), claim, str(body["place"]), int(body["at_ms"]))


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease after some records. ``run``: who has it, "" if nobody had it yet.

    ``released``: given back in order. ``contested``: another run claimed the same epoch, later in the log.
    """

    epoch: int = 0
    run: str = ""
    released: bool = False
    contested: bool = False
    place: str = ""

    def after(self, record: LeaseRecord) -> Lease:
        if record.claim == "waiting":
            return self
        if record.epoch > self.epoch or (record.epoch == self.epoch and record.run == self.run):
            return Lease(record.epoch, record.run, record.claim == "released", False, record.place)
        if record.epoch == self.epoch and record.claim == "held":
            return replace(self, contested=True)
        return self


class LeaseStep(Enum):
    """The next step of a process. CLAIM: write a claim of the next epoch. RENEW: write a claim of the same
    epoch. LOST: another process has taken over."""

    CLAIM = "claim"
    RENEW = "renew"
    WAIT = "wait"
    LOST = "lost"


def next_step(
    lease: Lease, run: str, *, had_it: bool, silent_s: float, limit_s: float, gone: bool
) -> LeaseStep:
    """Decide from the lease as the log has it now.

    ``had_it``: this run held it before. ``silent_s``: for how long Kafka answered and the holder wrote
    nothing. ``gone``: the holder's process is known to have ended.
    """
    if lease.run == run and not lease.released:
        return LeaseStep.CLAIM if lease.contested else LeaseStep.RENEW
    if had_it:
        return LeaseStep.LOST
    if not lease.run or lease.released or gone or silent_s >= limit_s:
        return LeaseStep.CLAIM
    return LeaseStep.WAIT
