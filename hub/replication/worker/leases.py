"""[core] Shards that a worker should hold: those of its links, by the leases and definitions of all
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from hub.replication.clusters.status_records import CHORES, LinkContents
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.engine.shard_start import ShardAssignment
from hub.replication.ownership.failover import Control
from hub.replication.ownership.link_definitions import LinkDefinition, crews
from hub.replication.ownership.links import Link, carries, opposite
from hub.replication.ownership.shards import Lease, Moves, Shard, moves_by_crew


def wanted_shards(
    file: MirrorsFile,
    links: Mapping[str, Link],
    control: Control,
    contents: Callable[[str], tuple[LinkContents | None, int]],
    paused: Callable[[Link], Container[str]] = lambda link: (),
) -> dict[Shard, ShardAssignment]:
    """Return every shard of every link with its current assignment.

    ``contents``: the last plan of a link by its name, None before the first, and its number of retries.
    ``paused``: the topics of a link that are paused by themselves.
    """
    shard_assignments: dict[Shard, ShardAssignment] = {}
    for name, link in links.items():
        shard_assignments[Shard(name, CHORES)] = ShardAssignment()
        planned, retry = contents(name)
        if planned is None:
            continue
        resting = paused(link)
        topics = {name for name in carries(file, link, planned.topics, control) if name not in resting}
        opposites = _opposites(file, link, topics, control)
        for shard, partitions in planned.shards(link.mirror.shards).items():
            now = tuple(tp for tp in partitions if tp.topic in topics)
            if now:
                names = {tp.topic for tp in now}
                shard_assignments[shard] = ShardAssignment(
                    now,
                    {topic: planned.topics[topic] for topic in sorted(names)},
                    {topic: opposites[topic] for topic in sorted(names & opposites.keys())},
                    retry,
                    planned.schemas_to >= 0,
                )
    return shard_assignments


def _opposites(file: MirrorsFile, link: Link, topics: set[str], control: Control) -> dict[str, str]:
    """Return by topic the opposite link, for links whose ownership ever changed: records that the opposite
    link brought are not sent back.
    """
    if not control.operations:
        return {}
    return {topic: back for topic in topics if (back := opposite(file, link, topic)) is not None}


def due_moves(
    worker: str,
    claims: Mapping[str, Mapping[str, LinkDefinition]],
    leases: Iterable[Lease],
    shards: Iterable[Shard],
    ending: Container[Shard],
    wanted: Mapping[Shard, ShardAssignment],
    now_ms: int,
    ttl_ms: int,
) -> Moves:
    """Return which shards a worker takes, releases and renews now.

    ``claims``: the definitions of all live workers, its own too. ``shards``: the shards of its threads, also
    of those that are ``ending``: what it holds is known here better than from its last heartbeat.
    """
    mine = set(shards)
    others = [lease for lease in leases if lease.worker != worker]
    own = [Lease(shard, worker, now_ms + ttl_ms) for shard in mine]
    due = moves_by_crew(worker, crews(claims), wanted, [*others, *own], now_ms)
    gone = tuple(sorted(shard for shard in mine - wanted.keys() if shard not in due.release))
    return Moves(due.take, tuple(each for each in (*due.release, *gone) if each not in ending), due.renew)
