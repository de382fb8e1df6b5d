"""[core] Compare two versions of a view: row counts, a hash of common columns, and the first differences.

Both sides are read at one moment of one store, in key order, so one pass suffices and nothing is buffered.
The two engines may be at different positions at that moment: a row made of an event that the other side has
not read yet is not counted as a difference; one made of an event that the other side never reads, because its
version has other topics, is. A row's ``_sources`` give its events; in a view without them (SQL views), rows
are compared as they are, and ``same_positions``, over the topics that both read, tells whether the result is
meaningful.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from hub.materializers.stores.columns import stored_alike
from hub.materializers.stores.sql.scans import ComparedTable
from hub.materializers.stores.store import KeptRow
from hub.materializers.stores.stored_row import Digester
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions, TopicPartition

_MODULUS = 1 << 64
MOST_SAMPLES = 20
_LONGEST = 200


@dataclass(slots=True)
class VersionComparison:
    """Result of a comparison. ``columns``: present in both and stored alike.

    ``moving``: rows left out because only one side has read their events.
    """

    columns: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    same_positions: bool
    rows_before: int = 0
    rows_after: int = 0
    only_before: int = 0
    only_after: int = 0
    differing: int = 0
    moving: int = 0
    hash_before: int = 0
    hash_after: int = 0
    differing_by_column: dict[str, int] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def body(self) -> dict[str, Any]:
        hashes = {"hash_before": f"{self.hash_before:016x}", "hash_after": f"{self.hash_after:016x}"}
        names = {each: list(getattr(self, each)) for each in ("columns", "added", "removed")}
        return {**asdict(self), **hashes, **names}


def compare(before: ComparedTable, after: ComparedTable, most: int = MOST_SAMPLES) -> VersionComparison:
    """Compare both tables in one pass. The hashes are sums over rows and independent of order."""
    columns = tuple(
        name
        for name, kind in after.types.items()
        if name in before.types and stored_alike(before.types[name], kind)
    )
    both = _topics(before.sources) & _topics(after.sources)
    found = VersionComparison(
        columns,
        tuple(name for name in after.types if name not in columns),
        tuple(name for name in before.types if name not in columns),
        before.sources.of_topics(both) == after.sources.of_topics(both),
    )
    common: dict[str, AvroType] = {name: after.types[name] for name in columns}
    digester = Digester(common)
    # Index of each common column on one side, and of _sources after them all.
    old_at = [list(before.types).index(name) for name in columns]
    new_at = [list(after.types).index(name) for name in columns]
    for old, new in _joined(before.rows(), after.rows()):
        found.rows_before += old is not None
        found.rows_after += new is not None
        if _ahead(old, after.sources, both) or _ahead(new, before.sources, both):
            found.moving += 1
            continue
        key = (old or new or ("", 0, ()))[0]
        old_values = None if old is None else [old[2][place] for place in old_at]
        new_values = None if new is None else [new[2][place] for place in new_at]
        if old_values is not None:
            old_hash = digester.row(key, 0, old_values)[1]
            found.hash_before = (found.hash_before + old_hash) % _MODULUS
        if new_values is not None:
            new_hash = digester.row(key, 0, new_values)[1]
            found.hash_after = (found.hash_after + new_hash) % _MODULUS
        if old_values is None or new_values is None:
            found.only_after += old_values is None
            found.only_before += new_values is None
            why = "only after" if old_values is None else "only before"
            _sample(found, most, {"key": key, "why": why})
        elif old_hash != new_hash:
            _note_differing(found, digester, columns, key, old_values, new_values, most)
    return found


def _note_differing(
    found: VersionComparison,
    digester: Digester,
    columns: Sequence[str],
    key: str,
    old: Sequence[Any],
    new: Sequence[Any],
    most: int,
) -> None:
    found.differing += 1
    differing: dict[str, Any] = {}
    for place, name in enumerate(columns):
        # Compared by digest, which ignores differences that stores cannot represent: all other columns count
        # as null.
        ones, others = [None] * len(columns), [None] * len(columns)
        ones[place], others[place] = old[place], new[place]
        if digester.row("", 0, ones) != digester.row("", 0, others):
            found.differing_by_column[name] = found.differing_by_column.get(name, 0) + 1
            differing[name] = {"before": _short(old[place]), "after": _short(new[place])}
    _sample(found, most, {"key": key, "why": "differs", "columns": differing})


def _sample(found: VersionComparison, most: int, sample: dict[str, Any]) -> None:
    if len(found.samples) < most:
        found.samples.append(sample)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _joined(
    before: Iterator[KeptRow], after: Iterator[KeptRow]
) -> Iterator[tuple[KeptRow | None, KeptRow | None]]:
    """Yield rows of one key as pairs."""
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if new is None or (old is not None and old[0] < new[0]):
            yield old, None
            old = next(before, None)
        elif old is None or new[0] < old[0]:
            yield None, new
            new = next(after, None)
        else:
            yield old, new
            old, new = next(before, None), next(after, None)


def _topics(positions: Positions) -> set[str]:
    return {at.topic for at, _ in positions}


def _ahead(row: KeptRow | None, reached: Positions, topics: AbstractSet[str]) -> bool:
    """Return whether the row's provenance has an event of these topics at or past these positions."""
    if row is None or not row[2] or row[2][-1] is None:
        return False
    try:
        origins: Mapping[str, Any] = orjson.loads(row[2][-1])
    except (ValueError, TypeError):
        return False
    if not isinstance(origins, dict):
        return False
    return any(
        origin["offset"] >= reached.get(TopicPartition(origin["topic"], origin["partition"]))
        for origin in origins.values()
        if isinstance(origin, dict) and origin["topic"] in topics
    )
