"""[core] Digests of ranges of a partition, which can be concatenated, to compare both sides.

A record's hash covers what a mirror must keep (its source offset, timestamp, key, value, headers in their
order); the target's offsets are translated back first, so a wrong map is found as well as a wrong record. A
range's digest is a polynomial of its hashes modulo a Mersenne prime (Rabin and Karp's rolling hash)::

    D(a b) = D(a) · B^|b| + D(b)   (mod 2^127 - 1)

Order and number matter, and neighbors are joined without reading them again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from hub.record import Record

_PRIME = (1 << 127) - 1
_BASE = int.from_bytes(blake2b(b"hub mirror digest", digest_size=15).digest())
_NONE = b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Digest:
    """Digest of ``count`` records in their order."""

    count: int = 0
    value: int = 0

    def then(self, other: Digest) -> Digest:
        """Return the digest of these records followed by those of ``other``."""
        moved = self.value * pow(_BASE, other.count, _PRIME)
        return Digest(self.count + other.count, (moved + other.value) % _PRIME)

    def add(self, hashed: int) -> Digest:
        """Return the digest with one more record, given its ``hash_of``."""
        return Digest(self.count + 1, (self.value * _BASE + hashed) % _PRIME)

    def __str__(self) -> str:
        return f"{self.count}:{self.value:032x}"


@dataclass(frozen=True, slots=True)
class DigestRange:
    """Digest of the records with source offsets in [first, end)."""

    first: int
    end: int
    digest: Digest


@dataclass(frozen=True, slots=True)
class RangeDifference:
    """A range of source offsets in which the sides differ; None: that side has no digest there."""

    first: int
    end: int
    source: Digest | None
    target: Digest | None


def hash_of(
    source_offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str | bytes, bytes | None]],
) -> int:
    """Hash a record to a number below the prime. Distinguishes null from empty, and every order
    of headers.
    """
    hashed = blake2b(struct.pack(">qq", source_offset, timestamp_ms), digest_size=16)
    parts: list[bytes | None] = [key, value]
    for name, content in headers:
        parts += [name.encode() if isinstance(name, str) else name, content]
    for part in parts:
        hashed.update(_NONE if part is None else struct.pack(">I", len(part)))
        hashed.update(part or b"")
    return int.from_bytes(hashed.digest()) % _PRIME


def ranges(records: Iterable[tuple[int, Record]], size: int) -> Iterator[DigestRange]:
    """Digest (source offset, record) pairs in ascending order into ranges of ``size`` source offsets, aligned
    to it.

    Ranges without a record are left out; the last one ends where its block ends, whether or not more may
    come.
    """
    block: int | None = None
    digest = Digest()
    for offset, record in records:
        if block is not None and offset // size != block:
            yield DigestRange(block * size, (block + 1) * size, digest)
            digest = Digest()
        block = offset // size
        digest = digest.add(hash_of(offset, record.timestamp_ms, record.key, record.value, record.headers))
    if block is not None:
        yield DigestRange(block * size, (block + 1) * size, digest)


def joined(parts: Sequence[DigestRange]) -> DigestRange:
    """Concatenate adjacent ranges, in order. At least one."""
    digest = Digest()
    for part in parts:
        digest = digest.then(part.digest)
    return DigestRange(parts[0].first, parts[-1].end, digest)


def differences(source: Iterable[DigestRange], target: Iterable[DigestRange]) -> tuple[RangeDifference, ...]:
    """Return the ranges in which the two differ, ascending; adjacent ones stay separate, because each has its
    own counts.
    """
    here: Mapping[tuple[int, int], Digest] = {(each.first, each.end): each.digest for each in source}
    there: Mapping[tuple[int, int], Digest] = {(each.first, each.end): each.digest for each in target}
    return tuple(
        RangeDifference(*place, here.get(place), there.get(place))
        for place in sorted({*here, *there})
        if here.get(place) != there.get(place)
    )
