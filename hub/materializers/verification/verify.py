"""[shell] Verify that a store of any kind equals the fold of a view's changelog.

::

    changelog ─ to a fixed end ─▶ fold: of each key the newest version ─▶ count, sum of row hashes ┐
    store ─ once it covers that end: rows and positions of one moment ──▶ count, sum of row hashes ┴ equal?

The store continues meanwhile, so its snapshot is past the fixed end; the fold is then read on to exactly the
snapshot's positions. Rows of an earlier generation that the store swept out (``StoreSnapshot.swept``) are
swept out of the fold too. The fold is kept in a temporary file, so memory is bounded for any number of keys.

Limitation: compaction keeps a key's LAST record. When a zombie writer wrote an older version last and the
newer one is compacted away, the store is right and the log is not; the result then shows a difference.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub.errors import Conflict, NotFound, PeerError
from hub.log import Log, Reader
from hub.materializers.changelog.record import key_of, version_of
from hub.materializers.changelog.row_decoder import DecodedRow, RowDecoder, SchemaTexts
from hub.materializers.definition.declared import changelog_of
from hub.materializers.stores.store import KeptRow, StoreSnapshot, ViewStore
from hub.materializers.stores.stored_row import Digester, RowShaper, key_hash, sources_text
from hub.record import Positions, Record, lag_records

_RECORDS = 10_000
_SILENCE_S = 30.0
_PAUSE_S = 0.2
_HALF = 32
_MODULUS = 1 << 64

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """A key on which store and changelog disagree."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Counts and order-independent hashes of live rows at ``positions``. ``differing``: the first keys, ()
    when equal.
    """

    view: str
    equal: bool
    changelog_rows: int
    store_rows: int
    changelog_hash: str
    store_hash: str
    positions: Positions
    differing: tuple[KeyDifference, ...] = ()


def verify(
    log: Log,
    schemas: SchemaTexts,
    view: str,
    store: ViewStore,
    *,
    changelog: str | None = None,
    timeout_s: float = 60.0,
    most: int = 20,
    told: Told = lambda _done, _all: None,
) -> VerificationResult:
    """Compare a view's table in a store with its changelog.

    ``view``: the table's name in the store. ``told`` is called with (records read, records in all).
    ``timeout_s``: how long the store may take to reach the log's end.

    Raises NotFound (no such changelog or view), PeerError (the store or the log makes no progress), Conflict
    (the view was rebuilt meanwhile).
    """
    topic = changelog or changelog_of(view)
    description = log.described([topic]).get(topic)
    if description is None:
        raise NotFound(f'view "{view}" has no changelog: topic "{topic}" does not exist', code="HUB-1410")
    begin, end = log.beginning_offsets([topic]), log.end_offsets([topic])
    with store.cut(view) as cut:
        types = cut.types
        _same(view, cut, description.topic_id, cut)
    with (
        closing(log.reader()) as reader,
        _fold(Digester(types), RowShaper(types), RowDecoder(schemas)) as fold,
    ):
        _read(reader, fold, begin, end, told)
        _wait(store, view, end, timeout_s)
        with store.cut(view) as cut:
            _same(
                view,
                cut,
                description.topic_id,
                StoreSnapshot(cut.topic_id, types, cut.positions, cut.swept, cut.rows),
            )
            _read(reader, fold, end, cut.positions, lambda _done, _all: None)
            return _compared(view, fold, cut, most)


def _same(view: str, cut: StoreSnapshot, topic_id: str, before: StoreSnapshot) -> None:
    if cut.topic_id != topic_id or (list(cut.types), cut.types) != (list(before.types), before.types):
        raise Conflict(
            f'view "{view}" is being recreated or changes its columns',
            hint="run it again when the store has caught up; hub view show shows its lag",
            code="HUB-1915",
        )


def _read(reader: Reader, fold: _NewestOfKeys, start: Positions, end: Positions, told: Told) -> None:
    """Read all records from ``start`` to ``end`` into the fold."""
    reader.assign(start)
    total, heard_at = lag_records(end, start), time.monotonic()
    while not (at := reader.position()).covers(end):
        records = reader.poll(_RECORDS, 0.5)
        fold.take(each for each in records if each.offset < end.get(each.topic_partition))
        now = time.monotonic()
        if records or reader.position() != at:
            heard_at = now
        elif now - heard_at > _SILENCE_S:
            raise PeerError(f"the changelog cannot be read on from {at}", hint="is Kafka there? hub doctor")
        told(total - lag_records(end, reader.position()), total)


def _wait(store: ViewStore, view: str, end: Positions, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not (at := store.positions(view, "changelog")).covers(end):
        if time.monotonic() >= deadline:
            raise PeerError(
                f'view "{view}": the store is {lag_records(end, at)} records behind after {timeout_s:g} s',
                hint="is the applier running? hub view show; or give it longer: --timeout",
                code="HUB-3067",
            )
        time.sleep(_PAUSE_S)


def _compared(view: str, fold: _NewestOfKeys, cut: StoreSnapshot, most: int) -> VerificationResult:
    rows, total = 0, 0
    for row in cut.rows():
        rows, total = rows + 1, total + fold.digester.row(*row)[1]
    wanted, wanted_total = fold.sums(cut.swept)
    total %= _MODULUS
    equal = (rows, total) == (wanted, wanted_total)
    differing = () if equal else tuple(fold.differing(cut.rows(), cut.swept, most))
    return VerificationResult(
        view, equal, wanted, rows, f"{wanted_total:016x}", f"{total:016x}", cut.positions, differing
    )


class _NewestOfKeys:
    """Fold in a file: the newest version of each key and the hash of its row (null: deleted)."""

    def __init__(self, path: Path, digester: Digester, shaper: RowShaper, decoder: RowDecoder) -> None:
        self.digester, self.shaper, self.decoder = digester, shaper, decoder
        self.file = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode=OFF",
            "PRAGMA synchronous=OFF",
            "CREATE TABLE fold (hash INTEGER PRIMARY KEY, version INTEGER, row INTEGER, key TEXT)",
            "CREATE TABLE seen (hash INTEGER PRIMARY KEY)",
        ):
            self.file.execute(statement)

    def take(self, records: Iterable[Record]) -> None:
        """Add records to the fold. Raises HubFault for a record that is not a changelog row."""
        newest: dict[str, tuple[int, Record]] = {}
        for record in records:
            key, version = key_of(record), version_of(record)
            if key not in newest or newest[key][0] < version:
                newest[key] = (version, record)
        decoded = self.decoder.rows([record for _, record in newest.values()])
        rows = [
            self._row(key, version, row)
            for (key, (version, _)), row in zip(newest.items(), decoded, strict=True)
        ]
        self.file.execute("BEGIN")
        self.file.executemany(
            "INSERT INTO fold VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO UPDATE SET version = "
            "excluded.version, row = excluded.row WHERE excluded.version > fold.version",
            rows,
        )
        self.file.execute("COMMIT")

    def _row(self, key: str, version: int, row: DecodedRow | None) -> tuple[int, int, int | None, str]:
        if row is None:
            return key_hash(key), version, None, key
        values = [*self.shaper.values(row), sources_text(row.get("_sources"))]
        hashes = self.digester.row(key, version, values)
        return hashes[0], version, hashes[1], key

    def sums(self, swept: int) -> tuple[int, int]:
        """Return the number of live rows with a version from ``swept`` on, and the sum of their hashes."""
        query = (
            f"SELECT count(*), coalesce(sum(row >> {_HALF}), 0), coalesce(sum(row & "
            f"{2**_HALF - 1}), 0) FROM fold "
            "WHERE row IS NOT NULL AND version >= ?"
        )
        count, high, low = self.file.execute(query, [swept]).fetchone()
        return count, ((high << _HALF) + low) % _MODULUS

    def differing(self, rows: Iterable[KeptRow], swept: int, most: int) -> Iterator[KeyDifference]:
        """Yield the first ``most`` keys that are extra in the store, different in it, or missing from it."""
        found = 0
        for key, version, values in rows:
            at, hashed = self.digester.row(key, version, values)
            self.file.execute("INSERT OR IGNORE INTO seen VALUES (?)", [at])
            wanted = self.file.execute("SELECT version, row FROM fold WHERE hash = ?", [at]).fetchone()
            why = why_differs(version, hashed, wanted, swept)
            if why is not None and found < most:
                found += 1
                yield KeyDifference(key, why)
        lost = self.file.execute(
            "SELECT key, version FROM fold WHERE row IS NOT NULL AND version >= ? AND hash NOT IN (SELECT "
            "hash FROM seen) ORDER BY key LIMIT ?",
            [swept, most - found],
        )
        for key, version in lost:
            yield KeyDifference(key, f"the store has not version {version}")


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


@contextmanager
def _fold(digester: Digester, shaper: RowShaper, decoder: RowDecoder) -> Iterator[_NewestOfKeys]:
    with tempfile.TemporaryDirectory(prefix="hub-verify-") as folder:
        fold = _NewestOfKeys(Path(folder) / "fold.db", digester, shaper, decoder)
        try:
            yield fold
        finally:
            fold.file.close()
