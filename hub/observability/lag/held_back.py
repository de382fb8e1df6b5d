"""[core] Records that an open transaction holds back: written, but not readable until it ends.

Readers of committed records end at the last stable offset and seem to have read everything. So each round
also looks at the high watermarks. Records beyond a last stable offset that does not move are held back since
the round that saw it first; a single round proves nothing, because records arrive between its two requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hub.observability.lag.states import LagReading
from hub.record import TopicPartition


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Records of a partition that wait for the end of a transaction. ``stable``: the last stable offset;
    ``since_ms``: the first round that saw it there."""

    stable: int
    records: int
    since_ms: int


def held_back(
    before: Mapping[TopicPartition, HeldBack],
    stable: Mapping[TopicPartition, int],
    watermarks: Mapping[TopicPartition, int],
    now_ms: int,
) -> dict[TopicPartition, HeldBack]:
    """Return the partitions that hold records back after a round. ``stable``: last stable offsets;
    ``watermarks``: high watermarks, read later."""
    found = {}
    for tp, watermark in watermarks.items():
        if watermark > stable[tp]:
            known = before.get(tp)
            since_ms = known.since_ms if known is not None and known.stable == stable[tp] else now_ms
            found[tp] = HeldBack(stable[tp], watermark - stable[tp], min(since_ms, now_ms))
    return found


def with_held_back(
    reading: LagReading,
    held: Mapping[TopicPartition, HeldBack],
    partitions: Iterable[TopicPartition],
    now_ms: int,
) -> LagReading:
    """Return the reading with the records that wait longest among the reader's partitions."""
    mine = [(held[tp].since_ms, tp) for tp in partitions if tp in held]
    if not mine or reading.past:  # who is past the last stable offset reads uncommitted records
        return reading
    since_ms, tp = min(mine)
    return replace(
        reading,
        held=held[tp].records,
        held_s=(now_ms - since_ms) / 1000,
        held_partition=tp.partition,
    )
