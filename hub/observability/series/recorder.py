"""[shell] One round each sampling interval: the moment, its samples and marks, one transaction.

Servers on machines of their own have a store each, with their own measurements. Of several servers on one
home folder, one writes: it holds the lock of the file; another one takes over when it ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import Metric

from hub.errors import PeerError
from hub.metrics.gauges import gauge
from hub.observability.series.catalog import METRICS, SeriesKind, SeriesObject
from hub.observability.series.database import SeriesDatabase
from hub.observability.series.marks import Mark, marks_of
from hub.observability.series.rollup import FINE, HOUR
from hub.observability.series.sampling import Before, Moment, Sample, sampled
from hub.observability.series.selection import SeriesSelection, select
from hub.runtime import repeating
from hub.times import epoch_ms

FILE = "series.db"
# Shortest interval between two rounds.
SHORTEST_SAMPLE_S = 1.0
# Objects that are kept by the hour only are sampled in every sixth round; retention is enforced as often.
COARSE_EVERY = 6
# Rounds between two selections in an estate over the limit.
SELECT_EVERY = 30


@dataclass(frozen=True, slots=True)
class SeriesStatus:
    """State of the store. ``left_out``: objects over the limit that are not kept. ``is_cut``: the limit of
    bytes deleted points before their retention. ``error``: why nothing is written now."""

    fine: int = 0
    coarse: int = 0
    left_out: int = 0
    bytes: int = 0
    is_cut: bool = False
    error: str | None = None


@dataclass
class SeriesRecorder:
    """Recorder of series. Use ``with recorder.running():``. ``most``: series that are kept finely; 0:
    none.
    """

    folder: Path
    moment: Callable[[], Moment]
    is_declared: Callable[[str], bool] = lambda _topic: False
    sample_s: float = 10.0
    most: int = 2_000
    most_bytes: int = 1_000_000_000
    now_ms: Callable[[], int] = epoch_ms
    database: SeriesDatabase | None = None
    status: SeriesStatus = field(default_factory=SeriesStatus)
    selection: SeriesSelection = field(default_factory=SeriesSelection)
    _before: Before = field(default_factory=Before)
    _marks: frozenset[Mark] = frozenset()
    _round: int = 0
    _lock: int | None = None

    @contextmanager
    def running(self) -> Iterator[SeriesRecorder]:
        """Run a round every ``sample_s`` for as long as the block runs."""
        try:
            with repeating(
                self.step, name="series", pause_s=self.pause_s, failed="series could not be written"
            ):
                yield self
        finally:
            self.close()

    def pause_s(self, _took_s: float) -> float:
        """Return the time until the middle of the next interval, so that a round that is some seconds late
        still falls into its own bucket."""
        interval_ms = max(1.0, self.sample_s * 1000)
        return (interval_ms - (self.now_ms() - interval_ms / 2) % interval_ms) / 1000

    def step(self) -> None:
        """Run one round. Raises PeerError when it cannot be written; ``status`` then has the reason."""
        try:
            self._step()
        except PeerError as error:
            self.status = SeriesStatus(
                *(self.status.fine, self.status.coarse, self.status.left_out, self.status.bytes),
                error=error.message,
            )
            raise

    def _step(self) -> None:
        if self.most <= 0:
            return
        if not self._holds_lock():
            self.status = SeriesStatus(error="another server on this home folder writes the series")
            return
        self.database = self.database or SeriesDatabase(self.folder / FILE)
        moment = self.moment()
        samples, self._before = sampled(moment, self._before)
        by_object: dict[SeriesObject, list[Sample]] = {}
        for sample in samples:
            by_object.setdefault(sample.object, []).append(sample)
        self._select(by_object)
        fine = [one for about in self.selection.fine for one in by_object.get(about, ())]
        self.database.add(fine)
        self._add_marks(self.database, moment)
        if self._round % COARSE_EVERY == 0:
            coarse = [one for about in self.selection.coarse for one in by_object.get(about, ())]
            self.database.add(coarse, (HOUR,))
            is_cut = self.database.prune(moment.at_ms, self.most_bytes)
            size = self.database.bytes()
            self.status = SeriesStatus(len(fine), len(coarse), self.selection.left_out, size, is_cut)
        self._round += 1

    def _select(self, by_object: Mapping[SeriesObject, list[Sample]]) -> None:
        # All metrics of a kind, sampled now or not: the limit holds in every round.
        sizes = {about: len(METRICS[about.kind]) for about in by_object}
        over = sum(sizes.values()) > self.most
        if over and self.selection.coarse and self._round % SELECT_EVERY:
            return  # a new object waits for the next selection
        rates = {
            sample.object.name: sample.value
            for samples in by_object.values()
            for sample in samples
            if sample.metric == "in_per_s" and sample.object.kind == SeriesKind.topic
        }
        self.selection = select(sizes, rates, self.is_declared, self.selection.fine, self.most)

    def _add_marks(self, database: SeriesDatabase, moment: Moment) -> None:
        marks = frozenset(each for each in marks_of(moment) if each.at_ms > moment.at_ms - HOUR.keep_ms)
        if new := marks - self._marks:
            database.add_marks(sorted(new))
        self._marks = marks

    def _holds_lock(self) -> bool:
        """Return whether this process may write; take the lock if nobody has it. A killed process leaves
        none.
        """
        if self._lock is not None:
            return True
        lock = os.open(self.folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        if self.database is not None:
            self.database.close()
            self.database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def sample_ms(self) -> int:
        return int(max(FINE.step_ms, self.sample_s * 1000))

    def families(self) -> Iterable[Metric]:
        """Yield the series of the store itself, for ``/metrics``."""
        status = self.status
        counts = {"fine": status.fine, "hour": status.coarse}
        yield gauge(
            "hub_series",
            "Series of charts by how they are kept: finely, or by the hour alone",
            ["kept"],
            (([kept], number) for kept, number in counts.items()),
        )
        yield gauge(
            "hub_series_left_out",
            "Topics and readers over series_most, whose charts are not kept",
            [],
            [([], status.left_out)],
        )
        yield gauge("hub_series_bytes", "Bytes of the store of charts", [], [([], status.bytes)])
        yield gauge(
            "hub_series_up", "1 while charts are recorded", [], [([], status.error is None and self.most > 0)]
        )
