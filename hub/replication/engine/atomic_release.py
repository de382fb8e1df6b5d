"""[core] Atomic release: choose the fetched batches that become visible together, without splitting a source
transaction.

A source transaction ends in each partition separately, and a reader of one partition waits for every open
transaction that began before. So at one moment it may be readable in A, but not in B::

    A   t t C(t)                 readable up to the end
    B   x   t t C(t)             readable up to x, which is still open

Copying all readable records would give the target half of ``t``, and after a failover it stays half. So ``t``
waits in A until it is readable in B, and with it the later batches in A and their transactions elsewhere.

A transaction is known by producer id and epoch. Since KIP-890 (brokers and clients of Kafka 4) every
transaction has an epoch of its own. Older clients keep one epoch: then a producer's transactions count as
one, and wait for each other; the engine's limits on holding back bound that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hub.kafka.protocol.record_batch import RecordBatch

Txn = tuple[int, int]
NONE: Final[frozenset[Txn]] = frozenset()
Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class ReleaseState:
    """Transactions of one partition. ``staged``: those of each fetched piece, in order; ``beyond``: those
    with batches after the staged pieces; ``whole``: everything was inspected that the partition had when the
    last piece of any partition arrived (a transaction that was readable then had been written to every
    partition by then).
    """

    staged: Sequence[frozenset[Txn]]
    beyond: frozenset[Txn] = NONE
    whole: bool = True


def transactions_of(batches: Iterable[RecordBatch]) -> frozenset[Txn]:
    found = [
        (each.producer_id, each.producer_epoch)
        for each in batches
        if each.is_transactional and not each.is_control
    ]
    return frozenset(found) if found else NONE


def releasable(partitions: Mapping[Place, ReleaseState]) -> dict[Place, int]:
    """Count the leading pieces of each partition that belong to whole transactions only.

    >>> t, x = (1, 0), (2, 0)
    >>> releasable({"A": ReleaseState([frozenset({t})]), "B": ReleaseState([], frozenset({x, t}))})
    {'A': 0, 'B': 0}
    """
    held: set[Txn] = set()
    for seen in partitions.values():
        held |= seen.beyond
    if not all(seen.whole for seen in partitions.values()):
        held.update(txn for seen in partitions.values() for piece in seen.staged for txn in piece)
    counts = {place: len(seen.staged) for place, seen in partitions.items()}
    while True:
        before = len(held)
        for place, seen in partitions.items():
            for at in range(counts[place]):
                if not held.isdisjoint(seen.staged[at]):
                    counts[place] = at
                    held.update(txn for piece in seen.staged[at:] for txn in piece)
                    break
        if len(held) == before:
            return counts
