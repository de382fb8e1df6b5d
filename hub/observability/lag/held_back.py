"""[core] Records that an open transaction holds back: written, but not readable until it ends.

Readers of committed records end at the last stable offset and seem to have read everything. So each round
also looks at the high watermarks. Records beyond a last stable offset that does not move are held back since
the round that saw it first; a single round proves nothing, because records arrive between its two requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hub.observability.lag.states import LagReading


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Records of a partition that wait for the end of a transaction. ``stable``: the last stable offset;
    ``since_ms``: the first round that saw it there."""

    stable: int
    records: int
    since_ms: int


def held_back(
    before: Mapping[int, HeldBack], ends: Iterable[tuple[int, int, int]], now_ms: int
) -> dict[int, HeldBack]:
    """Return the held partitions after a round. ``ends``: (partition, last stable offset, high watermark),
    the latter read later."""
    found = {}
    for partition, stable, watermark in ends:
        if watermark <= stable:
            continue
        known = before.get(partition)
        since_ms = known.since_ms if known is not None and known.stable == stable else now_ms
        found[partition] = HeldBack(stable, watermark - stable, min(since_ms, now_ms))
    return found


def with_held_back(
    reading: LagReading, held: Mapping[int, HeldBack], partitions: Iterable[int], now_ms: int
) -> LagReading:
    """Return the reading with the records that wait longest among the reader's partitions."""
    mine = [(held[each].since_ms, each) for each in partitions if each in held]
    if not mine or reading.past:  # who is past the last stable offset reads uncommitted records
        return reading
    since_ms, partition = min(mine)
    return replace(
        reading,
        held=held[partition].records,
        held_s=(now_ms - since_ms) / 1000,
        held_partition=partition,
    )
