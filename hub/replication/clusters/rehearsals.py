"""[core] Records of rehearsals in the control topic of a mirror's target: one that runs, and the last
results.

::

    rehearsal|link|started_at_ms      running ─┬▶ passed        a failover could be carried out
                                               ├▶ failed        it would be refused, or topics would lack
                                               └▶ interrupted   no result: its process ended, or a cluster did

The record of a rehearsal is overwritten by its result. ``KEPT`` complete ones of a mirror stay, and the last
one without a result; all others are deleted with the next record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from hub.formats.fields import known_fields
from hub.record import NewRecord
from hub.replication.maps.checkpoint import CONTROL_TOPIC

KEPT = 10
COMPLETE = ("passed", "failed")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One rehearsal of a failover. Times are epoch milliseconds.

    ``by``: the worker, or the person who asked for it (``scheduled`` False). ``until_ms``: when one that runs
    counts as interrupted. ``reason``: why a failover would fail, or why there is no result. ``topics``,
    ``partitions``, ``groups``: what the plan covers. ``lost`` and ``redelivered`` None: unknown, with bounds.
    ``lag_s``: how old the oldest record was that the target lacked; None: unknown. ``source_heard_at_ms``: of
    a source that did not answer.
    """

    link: str
    started_at_ms: int
    state: str
    by: str
    scheduled: bool
    until_ms: int
    reason: str = ""
    took_ms: int | None = None
    steps: int = 0
    topics: int = 0
    partitions: int = 0
    groups: int = 0
    lost: int | None = None
    lost_at_least: int | None = None
    redelivered: int | None = None
    redelivered_at_least: int | None = None
    redelivered_at_most: int | None = None
    lag_s: float | None = None
    source_heard_at_ms: int | None = None

    @property
    def complete(self) -> bool:
        return self.state in COMPLETE

    def is_over(self, now_ms: int) -> bool:
        """Return whether it has no result and gets none: it was interrupted, or it is past its limit."""
        return self.state == "interrupted" or (self.state == "running" and now_ms > self.until_ms)

    @property
    def key(self) -> bytes:
        return f"rehearsal|{self.link}|{self.started_at_ms}".encode()

    def record(self) -> NewRecord:
        body = {name: value for name, value in asdict(self).items() if name not in ("link", "started_at_ms")}
        return NewRecord(CONTROL_TOPIC, self.key, orjson.dumps(body))

    def forgotten(self) -> NewRecord:
        return NewRecord(CONTROL_TOPIC, self.key, None)


Known = Mapping[tuple[str, int], Rehearsal]
"""Rehearsals by link and start."""


def place_of(rest: str) -> tuple[str, int]:
    """Parse a record's key without its kind. Raises ValueError."""
    link, _, started = rest.rpartition("|")
    return link, int(started)


def rehearsal_of(rest: str, body: Mapping[str, Any]) -> Rehearsal:
    """Parse a record. Raises ValueError, TypeError."""
    link, started_at_ms = place_of(rest)
    return known_fields(Rehearsal, body, link=link, started_at_ms=started_at_ms)


def of_link(known: Known, link: str) -> tuple[Rehearsal, ...]:
    """Return the rehearsals of a link, the newest first."""
    own = (each for (name, _), each in known.items() if name == link)
    return tuple(sorted(own, key=lambda each: -each.started_at_ms))


def surplus(rehearsals: Iterable[Rehearsal], now_ms: int) -> tuple[Rehearsal, ...]:
    """Return those of one link that are deleted: all but ``KEPT`` complete ones and the last interrupted one.
    One that runs is never deleted.
    """
    newest = sorted(rehearsals, key=lambda each: -each.started_at_ms)
    complete = [each for each in newest if each.complete]
    over = [each for each in newest if each.is_over(now_ms)]
    return (*complete[KEPT:], *over[1:])
