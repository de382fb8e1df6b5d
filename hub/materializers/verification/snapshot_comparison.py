"""[core] Comparison of a store's snapshot with the fold of its changelog:
sums first, then keys of regions that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from hub.materializers.stores.store import KeptRow, StoreSnapshot
from hub.materializers.verification.fingerprint import (
    MOST_NAMED,
    MOST_WALKED,
    ComparisonResult,
    Fingerprint,
    region_of,
)
from hub.materializers.verification.followed_changelogs import (
    FollowedChangelog,
)
from hub.materializers.verification.verify import KeyDifference, why_differs

# Called for each pass over a snapshot's rows; yields them in chunks.
RowChunks = Callable[[], Iterator[list[KeptRow]]]


def compare_rows(fold: FollowedChangelog, cut: StoreSnapshot, chunks: RowChunks) -> ComparisonResult:
    """Compare all rows of a snapshot with the fold; find the keys that differ."""
    wanted, store = fold.fold.sums.fingerprint(cut.swept), Fingerprint()
    hashes = fold.hasher.digester.row
    for some in chunks():
        for key, version, values in some:
            store.add(*hashes(key, version, values))
    regions = wanted.differing(store)
    if not regions:
        return ComparisonResult(wanted, store, str(cut.positions))
    return ComparisonResult(
        wanted, store, str(cut.positions), tuple(regions), tuple(_walked(fold, cut, regions, chunks))
    )


def _walked(
    fold: FollowedChangelog, cut: StoreSnapshot, regions: Sequence[int], chunks: RowChunks
) -> list[KeyDifference]:
    """Return the first keys that differ: extra in the store, different in it, or missing from it."""
    walked: dict[int, set[int]] = {region: set() for region in regions[:MOST_WALKED]}
    found: list[KeyDifference] = []
    for some in chunks():
        for key, version, values in some:
            at, hashed = fold.hasher.digester.row(key, version, values)
            seen = walked.get(region_of(at))
            if seen is None:
                continue
            seen.add(at)
            if len(found) < MOST_NAMED:
                why = why_differs(version, hashed, fold.fold.row(at), cut.swept)
                if why is not None:
                    found.append(KeyDifference(key, why))
    for region, seen in walked.items():
        left = MOST_NAMED - len(found)
        found += islice(fold.fold.lost(region, seen, cut.swept), max(0, left))
    return found
