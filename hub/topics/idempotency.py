"""[core] Requests that come twice: remembered by their key for a while, and found again in the log by their mark.

Memory answers within one process. Each record carries a mark too, ``key;fingerprint;index/count;epoch ms``, by which a
process that has forgotten (it was started anew, or did not hear the outcome) finds what of a request is in the log.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hub.errors import CallerError, Conflict
from hub.record import Record

T = TypeVar("T")

MOST_KEYS = 10_000
WINDOW_S = 600.0
MOST_BYTES = 64 << 20
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
class Memory(Generic[T]):
    """Answers by (topic, key), the oldest forgotten first: past the window, over so many keys, or over so many bytes."""

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
            self.forget(*next(iter(self.entries)))

    def weigh(self, topic: str, key: str, size: int) -> None:
        """The answer is there and has this many bytes."""
        entry = self.entries.get((topic, key))
        if entry is not None:
            self.size += size - entry.size
            entry.size = size
        while self.size > self.most_bytes and self.entries:
            self.forget(*next(iter(self.entries)))

    def forget(self, topic: str, key: str) -> None:
        entry = self.entries.pop((topic, key), None)
        if entry is not None:
            self.size -= entry.size


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record of a request is in the log."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(slots=True)
class Found:
    """What of a request is in the log: the places of its records by their number in it."""

    fingerprint: str
    begun_at_ms: int
    places: dict[int, Place] = field(default_factory=dict)


def mark(key: str, print_: str, index: int, count: int, begun_at_ms: int) -> bytes:
    """The header of a request's record number ``index``."""
    return f"{key};{print_};{index}/{count};{begun_at_ms}".encode()


def found_in(records: Iterable[Record], header: str) -> dict[str, Found]:
    """The requests that records carry marks of, by key; of two with one key the later. What is no mark is ignored."""
    requests: dict[str, Found] = {}
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
            known = requests[key] = Found(print_, begun_at_ms)
        if known.fingerprint == print_:
            known.begun_at_ms = max(known.begun_at_ms, begun_at_ms)
            known.places.setdefault(index, Place(record.partition, record.offset, record.timestamp_ms))
    return requests
