"""[core] Long links: how much is requested, sent and committed at once when a round trip takes long.

A link carries at most what is under way a round trip. At 100 ms a fetch of 1 MB is 10 MB/s, and a transaction
that waits for three round trips after each 100 ms of writing uses a quarter of the link. So sizes follow the
round trip that was measured; on a short link all of this changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hub.kafka.protocol.broker_client import LONG_S

LEAST_WINDOW_BYTES: Final = 1 << 20
_ROUND_TRIPS_PER_TRANSACTION: Final = 6
_SLOW_S: Final = 0.25
_SETTLE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class SendWindow:
    """Limit of unacknowledged bytes. ``changed_at_s``: requests sent before it had another limit."""

    bytes: int
    changed_at_s: float = 0.0

    def acknowledged(
        self, most: int, in_flight: int, sent_at_s: float, now_s: float, round_trip_s: float
    ) -> SendWindow:
        """Adapt to the answer to a request that was sent with ``in_flight`` bytes under way, itself included.

        The window doubles, up to ``most``, while it is used and answers come soon. On a slow link they come
        late, and a transaction must not outlast its timeout: half.
        """
        if round_trip_s < LONG_S or sent_at_s < self.changed_at_s:
            return self
        wanted = next_size(self.bytes, in_flight, now_s - sent_at_s - round_trip_s, round_trip_s)
        wanted = max(LEAST_WINDOW_BYTES, min(most, wanted))
        return self if wanted == self.bytes else SendWindow(wanted, now_s)


def next_size(now: int, used: int, took_s: float, round_trip_s: float) -> int:
    """Return the next size of something that was moved over the link: ``used`` of ``now`` bytes, ``took_s``
    beyond the round trip.

    What took less than two round trips left the link idle: the next may be twice as large. What took four and
    a quarter of a second keeps commits and other partitions waiting: half.

    >>> next_size(8, 8, 0.1, 0.1), next_size(8, 2, 0.1, 0.1)
    (16, 8)
    >>> next_size(8, 8, 0.3, 0.1), next_size(8, 8, 0.7, 0.1)
    (8, 4)
    """
    if took_s > 4 * round_trip_s + _SLOW_S:
        return now // 2
    if round_trip_s >= LONG_S and used >= now // 2 and took_s < 2 * round_trip_s:
        return now * 2
    return now


def due_at_s(
    begun_at_s: float,
    last_due_at_s: float,
    interval_s: float,
    round_trip_s: float,
    source_round_trip_s: float = 0.0,
    *,
    behind: bool,
) -> float:
    """Return when an open transaction is to be committed, by its age alone: ``interval_s`` after its begin.

    Over a long link to the target the interval counts from the former commit, which took longer. The first
    answer was requested before that commit and has next to nothing, so the next one is waited for: a round
    trip to the source, and at most ``interval_s``. While the mirror is ``behind`` the waits of a commit must
    be few, not short: it comes later.

    >>> due_at_s(10.0, 9.7, 0.1, 0.1, behind=False), due_at_s(10.0, 9.7, 0.1, 0.1, behind=True)
    (10.02, 10.6)
    >>> due_at_s(10.0, 9.7, 0.1, 0.0, behind=True)
    10.1
    """
    if round_trip_s < LONG_S:
        return begun_at_s + interval_s
    if behind:
        return begun_at_s + max(interval_s, _ROUND_TRIPS_PER_TRANSACTION * round_trip_s)
    return max(begun_at_s + min(source_round_trip_s + _SETTLE_S, interval_s), last_due_at_s + interval_s)


@dataclass(frozen=True, slots=True)
class FetchSizes:
    """Size of the next fetch by broker, in bytes of one partition; ``least`` at first, ``most`` at most."""

    least: int
    most: int
    sizes: Mapping[int, int] = field(default_factory=dict)

    def of(self, node: int) -> int:
        return self.sizes.get(node, self.least)

    def answered(self, node: int, size: int, took_s: float, round_trip_s: float) -> FetchSizes:
        """Adapt to an answer of ``size`` bytes whose first and last byte were ``took_s`` apart."""
        now = self.of(node)
        wanted = max(self.least, min(self.most, next_size(now, size, took_s, round_trip_s)))
        return self if wanted == now else replace(self, sizes={**self.sizes, node: wanted})
