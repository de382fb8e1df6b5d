"""[edge] sqlite3: the hub's own store of series, ``series.db`` in the home folder.

Rows of a level are ordered by time, then by series: a round writes its rows at the end of each level,
retention deletes at the beginning, and a range is read by one seek a bucket. A round is one transaction. WAL
mode: readers never wait for the writer, and a killed process leaves whole rounds.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub.errors import PeerError
from hub.formats.table import SERIES
from hub.observability.series.catalog import SeriesObject
from hub.observability.series.marks import Mark
from hub.observability.series.rollup import HOUR, LEVELS, SampleBucket, SeriesLevel, SeriesWindow
from hub.observability.series.sampling import Sample

log = logging.getLogger(__name__)

SeriesName = tuple[SeriesObject, str]
MOST_MARKS = 10_000
# Share of each level's span that is deleted at a time while the file is over its limit.
CUT_SHARE = 0.1
_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS series(
  id INTEGER PRIMARY KEY, object TEXT NOT NULL, metric TEXT NOT NULL, last_ms INTEGER NOT NULL,
  UNIQUE(object, metric));
CREATE TABLE IF NOT EXISTS marks(
  at_ms INTEGER NOT NULL, kind TEXT NOT NULL, object TEXT NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY(at_ms, kind, object, text)) WITHOUT ROWID;
"""
# low and high are NULL while a bucket has one sample: its total is all three.
_LEVEL = """
CREATE TABLE IF NOT EXISTS {0}(
  slot INTEGER NOT NULL, series INTEGER NOT NULL, count INTEGER NOT NULL, total REAL NOT NULL,
  low REAL, high REAL,
  PRIMARY KEY(slot, series)) WITHOUT ROWID;
"""
_ADD = """
INSERT INTO {0} VALUES (?, ?, 1, ?, NULL, NULL) ON CONFLICT(slot, series) DO UPDATE SET
  low = min(coalesce(low, total), excluded.total), high = max(coalesce(high, total), excluded.total),
  count = count + 1, total = total + excluded.total
"""
_ID = "SELECT id FROM series WHERE object = ? AND metric = ?"
_READ = """
WITH RECURSIVE slots(slot) AS (SELECT ? UNION ALL SELECT slot + 1 FROM slots WHERE slot + 1 < ?)
SELECT found.series, slots.slot, found.count, found.total,
  coalesce(found.low, found.total), coalesce(found.high, found.total)
FROM slots CROSS JOIN {0} AS found ON found.slot = slots.slot AND found.series IN ({1})
"""


class SeriesDatabase:
    """Writer of samples and marks, for one thread of one process. Raises PeerError (HUB-3097) when the file
    cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _translated(path):
            self._writer = self._opened()
            rows = self._writer.execute("SELECT id, object, metric FROM series")
            self._ids: dict[SeriesName, int] = {(_object(text), metric): id for id, text, metric in rows}
        self._written: set[int] = set()

    def _opened(self) -> sqlite3.Connection:
        """Open the file; one that is not a database, or of another format, is set aside."""
        try:
            return _connected(self.path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # locked, or the disk is full: the file may be whole
            log.error(
                "%s cannot be read (%s): charts start again, the file is kept as .damaged", self.path, error
            )
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.replace(part.with_name(f"{part.name}.damaged"))
        return _connected(self.path)

    def close(self) -> None:
        self._writer.close()

    # ---- writing

    def add(self, samples: Iterable[Sample], levels: Sequence[SeriesLevel] = LEVELS) -> None:
        """Add samples to ``levels``, in one transaction."""
        try:
            with _translated(self.path), self._writer:
                rows = [(self._id(each), each.at_ms, each.value) for each in samples]
                for level in levels:
                    step_ms = level.step_ms
                    self._writer.executemany(
                        _ADD.format(level.name), [(at_ms // step_ms, id, value) for id, at_ms, value in rows]
                    )
        except PeerError:
            self._ids.clear()  # new ids were rolled back
            raise
        self._written.update(id for id, *_ in rows)

    def _id(self, sample: Sample) -> int:
        name = (sample.object, sample.metric)
        id = self._ids.get(name)
        if id is None:
            id = self._writer.execute(
                "INSERT INTO series(object, metric, last_ms) VALUES (?, ?, ?) "
                "ON CONFLICT(object, metric) DO UPDATE SET last_ms = excluded.last_ms RETURNING id",
                (str(sample.object), sample.metric, sample.at_ms),
            ).fetchone()[0]
            self._ids[name] = id
        return id

    def add_marks(self, marks: Iterable[Mark]) -> None:
        """Add marks; those that are there already are not repeated."""
        rows = [(each.at_ms, each.kind, str(each.object), each.text) for each in marks]
        with _translated(self.path), self._writer:
            self._writer.executemany("INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?)", rows)

    def prune(self, now_ms: int, most_bytes: int) -> bool:
        """Delete what is older than its retention, and the oldest of each level while the file is over
        ``most_bytes``. Returns whether the limit made it delete anything."""
        with _translated(self.path), self._writer:
            self._writer.executemany(
                "UPDATE series SET last_ms = ? WHERE id = ?", [(now_ms, id) for id in self._written]
            )
            for level in LEVELS:
                self._delete_before(level, (now_ms - level.keep_ms) // level.step_ms)
            self._writer.execute("DELETE FROM marks WHERE at_ms < ?", (now_ms - HOUR.keep_ms,))
            self._writer.execute(
                "DELETE FROM marks WHERE at_ms < "
                "(SELECT at_ms FROM marks ORDER BY at_ms DESC LIMIT 1 OFFSET ?)",
                (MOST_MARKS - 1,),
            )
            self._forget_series(now_ms - HOUR.keep_ms)
        self._written.clear()
        cut = False
        while self.bytes() > most_bytes and self._cut():
            cut = True
        return cut

    def _delete_before(self, level: SeriesLevel, slot: int) -> int:
        return self._writer.execute(f"DELETE FROM {level.name} WHERE slot < ?", (slot,)).rowcount

    def _cut(self) -> bool:
        """Delete the oldest tenth of each level; return False when nothing is left."""
        deleted = 0
        with _translated(self.path), self._writer:
            for level in LEVELS:
                first, last = self._writer.execute(
                    f"SELECT min(slot), max(slot) FROM {level.name}"
                ).fetchone()
                if first is not None:
                    deleted += self._delete_before(level, first + 1 + int((last - first) * CUT_SHARE))
            oldest = self._writer.execute(f"SELECT min(slot) FROM {HOUR.name}").fetchone()[0]
            if oldest is not None:
                self._forget_series(oldest * HOUR.step_ms)
        return deleted > 0

    def _forget_series(self, before_ms: int) -> None:
        gone = self._writer.execute(
            "DELETE FROM series WHERE last_ms < ? RETURNING object, metric", (before_ms,)
        ).fetchall()
        for text, metric in gone:
            self._ids.pop((_object(text), metric), None)

    def bytes(self) -> int:
        """Return the bytes in use; pages of deleted rows are used again and do not count."""
        pages, free, size = (
            self._writer.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """Reader of the file, which may not exist yet. Each read has a connection of its own. Raises PeerError
    (HUB-3097)."""

    path: Path

    def read(
        self, names: Sequence[SeriesName], window: SeriesWindow, level: SeriesLevel
    ) -> dict[SeriesName, list[tuple[int, SampleBucket]]]:
        """Return the buckets of each series in a window, as (start in epoch ms, bucket), oldest first."""
        found: dict[SeriesName, list[tuple[int, SampleBucket]]] = {name: [] for name in names}
        first, last = window.start_ms // level.step_ms, -(-window.end_ms // level.step_ms)
        with self._reader() as reader:
            ids = {id: name for name in names for (id,) in reader.execute(_ID, (str(name[0]), name[1]))}
            statement = _READ.format(level.name, ",".join(map(str, ids)))
            for id, slot, *bucket in reader.execute(statement, (first, last)) if ids else ():
                found[ids[id]].append((slot * level.step_ms, SampleBucket(*bucket)))
        return found

    def objects(self, kind: str, since_ms: int) -> list[SeriesObject]:
        """Return the objects of a kind that were sampled since a time, to the minute."""
        with self._reader() as reader:
            rows = reader.execute(
                "SELECT DISTINCT object FROM series WHERE object LIKE ? AND last_ms >= ? ORDER BY object",
                (f"{kind}:%", since_ms),
            ).fetchall()
        return [_object(text) for (text,) in rows]

    def marks(self, start_ms: int, end_ms: int) -> list[Mark]:
        """Return the marks of a span, oldest first."""
        with self._reader() as reader:
            rows = reader.execute(
                "SELECT * FROM marks WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms", (start_ms, end_ms)
            ).fetchall()
        return [Mark(at_ms, kind, _object(about), text) for at_ms, kind, about, text in rows]

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        if not self.path.exists():
            raise PeerError(
                "no series are recorded yet", hint="load the page again in a moment", code="HUB-3097"
            )
        with _translated(self.path), closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as reader:
            reader.execute("PRAGMA query_only = 1")
            yield reader


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SERIES.version):
            raise sqlite3.DatabaseError(f"format version {version}, this release has {SERIES.version}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA journal_size_limit = 16000000")
        connection.executescript(_SCHEMA + "".join(_LEVEL.format(level.name) for level in LEVELS))
        connection.execute(f"PRAGMA user_version = {SERIES.version}")
    except BaseException:
        connection.close()
        raise
    return connection


def _object(text: str) -> SeriesObject:
    kind, _, name = text.partition(":")
    return SeriesObject(kind, name)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raise errors of SQLite as PeerError (HUB-3097)."""
    try:
        yield
    except sqlite3.Error as error:
        raise PeerError(
            f'the store of series "{path}": {error}',
            hint="free space and check the rights of the home folder; the charts continue by themselves",
            code="HUB-3097",
        ) from None
