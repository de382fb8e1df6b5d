"""[core] Detect repeated requests: by idempotency key in memory, and by a mark in the log.

Memory covers one process. Each record also carries a mark, ``key;fingerprint;index/count;epoch ms``. A
process that was restarted, or that did not learn the outcome, finds the request's records in the log by their
marks.

``UnknownOutcomes`` searches twice because records of a request with an unknown outcome can still arrive:

    1. The producer does not resend. A record that is given up (delivery timeout, purge) leaves its queues,
       and the request that carried it ends with it: a produce request waits no longer than its oldest record
       may.
    2. Bytes that the request had put on the wire may still be appended: from sockets, from the broker's
       queue, or by an append that a slow disk delays. A later producer id does not fence them; only a
       transaction would. The leader that has them is the one that answers the search, so a record counts as
       missing only after the leader has answered twice, ``SETTLES_S`` apart: what it had before its first
       answer is in the log by the second.
    3. An appended record may not be readable yet. Behind another producer's open transaction, this shows as
       an end offset past the readable end. If it is not yet on all in-sync replicas, the pause covers it.
    4. Another server may still be writing an earlier attempt that it has not answered. A retry that says so
       (``Idempotency-Retry``) is searched for after that server must have given up.
    5. Not covered: bytes that a partitioned network keeps for longer than the first answer takes by another
       route, and replicas that lag for longer than the pause.
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
    """Return the key if it is valid. Raises CallerError."""
    if not 0 < len(key) <= _LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise CallerError(f"Idempotency-Key: 1 to {_LONGEST_KEY} printable ASCII characters are needed")
    return key


def checked_retry(text: str | None) -> int | None:
    """Return the milliseconds since the first attempt, None for a request that is the first. Raises
    CallerError.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise CallerError(
            f'Idempotency-Retry: "{text[:40]}" is not a number of milliseconds',
            hint="the time since the first attempt was sent: 0 if it is not known",
        )
    return int(text)


def fingerprint(*parts: bytes) -> str:
    """Return a hash of the parts. Requests with equal fingerprints are the same request."""
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
    started_at_s: float
    size: int = 0


@dataclass
class AnswerMemory(Generic[T]):
    """Answers by (topic, key). The oldest is evicted when it leaves the window, or when there are too many
    keys or bytes.

    Entries of size 0 are in progress and are never evicted for space: a retry would find nothing in the log
    and write again.
    """

    most_keys: int = MOST_KEYS
    window_s: float = WINDOW_S
    most_bytes: int = MOST_BYTES
    size: int = 0
    entries: OrderedDict[tuple[str, str], _Entry[T]] = field(default_factory=OrderedDict)

    def find(self, topic: str, key: str, print_: str, now_s: float) -> T | None:
        """Return the remembered answer of the same request, None if there is none. Raises Conflict if the key
        belongs to another request.
        """
        while self.entries:
            place, oldest = next(iter(self.entries.items()))
            if now_s - oldest.started_at_s <= self.window_s:
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
        """Record the size of a completed answer in bytes, and evict the oldest answers over the limit."""
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
    """Requests with an unknown outcome, by (topic, key), kept while their keys are valid. See the module
    docstring.
    """

    most_keys: int = MOST_KEYS
    window_s: float = WINDOW_S
    settles_s: float = SETTLES_S
    # (time when the writing ended or must end, start of the first later search that found nothing)
    entries: OrderedDict[tuple[str, str], tuple[float, float | None]] = field(default_factory=OrderedDict)

    def add(self, topic: str, key: str, now_s: float, ends_at_s: float | None = None) -> str | None:
        """Add a request. ``ends_at_s``: when its writing ends, if it may be under way elsewhere. Returns the
        topic of an evicted request, whose log must be searched again; None if none was evicted.
        """
        self._expire(now_s)
        self.entries.pop((topic, key), None)
        self.entries[topic, key] = (now_s if ends_at_s is None else ends_at_s, None)
        return self.entries.popitem(last=False)[0][0] if len(self.entries) > self.most_keys else None

    def holds(self, topic: str, key: str, now_s: float) -> bool:
        self._expire(now_s)
        return (topic, key) in self.entries

    def settled(self, topic: str, key: str, now_s: float) -> bool:
        """Record that a search started at ``now_s`` did not find all records. Return True if none can arrive
        any more.
        """
        ends_at_s, looked_at_s = self.entries.get((topic, key), (now_s, float("-inf")))
        if now_s < ends_at_s:
            return False
        if looked_at_s is None:
            self.entries[topic, key] = (ends_at_s, now_s)
            return False
        return now_s - looked_at_s >= self.settles_s

    def _expire(self, now_s: float) -> None:
        while self.entries and now_s - next(iter(self.entries.values()))[0] > self.window_s:
            self.entries.popitem(last=False)


@dataclass(frozen=True, slots=True)
class WrittenPlace:
    """Position of a request's record in the log."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class FoundRequest:
    """Records of one request that are in the log, by their index in the request."""

    fingerprint: str
    started_at_ms: int
    places: dict[int, WrittenPlace] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchedRequests:
    """Requests with marks in a topic, read up to ``upto`` by a search that started at ``started_at_s``.
    ``hides`` is True if the log continues behind an open transaction.
    """

    requests: dict[str, FoundRequest]
    upto: Positions
    started_at_s: float
    hides: bool


def may_lack(searched: SearchedRequests, process_made_at_s: float, now_s: float) -> bool:
    """Return True if the search may have missed records that an earlier process had in progress when it
    ended.
    """
    early = searched.started_at_s - process_made_at_s < SETTLES_S
    return early or (searched.hides and now_s - process_made_at_s <= WINDOW_S)


def of_same_request(searched: SearchedRequests, key: str, print_: str, now_ms: int) -> FoundRequest | None:
    """Return the records of this request that the search found, None if there are none within the window.

    Raises Conflict if the key belongs to another request.
    """
    found_request = searched.requests.get(key)
    if found_request is None or now_ms - found_request.started_at_ms > WINDOW_S * 1000:
        return None
    if found_request.fingerprint != print_:
        raise other_body(key)
    return found_request


def mark(key: str, print_: str, index: int, count: int, started_at_ms: int) -> bytes:
    """Build the header value for record number ``index`` of a request."""
    return f"{key};{print_};{index}/{count};{started_at_ms}".encode()


def found_in(
    records: Iterable[Record], header: str, before: dict[str, FoundRequest] | None = None
) -> dict[str, FoundRequest]:
    """Collect the requests whose marks the records carry, by key. If two requests have the same key, the
    later one wins. Invalid marks are ignored.

    ``before`` holds the requests of earlier records; it is modified.
    """
    requests: dict[str, FoundRequest] = {} if before is None else before
    for record in records:
        mark = record.header(header)
        if mark is None:
            continue
        try:
            key, print_, number, started = mark.decode("ascii").rsplit(";", 3)
            index, started_at_ms = int(number.partition("/")[0]), int(started)
        except ValueError:
            continue
        found_request = requests.get(key)
        if found_request is None or (
            found_request.started_at_ms < started_at_ms and found_request.fingerprint != print_
        ):
            found_request = requests[key] = FoundRequest(print_, started_at_ms)
        if found_request.fingerprint == print_:
            found_request.started_at_ms = max(found_request.started_at_ms, started_at_ms)
            found_request.places.setdefault(
                index, WrittenPlace(record.partition, record.offset, record.timestamp_ms)
            )
    return requests
