"""[core] Comparison of a store's snapshot with the fold of its changelog:
sums first, then keys of regions that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hub.materializers.stores.store import KeptRow, StoreSnapshot
from hub.materializers.verification.fingerprint import (
    MOST_NAMED,
    MOST_WALKED,
    ComparisonResult,
    Fingerprint,
    KeyDifference,
    region_of,
)
from hub.materializers.verification.followed_changelogs import FollowedChangelog

# Called for each pass over a snapshot's rows; yields them in chunks.
RowChunks = Callable[[], Iterator[list[KeptRow]]]


def compare_rows(
    fold: FollowedChangelog,
    cut: StoreSnapshot,
    chunks: RowChunks,
    most: int = MOST_NAMED,
    walked: int = MOST_WALKED,
) -> ComparisonResult:
    """Compare all rows of a snapshot with the fold; name the first ``most`` keys that differ, of the first
    ``walked`` regions that do.
    """
    wanted, store = fold.fold.sums.fingerprint(cut.swept), Fingerprint()
    hashes = fold.hasher.digester.row
    for some in chunks():
        for key, version, values in some:
            store.add(*hashes(key, version, values))
    regions = wanted.differing(store)
    keys = _walked(fold, cut, regions[:walked], chunks, most) if regions else []
    return ComparisonResult(wanted, store, cut.positions, tuple(regions), tuple(keys))


def _walked(
    fold: FollowedChangelog, cut: StoreSnapshot, regions: Sequence[int], chunks: RowChunks, most: int
) -> list[KeyDifference]:
    """Return the first keys that differ: extra in the store, different in it, or missing from it."""
    key_differences: list[KeyDifference] = []
    fold.fold.begin_pass()
    for some in chunks():
        hashed = [(*each, *fold.hasher.digester.row(*each)) for each in some]
        walked = [each for each in hashed if region_of(each[3]) in regions]
        fold.fold.note_present(at for *_, at, _ in walked)
        for key, version, _, at, row in walked:
            if len(key_differences) == most:
                break
            why = why_differs(version, row, fold.fold.row(at), cut.swept)
            if why is not None:
                key_differences.append(KeyDifference(key, why))
    for region in regions:
        key_differences += fold.fold.lost(region, cut.swept, most - len(key_differences))
    return key_differences


def why_differs(version: int, hashed: int, wanted: Sequence[int | None] | None, swept: int) -> str | None:
    """Return why a store's row differs from the fold (``wanted``: version and hash, None: deleted); None if
    equal.
    """
    if wanted is None:
        return f"the changelog has no such key, the store version {version}"
    newest, row = wanted
    if row is None or (newest or 0) < swept:
        return f"deleted by version {newest}, the store has version {version}"
    if newest != version:
        return f"version {newest}, the store has version {version}"
    return None if row == hashed else f"another row of version {version}"
