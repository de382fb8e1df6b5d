"""[core] Continuous verification: fingerprints of a view's state by region, and the reports on their
comparison.

::

    changelog ─ followed ─▶ of each key the newest version: a hash of its row ─▶ a sum a region, − old + new ┐
    store ─ a cut: rows and positions of one moment ────────────────────────────▶ a sum a region            ┴ equal?

A fingerprint is the number of live rows and the sum of their hashes modulo 2^64. It is independent of order;
replacing a row subtracts its old hash and adds its new one. A region is a prefix of the key's hash, so only a
part of the keys is compared one by one when a difference is found. Equal fingerprints mean equal states
except with probability 2^-64. The hash is not keyed, so an author of rows can construct two states with equal
fingerprints.

The fold's sums are kept per generation of the rows as well: a store sweeps out rows of earlier generations
without a record of their own (``StoreSnapshot.swept``), and each store does so at a time of its own.

Report: a record ``proof:<store>`` in the topic ``_hub.progress``, JSON, with every view that readers get from
that store.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.record import Positions

REGIONS = 256
_SHIFT = 56
_HALF = 1 << 63
_MODULUS = 1 << 64
# Limits of the keys that are named and of the regions that are searched for them.
MOST_NAMED, MOST_WALKED = 20, 8


def region_of(hashed: int) -> int:
    """Return the region of a key's hash (signed 64-bit). Regions are ranges of hashes.

    >>> region_of(-(2**63)), region_of(-1), region_of(0), region_of(2**63 - 1)
    (0, 127, 128, 255)
    """
    return (hashed + _HALF) >> _SHIFT


def hashes_of(region: int) -> tuple[int, int]:
    """Return the first and the last hash of a region.

    >>> hashes_of(0)[0] == -(2**63), hashes_of(255)[1] == 2**63 - 1
    (True, True)
    """
    first = (region << _SHIFT) - _HALF
    return first, first + (1 << _SHIFT) - 1


class Fingerprint:
    """Fingerprint of a set of rows: count and sum of hashes by region."""

    __slots__ = ("counts", "sums")

    def __init__(self) -> None:
        self.counts = [0] * REGIONS
        self.sums = [0] * REGIONS

    def add(self, key_hash: int, row_hash: int) -> None:
        region = (key_hash + _HALF) >> _SHIFT
        self.counts[region] += 1
        self.sums[region] += row_hash

    def put(self, region: int, count: int, total: int) -> None:
        self.counts[region] += count
        self.sums[region] += total

    @property
    def rows(self) -> int:
        return sum(self.counts)

    @property
    def total(self) -> int:
        """Sum of the rows' hashes modulo 2^64."""
        return sum(self.sums) % _MODULUS

    @property
    def value(self) -> str:
        """Fingerprint of all regions together, 16 hex digits."""
        return f"{self.total:016x}"

    def differing(self, other: Fingerprint) -> list[int]:
        """Return the regions in which two fingerprints differ."""
        mine, others = (
            [(count, total % _MODULUS) for count, total in zip(each.counts, each.sums, strict=True)]
            for each in (self, other)
        )
        return [region for region in range(REGIONS) if mine[region] != others[region]]


class FingerprintSums:
    """Running fingerprint of the fold: counts and sums by generation and region."""

    def __init__(self, cells: Iterable[tuple[int, int, int, int]] = ()) -> None:
        self._cells = {(generation, region): (count, total) for generation, region, count, total in cells}
        self._changed: set[tuple[int, int]] = set()

    def change(self, key_hash: int, version: int, row_hash: int | None, sign: int) -> None:
        """Add (1) or remove (-1) a live row; a row hash of None changes nothing."""
        if row_hash is None:
            return
        cell = version >> GENERATION_SHIFT, region_of(key_hash)
        count, total = self._cells.get(cell, (0, 0))
        self._cells[cell] = count + sign, (total + sign * row_hash) % _MODULUS
        self._changed.add(cell)

    def changed(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the cells that changed since the last call: (generation, region, count, sum)."""
        for cell in sorted(self._changed):
            yield (*cell, *self._cells[cell])
        self._changed.clear()

    def fingerprint(self, swept: int) -> Fingerprint:
        """Return the fingerprint of the live rows whose version is at least ``swept``, a generation's first
        version.
        """
        found, first = Fingerprint(), swept >> GENERATION_SHIFT
        for (generation, region), (count, total) in self._cells.items():
            if generation >= first:
                found.put(region, count, total)
        return found


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key on which store and changelog disagree."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """Fingerprints of the changelog's fold and of the store at ``positions``. ``regions``: those that differ,
    () when equal; ``keys``: the first keys that do.
    """

    changelog: Fingerprint
    store: Fingerprint
    positions: Positions
    regions: tuple[int, ...] = ()
    keys: tuple[KeyDifference, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.regions


@dataclass
class CpuBudget:
    """CPU budget: seconds of work are paid for with seconds of rest. ``share``: of a core."""

    share: float
    debt_s: float = 0.0
    worked_s: float = field(default=0.0)

    def work(self, cpu_s: float) -> None:
        self.worked_s += cpu_s
        self.debt_s += cpu_s * (1 / self.share - 1)

    def rest(self, most_s: float) -> float:
        """Return the seconds to rest now, at most ``most_s``; the remainder is owed."""
        found = min(self.debt_s, most_s)
        self.debt_s -= found
        return found
