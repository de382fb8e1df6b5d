"""[edge] sqlite3: the fold of a changelog in a file: the newest version of each key and the hash of its row.

The file outlives the process, so a verifier that restarts reads only newer records. The log is the source of
truth: when the file does not fit (another topic, other columns, a corrupt file, too long a pause in reading),
it is rebuilt from the log. Rows, sums and positions change in one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hub.errors import PeerError
from hub.materializers.changelog.record import key_of, version_of
from hub.materializers.changelog.row_decoder import DecodedRow, RowDecoder
from hub.materializers.stores.stored_row import Digester, RowShaper, key_hash, sources_text
from hub.materializers.verification.fingerprint import Fingerprint, FingerprintSums, KeyDifference, hashes_of
from hub.record import Positions, Record

_FORM = "1"
_SUMS = "generation INTEGER, region INTEGER, count INTEGER, sum TEXT"
_SOME = 500
_CACHE_KB = 4_000

# Hash of the key, version, hash of the row (None: deleted), key.
Row = tuple[int, int, int | None, str]


class ChangelogFold:
    """Fold of one changelog. Not thread-safe; every call raises PeerError (HUB-3063) when the file cannot be
    written.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """``identity``: which log it folds, and how; a file with another identity is cleared."""
        self.path, self.identity = path, identity
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._open()
            if self._meta("identity") != f"{_FORM} {identity}":
                self.clear()
                self._open()
        except sqlite3.OperationalError as error:
            raise _cannot(path, error) from None
        except sqlite3.DatabaseError:  # not a SQLite file any more
            self.clear()
            self._open()
        self.sums = self._known_sums()

    def _open(self) -> None:
        self.file = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode=WAL",
            "PRAGMA synchronous=NORMAL",
            f"PRAGMA cache_size=-{_CACHE_KB}",
            (
                "CREATE TABLE IF NOT EXISTS fold (hash INTEGER PRIMARY KEY, version INTEGER, "
                "row INTEGER, key TEXT)"
            ),
            f"CREATE TABLE IF NOT EXISTS sums ({_SUMS}, PRIMARY KEY (generation, region))",
            "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT)",
        ):
            self.file.execute(statement)
        if self._meta("identity") is None and self._meta("positions") is None:
            self._put("identity", f"{_FORM} {self.identity}")

    def _known_sums(self) -> FingerprintSums:
        cells = self.file.execute("SELECT generation, region, count, sum FROM sums")
        return FingerprintSums(
            (generation, region, count, int(total, 16)) for generation, region, count, total in cells
        )

    def _meta(self, name: str) -> str | None:
        found = self.file.execute("SELECT value FROM meta WHERE name = ?", [name]).fetchone()
        return None if found is None else str(found[0])

    def _put(self, name: str, value: str) -> None:
        self.file.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [name, value])

    @property
    def positions(self) -> Positions | None:
        """Positions up to which the log is folded; None before the first record."""
        text = self._meta("positions")
        return None if text is None else Positions.parse(text)

    @property
    def current_ms(self) -> int:
        """Time when the fold last covered all that a store covered, epoch milliseconds."""
        return int(self._meta("current_ms") or 0)

    def note_current(self, now_ms: int) -> None:
        with self._writing():
            self._put("current_ms", str(now_ms))

    def take(self, rows: Sequence[Row], reached: Positions) -> None:
        """Store newer rows (each key once) and the positions up to which the log is read with them."""
        before, sums = self.positions or Positions(), self.sums
        with self._writing():
            for start in range(0, len(rows), _SOME):
                some = rows[start : start + _SOME]
                marks = ",".join("?" * len(some))
                query = f"SELECT hash, version, row FROM fold WHERE hash IN ({marks})"
                old = {
                    at: (version, row)
                    for at, version, row in self.file.execute(query, [each[0] for each in some])
                }
                newer = [each for each in some if each[0] not in old or each[1] > old[each[0]][0]]
                for at, version, row, _ in newer:
                    if at in old:
                        sums.change(at, *old[at], -1)
                    sums.change(at, version, row, 1)
                self.file.executemany("INSERT OR REPLACE INTO fold VALUES (?, ?, ?, ?)", newer)
            self.file.executemany(
                "INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)",
                [(*cell, f"{total:x}") for *cell, total in sums.changed()],
            )
            self._put("positions", str(before.advanced(reached)))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self.file.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self.sums = FingerprintSums()
                with suppress(sqlite3.Error):
                    self.file.execute("ROLLBACK")
                    self.sums = self._known_sums()
                raise
            self.file.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise self._failed(error) from None

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise self._failed(error) from None

    def _failed(self, error: sqlite3.DatabaseError) -> PeerError:
        if not isinstance(error, sqlite3.OperationalError):
            self.clear()  # corrupt: rebuilt from the log
        return _cannot(self.path, error)

    def is_consistent(self, swept: int) -> bool:
        """Return whether the running sums equal those of the rows. Called before a difference is reported."""
        anew = Fingerprint()
        query = "SELECT hash, row FROM fold WHERE row IS NOT NULL AND version >= ?"
        with self._reading():
            for at, row in self.file.execute(query, [swept]):
                anew.add(at, row)
        return not anew.differing(self.sums.fingerprint(swept))

    def row(self, at: int) -> tuple[int, int | None] | None:
        """Return version and row hash (None: deleted) of a key, by its hash."""
        with self._reading():
            found = self.file.execute("SELECT version, row FROM fold WHERE hash = ?", [at]).fetchone()
        return None if found is None else (found[0], found[1])

    def begin_pass(self) -> None:
        """Begin a pass over the rows of a store."""
        with self._reading():
            self.file.execute("CREATE TEMP TABLE IF NOT EXISTS seen (hash INTEGER PRIMARY KEY)")
            self.file.execute("DELETE FROM seen")

    def note_present(self, hashes: Iterable[int]) -> None:
        """Note the hashes of keys that the store has; in a file, so memory does not grow with them."""
        with self._writing():
            self.file.executemany("INSERT OR IGNORE INTO seen VALUES (?)", ((at,) for at in hashes))

    def lost(self, region: int, swept: int, most: int) -> list[KeyDifference]:
        """Return the first ``most`` live rows of a region, by key, that were not seen in the store."""
        query = (
            "SELECT key, version FROM fold WHERE hash BETWEEN ? AND ? AND row IS NOT NULL AND version >= ? "
            "AND hash NOT IN (SELECT hash FROM seen) ORDER BY key LIMIT ?"
        )
        with self._reading():
            rows = self.file.execute(query, [*hashes_of(region), swept, most]).fetchall()
        return [KeyDifference(key, f"the store has not version {version}") for key, version in rows]

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self.file.close()

    def clear(self) -> None:
        """Clear the file; the next read begins at the log's start."""
        self.close()
        for each in (self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))):
            each.unlink(missing_ok=True)


def _cannot(path: Path, error: sqlite3.Error) -> PeerError:
    return PeerError(
        f'the file of the proof cannot be written: "{path}": {error}',
        hint="is there room on that disk? It may be deleted: it is made again from the changelog",
        code="HUB-3063",
    )


class RowHasher:
    """Converts changelog records to rows of the fold: only the newest version of each key is decoded.

    Raises HubFault for a record that is not a changelog row.
    """

    def __init__(self, digester: Digester, shaper: RowShaper, decoder: RowDecoder) -> None:
        self.digester, self.shaper, self.decoder = digester, shaper, decoder

    def rows(self, records: Iterable[Record]) -> list[Row]:
        newest: dict[str, tuple[int, Record]] = {}
        for record in records:
            key, version = key_of(record), version_of(record)
            if key not in newest or newest[key][0] < version:
                newest[key] = (version, record)
        decoded = self.decoder.rows([record for _, record in newest.values()])
        return [
            self._row(key, version, row)
            for (key, (version, _)), row in zip(newest.items(), decoded, strict=True)
        ]

    def _row(self, key: str, version: int, row: DecodedRow | None) -> Row:
        if row is None:
            return key_hash(key), version, None, key
        values = [*self.shaper.values(row), sources_text(row.get("_sources"))]
        at, hashed = self.digester.row(key, version, values)
        return at, version, hashed, key
