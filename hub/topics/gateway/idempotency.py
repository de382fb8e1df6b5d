"""[core] Requests that come twice: remembered by their key for a while, and found again in the log by their mark.

Memory answers within one process. Each record carries a mark too, ``key;fingerprint;index/count;epoch ms``, by which a
process that has forgotten (it was started anew, or did not hear the outcome) finds what of a request is in the log.

What may still come after an outcome that nobody heard, and why ``UnknownOutcomes`` looks twice
  1. The producer sends nothing again: a record that is given up (delivery time-out, purge) is out of its queues, and the
     request that carried it ends with it (a produce request waits no longer than its oldest record may).
  2. What that request had put on the wire may yet be appended: bytes in sockets, in the broker's queue, or in an append that
     a slow disk holds. A later producer id does not fence them; only a transaction would. But the leader that has them is
     the one that answers the search. So a record is missing when the leader answered twice, ``SETTLES_S`` apart: what it
     had before its first answer is in the log by the second.
  3. What is appended may not be readable yet: behind another producer's open transaction, which shows (the end of the log is
     past what is read), or not yet on all in-sync replicas, which is what the pause is for.
  4. Not covered: bytes that a cut network keeps for longer than the first answer takes to come by another way, and replicas
     that stay behind for longer than the pause.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hub.errors import CallerError, Conflict
from hub.record import Positions, Record

T = TypeVar("T")

MOST_KEYS = 10_000
WINDOW_S = 600.0
MOST_BYTES = 64 << 20
SETTLES_S = 2.0
_LONGEST_KEY = 255


def checked_key(key: str) -> str:
    """The key, when it is one. Raises CallerError."""
    if not 0 < len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise CallerError(f"Idempotency-Key: 1 to {_LONGEST_KEY} printable ASCII characters are needed")
    return key


def fingerprint(*parts: bytes) -> str:
    """Two requests with one fingerprint are the same."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:32]


def other_body(key: str) -> Conflict:
    return Conflict(
        f'Idempotency-Key "{key}": was used with another request within {WINDOW_S / 60:g} minutes',
        hint="a new request needs a new key",
        code="HUB-1930",
    )


@dataclass(slots=True)
class _Entry(Generic[T]):
    fingerprint: str
    answer: T
    begun_at_s: float
    size: int = 0


@dataclass
class AnswerMemory(Generic[T]):
    """Answers by (topic, key), the oldest forgotten first: past the window, over so many keys, or over so many bytes.

    What has no weight yet is under way, and stays: its retry would find nothing of it in the log and write it again."""

    most_keys: int = MOST_KEYS
    window_s: float = WINDOW_S
    most_bytes: int = MOST_BYTES
    size: int = 0
    entries: OrderedDict[tuple[str, str], _Entry[T]] = field(default_factory=OrderedDict)

    def find(self, topic: str, key: str, print_: str, now_s: float) -> T | None:
        """What is remembered of the same request; None: nothing. Raises Conflict when it was another one."""
        while self.entries:
            place, oldest = next(iter(self.entries.items()))
            if now_s - oldest.begun_at_s <= self.window_s:
                break
            self.forget(*place)
        known = self.entries.get((topic, key))
        if known is None:
            return None
        if known.fingerprint != print_:
            raise other_body(key)
        return known.answer

    def keep(self, topic: str, key: str, print_: str, answer: T, now_s: float) -> None:
        self.entries[topic, key] = _Entry(print_, answer, now_s)
        if len(self.entries) > self.most_keys:
            self._forget_oldest()

    def weigh(self, topic: str, key: str, size: int) -> None:
        """The answer is there and has this many bytes."""
        entry = self.entries.get((topic, key))
        if entry is not None:
            self.size += size - entry.size
            entry.size = size
        while self.size > self.most_bytes:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        place = next((place for place, entry in self.entries.items() if entry.size), None)
        if place is not None:
            self.forget(*place)

    def forget(self, topic: str, key: str) -> None:
        entry = self.entries.pop((topic, key), None)
        if entry is not None:
            self.size -= entry.size


@dataclass
class UnknownOutcomes:
    """Requests whose outcome nobody heard, by (topic, key), for as long as their keys count. See the head of the file."""

    most_keys: int = MOST_KEYS
    window_s: float = WINDOW_S
    settles_s: float = SETTLES_S
    # (since when, when the log was first looked through in vain)
    entries: OrderedDict[tuple[str, str], tuple[float, float | None]] = field(default_factory=OrderedDict)

    def add(self, topic: str, key: str, now_s: float) -> str | None:
        """The topic of the one that is forgotten for it, whose log has to be looked through anew; None: none is."""
        self._expire(now_s)
        self.entries.pop((topic, key), None)
        self.entries[topic, key] = (now_s, None)
        return self.entries.popitem(last=False)[0][0] if len(self.entries) > self.most_keys else None

    def holds(self, topic: str, key: str, now_s: float) -> bool:
        self._expire(now_s)
        return (topic, key) in self.entries

    def settled(self, topic: str, key: str, now_s: float) -> bool:
        """The log was looked through in vain, begun at ``now_s``: whether nothing can come any more."""
        since_s, looked_at_s = self.entries.get((topic, key), (now_s, float("-inf")))
        if looked_at_s is None:
            self.entries[topic, key] = (since_s, now_s)
            return False
        return now_s - looked_at_s >= self.settles_s

    def _expire(self, now_s: float) -> None:
        while self.entries and now_s - next(iter(self.entries.values()))[0] > self.window_s:
            self.entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class WrittenPlace:
    """Where a record of a request is in the log."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class FoundRequest:
    """What of a request is in the log: the places of its records by their number in it."""

    fingerprint: str
    begun_at_ms: int
    places: dict[int, WrittenPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchedRequests:
    """The requests that have marks in a topic, up to ``upto``, where the search of ``begun_at_s`` ended. ``hides``: the log
    went on behind an open transaction."""

    requests: dict[str, FoundRequest]
    upto: Positions
    begun_at_s: float
    hides: bool


def mark(key: str, print_: str, index: int, count: int, begun_at_ms: int) -> bytes:
    """The header of a request's record number ``index``."""
    return f"{key};{print_};{index}/{count};{begun_at_ms}".encode()


def found_in(
    records: Iterable[Record], header: str, before: dict[str, FoundRequest] | None = None
) -> dict[str, FoundRequest]:
    """The requests that records carry marks of, by key; of two with one key the later. What is no mark is ignored.

    ``before``: what earlier records of the topic said; it is added to."""
    requests: dict[str, FoundRequest] = {} if before is None else before
    for record in records:
        said = record.header(header)
        if said is None:
            continue
        try:
            key, print_, number, begun = said.decode("ascii").rsplit(";", 3)
            index, begun_at_ms = int(number.partition("/")[0]), int(begun)
        except ValueError:
            continue
        known = requests.get(key)
        if known is None or (known.begun_at_ms < begun_at_ms and known.fingerprint != print_):
            known = requests[key] = FoundRequest(print_, begun_at_ms)
        if known.fingerprint == print_:
            known.begun_at_ms = max(known.begun_at_ms, begun_at_ms)
            known.places.setdefault(index, WrittenPlace(record.partition, record.offset, record.timestamp_ms))
    return requests
