"""[shell] Thread that continuously verifies views: compares a store's rows at one moment with the changelog's
fold.

A turn verifies one view in one store. It reads the fold on to the store's positions, a slice at a time, then
opens a snapshot of the store, reads the fold to exactly the snapshot's positions, hashes all its rows and
compares the sums. In regions that differ it compares key by key in the same snapshot. One fold serves all
stores of a changelog; a store that is behind the fold is compared when it has caught up.

The thread runs where the stores are open (a DuckDB file has one process) and takes ``share`` of a core: it
rests after each piece of work. While a snapshot is open it rests less (``_CUT_SHARE``), and not at all where
the snapshot blocks the applier (DuckDB). Memory does not grow with the view, except for the key hashes of the
regions that are compared key by key.

Folds are files in ``home``/proof. They are disposable: a missing, corrupt or outdated one is rebuilt from the
log.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import orjson

from hub.errors import Conflict, HubError, NotFound, PeerError
from hub.log import DAY_MS, Cluster, Reader, Writer, tombstones_kept_ms
from hub.materializers.changelog.row_decoder import RowDecoder, SchemaTexts
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import KeptRow, StoreSnapshot, ViewStore
from hub.materializers.stores.stored_row import Digester, RowShaper
from hub.materializers.types.avro_types import AvroType
from hub.materializers.verification.changelog_fold import ChangelogFold, RowHasher
from hub.materializers.verification.fingerprint import (
    MOST_NAMED,
    MOST_NEEDED_S,
    MOST_WALKED,
    SOON_S,
    TELL_S,
    ComparisonResult,
    CpuBudget,
    Fingerprint,
    VerificationState,
    VerificationStatus,
    aged,
    compared,
    forgotten,
    named,
    record,
    region_of,
)
from hub.materializers.verification.verify import KeyDifference, why_differs
from hub.record import Positions, lag_records

log = logging.getLogger(__name__)

_RECORDS, _ROWS = 2_000, 500
# Longest time of reading the log before the next view's turn.
_SLICE_S = 2.0
_SILENCE_S = 15.0
_POLL_S = 0.5
# Folds that are open at the same time; each one takes some memory.
_MOST_OPEN = 16
# A snapshot is opened when at most this many records remain to be read.
_NEAR = 5_000
# Share of a core while a snapshot is open: the database keeps old rows for it.
_CUT_SHARE = 0.25
_LONGEST_REST_S = 5.0
# Pause before the next look at a store that was not far enough or was rebuilt.
_AGAIN_S = 2.0
# A compacted log drops a key's tombstone after delete.retention.ms (a day); a fold that was not read for half
# of that is rebuilt.
_LOOKS, _LOOK_S = 2, 0.5


class VerificationLog(Cluster, Protocol):
    def reader(self) -> Reader: ...

    def writer(self) -> Writer: ...


@dataclass(frozen=True, slots=True)
class VerifiableView:
    """A view in a store as its readers see it.

    ``store`` is None while the store is closed; ``why``: the reason why the view cannot be verified now.
    """

    view: str
    table: str
    changelog: str
    store: ViewStore | None
    why: str = ""


class CheckedStoreThread(Protocol):
    """Thread of one store."""

    @property
    def name(self) -> str: ...

    def provable(self) -> tuple[Sequence[VerifiableView], str]:
        """Return the store's views, and why the store does not answer ("" while it does)."""


@dataclass
class _FirstRead:
    """First read of a changelog: when it began, the records to read then, and the fewest left since."""

    began_s: float
    first: int
    left: int
    needs_s: float = 0.0

    def went_on(self, left: int, now_s: float) -> None:
        """Update the estimated duration. Without progress the estimate stays as it is."""
        if left < self.left:
            self.left = left
            # Hashing the store's rows takes about as much work again.
            self.needs_s = 2 * (now_s - self.began_s) * self.first / (self.first - left)


@dataclass
class _ViewTurn:
    """One view in one store: its status, and the time of the next look."""

    proof: VerificationStatus
    next_s: float = 0.0
    cost_s: float = 0.0
    away: bool = False
    reading: _FirstRead | None = None


@dataclass
class _FollowedChangelog:
    """A changelog that is read continuously."""

    fold: ChangelogFold
    hasher: RowHasher
    begun: Positions
    kept_ms: int


@dataclass
class ContinuousVerifier:
    """``share``: of a core. ``every_s``: pause between two comparisons of a view in a store, longer where
    they cost more.
    """

    cluster: VerificationLog
    schemas: SchemaTexts
    keepers: Sequence[CheckedStoreThread]
    folder: Path
    share: float
    every_s: float
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    rest: Callable[[float], object] = time.sleep
    turns: dict[tuple[str, str], _ViewTurn] = field(default_factory=dict)
    folds: dict[str, _FollowedChangelog] = field(default_factory=dict)
    told: dict[str, tuple[tuple[tuple[str, VerificationState], ...], int, float]] = field(
        default_factory=dict
    )
    looked_s: float = field(default_factory=time.monotonic)
    reader: Reader | None = None
    writer: Writer | None = None
    clock: CpuBudget = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.clock = CpuBudget(self.share or 1.0)

    # ---- the thread

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop``. With a share of 0, only withdraw the earlier reports."""
        self._stop, self.rest = stop, stop.wait
        if not self.share:
            self._forgotten(stop)
            return
        said = ""
        try:
            while not stop.wait(_POLL_S):
                try:
                    self.step()
                    said = ""
                except HubError as error:
                    log.debug("views are not proved now: %s", error.message)
                except Exception as error:  # an internal error must not end the thread
                    if repr(error) != said:
                        log.exception("proving views")
                    said = repr(error)
        finally:
            self.close()

    def _forgotten(self, stop: threading.Event) -> None:
        while not stop.wait(_POLL_S):
            try:
                if self.cluster.partition_counts([PROGRESS_TOPIC]):
                    self.writer = self.writer or self.cluster.writer()
                    self.writer.append([forgotten(each.name) for each in self.keepers])
                    break
            except HubError as error:
                log.debug("not told that nothing is proved: %s", error.message)
            stop.wait(_LONGEST_REST_S)
        self.close()

    def close(self) -> None:
        for each in self.folds.values():
            each.fold.close()
        self.folds.clear()
        self._forget_reader()
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def step(self) -> None:
        """Take the turn that is overdue for longest, and report changes."""
        began_s, worked_s = time.thread_time(), self.clock.worked_s
        views = self._look()
        now_s = time.monotonic()
        due = [key for key in views if self.turns[key].next_s <= now_s]
        if due:
            key = min(due, key=lambda each: self.turns[each].next_s)
            self._take(key, views[key])
        # CPU time of looking and scheduling; the other work is accounted for where it is done.
        self.clock.work(max(0.0, time.thread_time() - began_s - (self.clock.worked_s - worked_s)))
        self._tell()

    # ---- views

    def _look(self) -> dict[tuple[str, str], VerifiableView]:
        """Return the views that can be verified; record the reason for each of the others."""
        now_ms, found = self.now_ms(), dict[tuple[str, str], VerifiableView]()
        known: set[tuple[str, str]] = set()
        for keeper in self.keepers:
            views, down = keeper.provable()
            if down:  # the store's views are unknown now, but these existed
                known |= {key for key in self.turns if key[0] == keeper.name}
                for key in [each for each in known if each[0] == keeper.name]:
                    self._away(key, f"the store does not answer: {down}")
                continue
            for each in views:
                key = keeper.name, each.view
                known.add(key)
                turn = self.turns.get(key)
                if turn is None or turn.proof.table != each.table:
                    why = "" if turn is None else f"readers get {each.table} since just now: "
                    fresh = VerificationStatus(
                        each.view, each.table, reason=f"{why}not compared yet", since_ms=now_ms
                    )
                    self.turns[key] = _ViewTurn(fresh)
                if each.why or each.store is None:
                    self._away(key, each.why or "the store is not open")
                else:
                    found[key] = each
        self.turns = {key: turn for key, turn in self.turns.items() if key in known}
        self._age()
        for key, turn in self.turns.items():
            if key in found and turn.away:
                turn.away, turn.next_s = False, 0.0
                self._say(key, VerificationState.OPEN, "it can be looked at again: not compared since")
        return found

    def _age(self) -> None:
        for turn in self.turns.values():
            turn.proof = aged(turn.proof, self.every_s, turn.cost_s, self.now_ms())

    def _away(self, key: tuple[str, str], why: str) -> None:
        self.turns[key].away = True
        self._say(key, VerificationState.UNKNOWN, why)

    def _say(self, key: tuple[str, str], state: VerificationState, reason: str) -> None:
        turn = self.turns[key]
        turn.proof = turn.proof.now(state, reason[:500], self.now_ms())

    def _forget_reader(self) -> None:
        if self.reader is not None:
            with suppress(HubError):
                self.reader.close()
            self.reader = None

    # ---- a turn

    def _take(self, key: tuple[str, str], each: VerifiableView) -> None:
        turn, store = self.turns[key], each.store
        if store is None:
            return
        before_s, began_s = self.clock.worked_s, time.monotonic()
        turn.next_s = began_s + _AGAIN_S
        try:
            found = self._compared(key, each, store)
            if found is None:
                return  # not yet: the reason is recorded
            was = turn.proof.state
            turn.proof = compared(turn.proof, found, self.now_ms())
            if turn.proof.state is VerificationState.DIFFERS and was is not VerificationState.DIFFERS:
                log.error(
                    "view %s: store %s is not what its changelog says: %s",
                    *(each.view, key[0], named(found.keys) or turn.proof.reason),
                )
            elif turn.proof.state is VerificationState.MATCHES and was is VerificationState.DIFFERS:
                log.info("view %s: store %s is what its changelog says again", each.view, key[0])
            turn.cost_s, turn.reading = (self.clock.worked_s - before_s) / self.share, None
            turn.next_s = time.monotonic() + self.every_s
        except (NotFound, Conflict) as error:  # rebuilt, or not there yet
            self._say(key, VerificationState.OPEN, error.message)
        except HubError as error:
            self._forget_reader()
            if (fold := self.folds.pop(each.changelog, None)) is not None:
                fold.fold.close()
            self._say(key, VerificationState.UNKNOWN, error.message)
            turn.next_s = time.monotonic() + min(self.every_s, 5.0)

    def _compared(
        self, key: tuple[str, str], each: VerifiableView, store: ViewStore
    ) -> ComparisonResult | None:
        """Return a comparison; None when the fold or the store is not far enough yet."""
        with store.cut(each.table) as cut:
            topic_id, types, at = cut.topic_id, cut.types, cut.positions
        description = self.cluster.described([each.changelog]).get(each.changelog)
        if description is None or description.topic_id != topic_id:
            raise Conflict(
                "the changelog was made anew, and the store does not follow that one yet", code="HUB-1915"
            )
        identity = _identity(each.changelog, topic_id, types)
        fold = self._fold(each.changelog, identity, types)
        folded = fold.fold.positions or Positions()
        if not at.covers(folded.of_topics([each.changelog])):
            behind = lag_records(folded, at)
            self._behind(key, f"the store is {behind:,} records behind what was read of the changelog")
            return None
        end = self.cluster.end_offsets([each.changelog])
        waiting = lag_records(end, at)
        if waiting > _NEAR * 2:
            self._behind(key, f"the store catches up: {waiting:,} records")
            return None
        if lag_records(at, folded) > _NEAR and not self._read(fold, at, self._deadline()):
            left = lag_records(at, fold.fold.positions or Positions())
            self._goes_on(self.turns[key], left)
            self._behind(key, f"the changelog is read: {left:,} records to go")
            self.turns[key].next_s = time.monotonic()  # after the turns that are due
            return None
        for look in range(_LOOKS):
            with store.cut(each.table) as cut:
                if _identity(each.changelog, cut.topic_id, cut.types) != identity:
                    raise Conflict("the table is made anew or got other columns just now", code="HUB-1915")
                if lag_records(cut.positions, fold.fold.positions or Positions()) > 10 * _NEAR:
                    self.turns[key].next_s = time.monotonic()  # after the turns that are due
                    return None
                if not self._read(fold, cut.positions, None):
                    return None
                found = self._scanned(fold, cut, paced=isinstance(store, Store))
            fold.fold.note_current(self.now_ms())
            if not found.regions:
                return found
            if not fold.fold.is_consistent(cut.swept):
                self._drop(each.changelog)
                raise Conflict(
                    "the fold of the changelog was not what its sums said: it is read anew", code="HUB-1915"
                )
            if look + 1 < _LOOKS:
                self.rest(_LOOK_S)
        return found

    def _behind(self, key: tuple[str, str], reason: str) -> None:
        """Record that the store is behind, unless it was compared recently: within its interval that is
        expected.
        """
        turn = self.turns[key]
        recent = turn.proof.compared_ms is not None and self.now_ms() - turn.proof.compared_ms < 1000 * (
            self.every_s + 30
        )
        if turn.proof.state is VerificationState.DIFFERS or (
            turn.proof.state is VerificationState.MATCHES and recent
        ):
            return
        self._say(key, VerificationState.OPEN, reason)

    def _goes_on(self, turn: _ViewTurn, left: int) -> None:
        now_s = time.monotonic()
        if turn.reading is None or left > turn.reading.first:
            turn.reading = _FirstRead(now_s, left, left)
        turn.reading.went_on(left, now_s)

    def _needs_s(self, turn: _ViewTurn) -> float:
        """Estimated seconds until the comparison; all views take turns."""
        cycle_s = self.every_s + sum(each.cost_s for each in self.turns.values())
        return min(MOST_NEEDED_S, cycle_s + (0.0 if turn.reading is None else turn.reading.needs_s))

    # ---- the log

    def _deadline(self) -> float:
        return time.monotonic() + _SLICE_S

    def _fold(self, changelog: str, identity: str, types: Mapping[str, AvroType]) -> _FollowedChangelog:
        """Return the fold of a changelog, rebuilt if it is of another log or was not read for too long."""
        begin = self.cluster.beginning_offsets([changelog])
        known = self.folds.pop(changelog, None)
        if known is not None and known.fold.identity != identity:
            known.fold.close()
            known = None
        if known is None:
            self._tidy()
            hasher = RowHasher(Digester(types), RowShaper(types), RowDecoder(self.schemas))
            file = ChangelogFold(self.folder / f"{changelog}.db", identity)
            known = _FollowedChangelog(
                file, hasher, begin, tombstones_kept_ms(self.cluster, changelog) or DAY_MS
            )
        at, old_ms = known.fold.positions, self.now_ms() - known.fold.current_ms
        if at is not None and known.fold.current_ms and (old_ms > known.kept_ms // 2 or not at.covers(begin)):
            known.fold.clear()
            known = replace(known, fold=ChangelogFold(known.fold.path, identity))
        self.folds[changelog] = known  # the last entry is the one used last
        while len(self.folds) > _MOST_OPEN:
            self.folds.pop(next(iter(self.folds))).fold.close()
        return replace(known, begun=begin)

    def _tidy(self) -> None:
        """Delete the files of changelogs that no longer exist."""
        unused = [path for path in self.folder.glob("*.db") if path.stem not in self.folds]
        topics = self.cluster.described(path.stem for path in unused)
        for path in unused:
            if path.stem not in topics:
                for each in self.folder.glob(f"{path.name}*"):
                    each.unlink(missing_ok=True)

    def _drop(self, changelog: str) -> None:
        known = self.folds.pop(changelog, None)
        if known is not None:
            known.fold.clear()

    def _read(self, fold: _FollowedChangelog, end: Positions, deadline_s: float | None) -> bool:
        """Read the fold up to ``end`` and return whether it got there; it may not with a deadline. Raises
        PeerError.
        """
        at = fold.begun.advanced(fold.fold.positions or Positions())
        if at.covers(end):
            return True
        if self.reader is None:
            self.reader = self.cluster.reader()
        reader, heard_s = self.reader, time.monotonic()
        left = _left(at, end)
        reader.assign(left)
        try:
            while len(left):
                if self._stop.is_set() or (deadline_s is not None and time.monotonic() > deadline_s):
                    return False
                began_s = time.thread_time()
                records = reader.poll(_RECORDS, 0.5)
                reached = Positions({tp: min(offset, end.get(tp)) for tp, offset in reader.position()})
                moved = not at.covers(reached)
                at = at.advanced(reached)
                mine = [each for each in records if each.offset < end.get(each.topic_partition)]
                fold.fold.take(fold.hasher.rows(mine), at)
                before, left = left, _left(at, end)
                if len(left) < len(before):  # a partition at its end need not be read further
                    reader.assign(left)
                now_s = time.monotonic()
                if moved:
                    heard_s = now_s
                elif now_s - heard_s > _SILENCE_S:
                    raise PeerError(
                        f"the changelog cannot be read on from {at}", hint="is Kafka there? hub doctor"
                    )
                self._work(time.thread_time() - began_s, self.share if deadline_s is not None else 1.0)
        finally:
            reader.assign(Positions())  # an idle reader fetches nothing
        return True

    # ---- the store

    def _scanned(self, fold: _FollowedChangelog, cut: StoreSnapshot, *, paced: bool) -> ComparisonResult:
        """Compare all rows of a snapshot with the fold; find the keys that differ."""
        wanted, store = fold.fold.sums.fingerprint(cut.swept), Fingerprint()
        hashes = fold.hasher.digester.row
        for some in self._paced(cut.rows(), paced):
            for key, version, values in some:
                store.add(*hashes(key, version, values))
        regions = wanted.differing(store)
        if not regions:
            return ComparisonResult(wanted, store, str(cut.positions))
        return ComparisonResult(
            wanted, store, str(cut.positions), tuple(regions), tuple(self._walked(fold, cut, regions, paced))
        )

    def _walked(
        self, fold: _FollowedChangelog, cut: StoreSnapshot, regions: Sequence[int], paced: bool
    ) -> list[KeyDifference]:
        """Return the first keys that differ: extra in the store, different in it, or missing from it."""
        walked: dict[int, set[int]] = {region: set() for region in regions[:MOST_WALKED]}
        found: list[KeyDifference] = []
        for some in self._paced(cut.rows(), paced):
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

    def _paced(self, rows: Iterator[KeptRow], paced: bool) -> Iterator[list[KeptRow]]:
        """Yield the rows in chunks, with rest between them."""
        while not self._stop.is_set():
            began_s = time.thread_time()
            some = list(islice(rows, _ROWS))
            if not some:
                return
            yield some
            self._work(time.thread_time() - began_s, _CUT_SHARE if paced else 1.0)
        raise Conflict("the applier stops", code="HUB-1915")

    def _work(self, cpu_s: float, share_now: float) -> None:
        """Account for CPU time and rest for it at ``share_now``; the remainder is owed until the snapshot is
        closed.
        """
        self.clock.work(cpu_s)
        most_s = cpu_s * (1 / share_now - 1)
        if most_s > 0:
            self._rest(self.clock.rest(min(most_s, _LONGEST_REST_S)))
        if time.monotonic() - self.looked_s > TELL_S:
            # During a long comparison, keep reporting on the other views.
            self._age()
            with suppress(HubError):
                self._tell_due()

    def _rest(self, seconds: float) -> None:
        if seconds > 0:
            self.rest(seconds)

    # ---- reporting

    def _tell(self) -> None:
        self._rest(self.clock.rest(_LONGEST_REST_S))
        self._tell_due()

    def _tell_due(self) -> None:
        now_s, now_ms = time.monotonic(), self.now_ms()
        self.looked_s, due = now_s, []
        for keeper in self.keepers:
            proofs = [
                replace(turn.proof, needs_s=self._needs_s(turn))
                for (store, _), turn in sorted(self.turns.items(), key=lambda each: each[0])
                if store == keeper.name
            ]
            if not proofs and keeper.name not in self.told:
                continue
            states = tuple((each.view, each.state) for each in proofs)
            compared_ms = max((each.compared_ms or 0 for each in proofs), default=0)
            before, known_ms, at_s = self.told.get(keeper.name, ((), 0, 0.0))
            # A further match can wait: a record holds all views of a store and goes into every store.
            pause_s = TELL_S if compared_ms == known_ms else SOON_S
            if states != before or now_s - at_s > pause_s:
                due.append((keeper.name, (states, compared_ms, now_s), record(keeper.name, proofs, now_ms)))
        if not due or not self.cluster.partition_counts([PROGRESS_TOPIC]):
            return
        if self.writer is None:
            self.writer = self.cluster.writer()
        self.writer.append([new for _, _, new in due])
        self.told |= {name: said for name, said, _ in due}


def _left(at: Positions, end: Positions) -> Positions:
    """Return the positions of the partitions that are not at their end yet."""
    return Positions({tp: at.get(tp) for tp, offset in end if at.get(tp) < offset})


def _identity(changelog: str, topic_id: str, types: Mapping[str, AvroType]) -> str:
    columns = hashlib.blake2b(orjson.dumps(list(types.items())), digest_size=8).hexdigest()
    return f"{changelog} {topic_id} {columns}"
