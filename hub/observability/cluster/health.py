"""[core] Health of the cluster as plain values: brokers, partitions without a leader or with too few
replicas, disks.

A broker that partitions name and that the cluster's list of brokers lacks is away. Unknown values are None,
which is never the same as 0. While Kafka does not answer, its last values are kept, with ``error``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hub.log import LogDir, PartitionReplicas, Placement

MOST_TROUBLES = 200


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is present, or that partitions name (``up`` False).

    ``leads``: partitions that it leads. ``replicas``: partitions of which it has a replica. ``lacking``:
    replicas that are not in sync. ``dirs`` None: not reported; ``dirs_error`` is the reason.
    """

    id: int
    address: str
    up: bool
    is_controller: bool
    leads: int
    replicas: int
    lacking: int
    dirs: tuple[LogDir, ...] | None = None
    dirs_error: str | None = None

    @property
    def bytes(self) -> int | None:
        """Size of all its logs in bytes; None: unknown."""
        known = [each.bytes for each in self.dirs or () if each.bytes is not None]
        return sum(known) if known else None

    @property
    def free(self) -> float | None:
        """Free share of its fullest disk, 0 to 1; None: unknown."""
        shares = [share for each in self.dirs or () if (share := free_of(each)) is not None]
        return min(shares, default=None)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition that is offline (no ``leader``), or has fewer in-sync replicas than assigned ones."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """Health of the cluster.

    ``answered_at_ms`` None: Kafka has not answered yet. ``error``: why it does not answer now. ``troubles``:
    offline partitions first, at most 200. ``offline`` and ``under_replicated`` count all; a partition is
    counted in one of them.
    """

    answered_at_ms: int | None = None
    error: str | None = None
    brokers: tuple[Broker, ...] = ()
    topics: int = 0
    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    troubles: tuple[Trouble, ...] = ()

    @property
    def is_known(self) -> bool:
        """True if the values are current."""
        return self.answered_at_ms is not None and self.error is None

    @property
    def away(self) -> tuple[int, ...]:
        """Ids of brokers that partitions name and that are not present."""
        return tuple(each.id for each in self.brokers if not each.up)

    @property
    def state(self) -> str:
        """State, the first match: ``down``, ``connecting``, ``offline``, ``under-replicated`` or ``ok``."""
        if self.error is not None:
            return "down"
        if self.answered_at_ms is None:
            return "connecting"
        if self.offline:
            return "offline"
        return "under-replicated" if self.under_replicated or self.away else "ok"


def free_of(folder: LogDir) -> float | None:
    """Return the free share of a folder's disk, 0 to 1; None: not reported."""
    if folder.total_bytes is None or folder.usable_bytes is None or folder.total_bytes <= 0:
        return None
    return folder.usable_bytes / folder.total_bytes


def health_of(placement: Placement, dirs: Mapping[int, tuple[LogDir, ...] | str], now_ms: int) -> Health:
    """Return the health. ``dirs``: by broker, its folders or the reason why they are not reported."""
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    lacking: Counter[int] = Counter()
    offline: list[Trouble] = []
    few: list[Trouble] = []
    count = 0
    for topic, partitions in placement.partitions.items():
        for each in partitions:
            count += 1
            replicas.update(each.replicas)
            if each.leader is not None:
                leads[each.leader] += 1
            missing = set(each.replicas) - set(each.in_sync)
            lacking.update(missing)
            if each.leader is None:
                offline.append(_trouble(topic, each))
            elif missing:
                few.append(_trouble(topic, each))
    ids = sorted({*placement.brokers, *replicas})
    brokers = tuple(_broker(id, placement, leads[id], replicas[id], lacking[id], dirs.get(id)) for id in ids)
    return Health(
        now_ms,
        None,
        brokers,
        len(placement.partitions),
        count,
        len(offline),
        len(few),
        tuple([*sorted(offline, key=_place), *sorted(few, key=_place)][:MOST_TROUBLES]),
    )


def _place(each: Trouble) -> tuple[str, int]:
    return each.topic, each.partition


def _trouble(topic: str, each: PartitionReplicas) -> Trouble:
    return Trouble(topic, each.partition, each.leader, each.replicas, each.in_sync)


def _broker(
    id: int,
    placement: Placement,
    leads: int,
    replicas: int,
    lacking: int,
    dirs: tuple[LogDir, ...] | str | None,
) -> Broker:
    where = placement.brokers.get(id)
    return Broker(
        id,
        f"{where[0]}:{where[1]}" if where is not None else "",
        where is not None,
        placement.controller == id,
        leads,
        replicas,
        lacking,
        dirs if isinstance(dirs, tuple) else None,
        dirs if isinstance(dirs, str) else None,
    )
