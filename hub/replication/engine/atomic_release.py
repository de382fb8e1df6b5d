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
one, and wait for each other; ``HoldLimits`` bound that.

``next_hold(state, event)`` decides: release now, or look ahead in the source first::

    PiecesStaged ──▶ Release all: no transactions, one partition, or a limit is reached
                 ──▶ LookAhead ──▶ LookedAhead ──▶ Release what belongs to whole transactions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from hub.kafka.protocol.record_batch import RecordBatch
from hub.record import TopicPartition

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
    for state in partitions.values():
        held |= state.beyond
    if not all(state.whole for state in partitions.values()):
        held.update(txn for state in partitions.values() for piece in state.staged for txn in piece)
    counts = {place: len(state.staged) for place, state in partitions.items()}
    while True:
        before = len(held)
        for place, state in partitions.items():
            for at in range(counts[place]):
                if not held.isdisjoint(state.staged[at]):
                    counts[place] = at
                    held.update(txn for piece in state.staged[at:] for txn in piece)
                    break
        if len(held) == before:
            return counts


# ---- how long


LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class HoldLimits:
    """Limits for a release of everything: after ``seconds``, with more than ``bytes`` held back, or when a
    partition
    is more than ``lag`` offsets behind.
    """

    seconds: float
    bytes: int
    lag: int


@dataclass(frozen=True, slots=True)
class HoldState:
    """Since when something is held back, None: nothing is; and the time of the last look ahead."""

    held_at_s: float | None = None
    looked_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PiecesStaged:
    """``staged``: transactions of each piece by partition; ``live``: number of partitions that are carried;
    ``lag``: of the partition that is furthest behind, in offsets; ``bytes``: size of all pieces.
    """

    now_s: float
    staged: Mapping[TopicPartition, Sequence[frozenset[Txn]]]
    live: int
    lag: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LookedAhead:
    """``states``: every partition that is carried; None: the source did not answer."""

    now_s: float
    staged: Mapping[TopicPartition, Sequence[frozenset[Txn]]]
    states: Mapping[TopicPartition, ReleaseState] | None


@dataclass(frozen=True, slots=True)
class Release:
    """Write the given number of first pieces of each partition."""

    counts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Read which transactions have batches at the source beyond those that were fetched: LookedAhead."""


def next_hold(
    state: HoldState, event: PiecesStaged | LookedAhead, limits: HoldLimits
) -> tuple[HoldState, Release | LookAhead]:
    everything = {tp: len(pieces) for tp, pieces in event.staged.items()}
    if isinstance(event, LookedAhead):
        states = event.states
        counts = _without_transactions(event.staged) if states is None else releasable(states)
        counts = {tp: counts[tp] for tp in everything}
        held_at_s = None if counts == everything else state.held_at_s
        return HoldState(held_at_s, event.now_s), Release(counts)
    held_at_s = event.now_s if state.held_at_s is None else state.held_at_s
    if (
        not any(piece for pieces in event.staged.values() for piece in pieces)
        or event.live < 2
        or event.lag > limits.lag
        or event.bytes > limits.bytes
        or event.now_s - held_at_s >= limits.seconds
    ):
        return HoldState(None, state.looked_at_s), Release(everything)
    if event.now_s - state.looked_at_s >= LOOK_EVERY_S:
        return HoldState(held_at_s, state.looked_at_s), LookAhead()
    counts = _without_transactions(event.staged)
    held = held_at_s if counts != everything else None
    return HoldState(held, state.looked_at_s), Release(counts)


def _without_transactions(
    staged: Mapping[TopicPartition, Sequence[frozenset[Txn]]],
) -> dict[TopicPartition, int]:
    """Count the leading pieces of each partition that belong to no transaction."""
    return {
        tp: next((at for at, piece in enumerate(pieces) if piece), len(pieces))
        for tp, pieces in staged.items()
    }
