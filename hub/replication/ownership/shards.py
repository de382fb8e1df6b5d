"""[core] Shards: partitions to shards, shards to workers without a leader, and the watchdog for stuck shards.

A shard is a fixed set of partitions with one transactional id, which alone makes it safe: opening it fences
the former owner. Leases only keep two workers from fencing each other forever. Every worker computes the same
assignment from the same members and leases (a holder keeps its shards within its share; the rest goes by
rendezvous hashing), takes its own shards when nobody holds them any more, and releases the others at a
commit; shards that stay are not touched. The members are those of a link's crew (link_definitions.py): a
worker without the link gets none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, NamedTuple

from hub.record import TopicPartition


class Shard(NamedTuple):
    """One of a link's shards, numbered from 0."""

    link: str
    number: int

    @property
    def transactional_id(self) -> str:
        """Transactional id of the shard, not of a worker: that is what fences a zombie."""
        return f"hub.mirror.{self.link}.{self.number}"


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of a shard: its holder, and when it expires unless renewed."""

    shard: Shard
    worker: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class Moves:
    """Decision for a worker: ``release`` at the next commit, ``take`` immediately (open the transactional id,
    then read the checkpoint), ``renew`` the rest.
    """

    take: tuple[Shard, ...] = ()
    release: tuple[Shard, ...] = ()
    renew: tuple[Shard, ...] = ()


def shard_of(topic: str, partition: int, shards: int) -> int:
    """Return the shard of a partition; constant as long as the number of shards is.

    >>> shard_of("nyc.chat", 0, 8), shard_of("nyc.chat", 1, 8)
    (2, 7)
    """
    return _hash(f"{topic}|{partition}") % shards


def shards_of(
    link: str, partitions: Iterable[TopicPartition], shards: int
) -> dict[Shard, tuple[TopicPartition, ...]]:
    """Return those shards of a link that have partitions, with their partitions, sorted."""
    found: dict[Shard, list[TopicPartition]] = {}
    for each in sorted(set(partitions)):
        found.setdefault(Shard(link, shard_of(each.topic, each.partition, shards)), []).append(each)
    return {shard: tuple(each) for shard, each in sorted(found.items())}


def assign(
    members: Iterable[str], shards: Iterable[Shard], holders: Mapping[Shard, str] | None = None
) -> dict[Shard, str]:
    """Assign each shard to a member; no two members' counts differ by more than one. A pure function, the
    same for every worker.

    A shard stays with its holder while that one is present and within its share; the others go to the member
    with room that they prefer (each shard has its own order). So a worker that leaves moves only its own
    shards, and a new one gets its share and nothing else moves.
    """
    present = sorted(set(members))
    wanted = sorted(set(shards))
    if not present:
        return {}
    held: dict[str, list[Shard]] = {member: [] for member in present}
    for shard in wanted:
        holder = (holders or {}).get(shard)
        if holder in held:
            held[holder].append(shard)
    least, extra = divmod(len(wanted), len(present))
    fullest = sorted(present, key=lambda member: (-len(held[member]), member))
    room = {member: least + (at < extra) for at, member in enumerate(fullest)}
    found: dict[Shard, str] = {}
    for member in present:
        kept = sorted(held[member], key=partial(_wish, member), reverse=True)[: room[member]]
        found |= dict.fromkeys(kept, member)
        room[member] -= len(kept)
    wishes = (
        (_wish(member, shard), member, shard) for member in present for shard in wanted if shard not in found
    )
    for _, member, shard in sorted(wishes, reverse=True):
        if shard not in found and room[member] > 0:
            found[shard] = member
            room[member] -= 1
    return found


def moves(
    me: str, members: Iterable[str], shards: Iterable[Shard], leases: Iterable[Lease], now_ms: int
) -> Moves:
    """Return the moves of ``me``. ``members`` are those alive, including ``me``.

    Two workers may hold the same shard: one was suspended, took it as free, and nothing has fenced the other
    yet. It counts as the holding of the first by name, for both: if each counted it as its own, they would
    compute different shares, and a free shard would be left to the respective other forever.
    """
    present = {*members, me}
    held: dict[Shard, str] = {}
    holding: set[Shard] = set()
    for lease in leases:
        if lease.until_ms > now_ms and lease.worker in present:
            held[lease.shard] = min(lease.worker, held.get(lease.shard, lease.worker))
            if lease.worker == me:
                holding.add(lease.shard)
    mine = {shard for shard, worker in assign(present, shards, held).items() if worker == me}
    return Moves(
        take=tuple(sorted(mine - held.keys())),
        release=tuple(sorted(holding - mine)),
        renew=tuple(sorted(holding & mine)),
    )


def moves_by_crew(
    me: str,
    crews: Mapping[str, frozenset[str]],
    shards: Iterable[Shard],
    leases: Iterable[Lease],
    now_ms: int,
) -> Moves:
    """Return the moves of ``me`` for links that not all workers carry. ``crews``: by link, the workers that
    divide its shards.

    Links with the same crew are divided together, so that each worker has its share of all of them. A shard
    held by a worker outside of the crew (with another definition of the link, or of an earlier release, which
    names no links) stays free until it is released or its lease expires. A worker outside of a link's crew
    releases its shards.
    """
    live = [lease for lease in leases if lease.until_ms > now_ms]
    nobody: frozenset[str] = frozenset()
    outside = {lease.shard for lease in live if lease.worker not in crews.get(lease.shard.link, nobody)}
    by_crew: dict[frozenset[str], set[Shard]] = {}
    for shard in shards:
        crew = crews.get(shard.link, nobody)
        if me in crew and shard not in outside:
            by_crew.setdefault(crew, set()).add(shard)
    due = [
        moves(me, crew, those, [lease for lease in live if lease.shard in those], now_ms)
        for crew, those in by_crew.items()
    ]
    not_mine = {
        lease.shard for lease in live if lease.worker == me and me not in crews.get(lease.shard.link, nobody)
    }
    return Moves(
        take=tuple(sorted(shard for each in due for shard in each.take)),
        release=tuple(sorted({*not_mine, *(shard for each in due for shard in each.release)})),
        renew=tuple(sorted(shard for each in due for shard in each.renew)),
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """Watchdog state of a shard: when it last made progress (or had nothing to do), and its restarts since.
    ``restarted_at_ms`` -1: none since then. ``moved_at_ms``: when single partitions made progress later than
    the whole shard.
    """

    well_at_ms: int
    positions: Mapping[TopicPartition, int]
    restarts: int = 0
    restarted_at_ms: int = -1
    moved_at_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


Verdict = Literal["well", "wait", "restart", "alarm"]


def watch(
    before: Watch,
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
    patience_ms: int,
    most_ms: int = 600_000,
) -> tuple[Watch, Verdict]:
    """Judge one shard by its committed positions. ``positions``: next source offsets; ``ends``: the source's.

    A partition that lags and does not move keeps the whole shard from being "well", however busy its others
    are. After ``patience_ms`` without progress the shard is restarted, then after twice that and so on; from
    the second restart on the verdict is "alarm", which restarts, too. Many partitions that have much to catch
    up move in turns, so none is stuck for long.
    """
    lagging = {tp for tp, end in ends.items() if positions.get(tp, 0) < end}
    stuck = {tp for tp in lagging if positions.get(tp, 0) <= before.positions.get(tp, -1)}
    if not stuck:
        return Watch(now_ms, dict(positions)), "well"
    # Keep the positions of stuck partitions, so that a slow one is judged by its own progress.
    kept = {tp: before.positions[tp] if tp in stuck else offset for tp, offset in positions.items()}
    moved_at = {
        tp: before.moved_at_ms.get(tp, before.well_at_ms) if tp in stuck else now_ms for tp in positions
    }
    longest = min(moved_at[tp] for tp in stuck)
    if before.restarts and longest > before.restarted_at_ms:  # all have made progress since
        return Watch(before.well_at_ms, kept, moved_at_ms=moved_at), "well"
    since = max(longest, before.restarted_at_ms)
    if now_ms - since < min(most_ms, patience_ms << before.restarts):
        return replace(before, positions=kept, moved_at_ms=moved_at), "wait"
    again = Watch(before.well_at_ms, kept, before.restarts + 1, now_ms, moved_at)
    return again, "alarm" if again.restarts > 1 else "restart"


def _wish(member: str, shard: Shard) -> int:
    return _hash(f"{member}|{shard.link}|{shard.number}")


def _hash(text: str) -> int:
    # Not CRC-32: it is linear, and the low bits of neighboring partitions are similar.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
