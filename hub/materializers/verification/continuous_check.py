"""[shell] Thread that continuously verifies views: compares a store's rows at one moment with the changelog's
fold.

A turn verifies one view in one store. It reads the fold on to the store's positions, a slice at a time, then
opens a snapshot of the store, reads the fold to exactly the snapshot's positions, hashes all its rows and
compares the sums. In regions that differ it compares key by key in the same snapshot. One fold serves all
stores of a changelog; a store that is behind the fold is compared when it has caught up.

The thread runs where the stores are open (a DuckDB file has one process) and takes ``share`` of a core: it
rests after each piece of work. While a snapshot is open it rests less (``_CUT_SHARE``), and not at all where
the snapshot blocks the applier (DuckDB). Memory does not grow with the view.

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
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import orjson

from hub.errors import Conflict, HubError, NotFound
from hub.log import Log, Writer
from hub.materializers.changelog.row_decoder import SchemaTexts
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import KeptRow, ViewStore
from hub.materializers.types.avro_types import AvroType
from hub.materializers.verification.fingerprint import ComparisonResult, CpuBudget
from hub.materializers.verification.followed_changelogs import ChangelogFolds, FollowedChangelog
from hub.materializers.verification.snapshot_comparison import compare_rows
from hub.materializers.verification.turns import (
    CheckedStoreThread,
    LastReport,
    VerifiableView,
    ViewTurn,
    due_reports,
)
from hub.materializers.verification.verification_status import (
    MOST_NEEDED_S,
    REPORT_S,
    VerificationState,
    VerificationStatus,
    aged,
    compared,
    forgotten,
    named,
    record,
)
from hub.record import Positions, lag_records
from hub.times import epoch_ms

log = logging.getLogger(__name__)
_ROWS = 500
# Longest time of reading the log before the next view's turn.
_SLICE_S = 2.0
_POLL_S = 0.5
_TIDY_S = 30.0  # between looks for files of changelogs that no longer exist
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


@dataclass
class ContinuousVerifier:
    """``share``: of a core. ``every_s``: pause between two comparisons of a view in a store, longer where
    they cost more.
    """

    cluster: Log
    schemas: SchemaTexts
    keepers: Sequence[CheckedStoreThread]
    folder: Path
    share: float
    every_s: float
    now_ms: Callable[[], int] = epoch_ms
    rest: Callable[[float], object] = time.sleep
    turns: dict[tuple[str, str], ViewTurn] = field(default_factory=dict)
    reported: dict[str, LastReport] = field(default_factory=dict)
    looked_s: float = field(default_factory=time.monotonic)
    folds: ChangelogFolds = field(init=False)
    writer: Writer | None = None
    clock: CpuBudget = field(init=False)
    _stop: threading.Event = field(default_factory=threading.Event)
    _tidy_s: float = 0.0

    def __post_init__(self) -> None:
        self.clock = CpuBudget(self.share or 1.0)
        self.folds = ChangelogFolds(
            self.cluster,
            self.schemas,
            self.folder,
            lambda: self.now_ms(),
            lambda: self._stop.is_set(),
            lambda cpu_s, sliced: self._work(cpu_s, self.share if sliced else 1.0),
        )

    # ---- the thread

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop``. With a share of 0, only withdraw the earlier reports."""
        self._stop, self.rest = stop, stop.wait
        if not self.share:
            self._forgotten(stop)
            return
        last_error = ""
        try:
            while not stop.wait(_POLL_S):
                try:
                    self.step()
                    last_error = ""
                except HubError as error:
                    log.debug("views are not proved now: %s", error.message)
                except Exception as error:  # an internal error must not end the thread
                    if repr(error) != last_error:
                        log.exception("proving views")
                    last_error = repr(error)
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
                log.debug("the missing verification was not reported: %s", error.message)
            stop.wait(_LONGEST_REST_S)
        self.close()

    def close(self) -> None:
        self.folds.close()
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def step(self) -> None:
        """Take the turn that is overdue for longest, and report changes."""
        began_s, worked_s = time.thread_time(), self.clock.worked_s
        views = self.read_views()
        now_s = time.monotonic()
        due = [key for key in views if self.turns[key].next_s <= now_s]
        if due:
            key = min(due, key=lambda each: self.turns[each].next_s)
            self._take(key, views[key])
        # CPU time of looking and scheduling; the other work is accounted for where it is done.
        self.clock.work(max(0.0, time.thread_time() - began_s - (self.clock.worked_s - worked_s)))
        if now_s >= self._tidy_s:
            self._tidy_s = now_s + _TIDY_S
            self.folds.tidy()
        self.report()

    # ---- views

    def read_views(self) -> dict[tuple[str, str], VerifiableView]:
        """Return the views that can be verified; record the reason for each of the others."""
        now_ms, verifiable_views = self.now_ms(), dict[tuple[str, str], VerifiableView]()
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
                    self.turns[key] = ViewTurn(fresh)
                if each.why or each.store is None:
                    self._away(key, each.why or "the store is not open")
                else:
                    verifiable_views[key] = each
        self.turns = {key: turn for key, turn in self.turns.items() if key in known}
        self._age()
        for key, turn in self.turns.items():
            if key in verifiable_views and turn.away:
                turn.away, turn.next_s = False, 0.0
                self._set_state(key, VerificationState.OPEN, "it can be looked at again: not compared since")
        return verifiable_views

    def _age(self) -> None:
        for turn in self.turns.values():
            turn.proof = aged(turn.proof, self.every_s, turn.cost_s, self.now_ms())

    def _away(self, key: tuple[str, str], why: str) -> None:
        self.turns[key].away = True
        self._set_state(key, VerificationState.UNKNOWN, why)

    def _set_state(self, key: tuple[str, str], state: VerificationState, reason: str) -> None:
        turn = self.turns[key]
        turn.proof = turn.proof.now(state, reason[:500], self.now_ms())

    # ---- a turn

    def _take(self, key: tuple[str, str], each: VerifiableView) -> None:
        turn, store = self.turns[key], each.store
        if store is None:
            return
        before_s, began_s = self.clock.worked_s, time.monotonic()
        turn.next_s = began_s + _AGAIN_S
        try:
            comparison_result = self._compared(key, each, store)
            if comparison_result is None:
                return  # not yet: the reason is recorded
            was = turn.proof.state
            turn.proof = compared(turn.proof, comparison_result, self.now_ms())
            if turn.proof.state is VerificationState.DIFFERS and was is not VerificationState.DIFFERS:
                log.error(
                    "view %s: store %s differs from its changelog: %s",
                    *(each.view, key[0], named(comparison_result.keys) or turn.proof.reason),
                )
            elif turn.proof.state is VerificationState.MATCHES and was is VerificationState.DIFFERS:
                log.info("view %s: store %s equals its changelog again", each.view, key[0])
            turn.cost_s, turn.reading = (self.clock.worked_s - before_s) / self.share, None
            turn.next_s = time.monotonic() + self.every_s
        except (NotFound, Conflict) as error:  # rebuilt, or not there yet
            self._set_state(key, VerificationState.OPEN, error.message)
        except HubError as error:
            self.folds.close_one(each.changelog)
            self._set_state(key, VerificationState.UNKNOWN, error.message)
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
                "the changelog was recreated, and the store does not follow the new one yet", code="HUB-1915"
            )
        identity = _identity(each.changelog, topic_id, types)
        fold = self.folds.get(each.changelog, identity, types)
        folded = fold.fold.positions or Positions()
        if not at.covers(folded.of_topics([each.changelog])):
            behind = lag_records(folded, at)
            self._behind(
                key, f"the store is {behind:,} records behind the position that was read of the changelog"
            )
            return None
        end = self.cluster.end_offsets([each.changelog])
        waiting = lag_records(end, at)
        if waiting > _NEAR * 2:
            self._behind(key, f"the store catches up: {waiting:,} records")
            return None
        if lag_records(at, folded) > _NEAR and not self.folds.read(fold, at, time.monotonic() + _SLICE_S):
            left = lag_records(at, fold.fold.positions or Positions())
            self.turns[key].reads_on(left)
            self._behind(key, f"the changelog is read: {left:,} records to go")
            self.turns[key].next_s = time.monotonic()  # after the turns that are due
            return None
        return self._look_at_rows(key, each, store, fold, identity)

    def _look_at_rows(
        self,
        key: tuple[str, str],
        each: VerifiableView,
        store: ViewStore,
        fold: FollowedChangelog,
        identity: str,
    ) -> ComparisonResult | None:
        """Compare the rows of a snapshot; look again before reporting a difference."""
        paced = isinstance(store, Store)
        for look in range(_LOOKS):
            with store.cut(each.table) as cut:
                if _identity(each.changelog, cut.topic_id, cut.types) != identity:
                    raise Conflict("the table is being recreated or changes its columns", code="HUB-1915")
                if lag_records(cut.positions, fold.fold.positions or Positions()) > 10 * _NEAR:
                    self.turns[key].next_s = time.monotonic()  # after the turns that are due
                    return None
                if not self.folds.read(fold, cut.positions, None):
                    return None
                comparison_result = compare_rows(fold, cut, partial(self._paced, cut.rows, paced))
            fold.fold.note_current(self.now_ms())
            if comparison_result.equal:
                return comparison_result
            if not fold.fold.is_consistent(cut.swept):
                self.folds.clear(each.changelog)
                raise Conflict(
                    "the fold of the changelog did not match its sums: it is read again", code="HUB-1915"
                )
            if look + 1 < _LOOKS:
                self.rest(_LOOK_S)
        return comparison_result

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
        self._set_state(key, VerificationState.OPEN, reason)

    def _needs_s(self, turn: ViewTurn) -> float:
        """Estimated seconds until the comparison; all views take turns."""
        cycle_s = self.every_s + sum(each.cost_s for each in self.turns.values())
        return min(MOST_NEEDED_S, cycle_s + (0.0 if turn.reading is None else turn.reading.needs_s))

    # ---- the store

    def _paced(self, read: Callable[[], Iterator[KeptRow]], paced: bool) -> Iterator[list[KeptRow]]:
        """Yield the rows in chunks, with rest between them."""
        rows = read()
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
        if time.monotonic() - self.looked_s > REPORT_S:
            # During a long comparison, keep reporting on the other views.
            self._age()
            with suppress(HubError):
                self.report_due()

    def _rest(self, seconds: float) -> None:
        if seconds > 0:
            self.rest(seconds)

    # ---- reporting

    def report(self) -> None:
        self._rest(self.clock.rest(_LONGEST_REST_S))
        self.report_due()

    def report_due(self) -> None:
        self.looked_s = time.monotonic()
        stores = [each.name for each in self.keepers]
        due = due_reports(stores, self.turns, self.reported, self._needs_s, self.looked_s)
        if not due or not self.cluster.partition_counts([PROGRESS_TOPIC]):
            return
        if self.writer is None:
            self.writer = self.cluster.writer()
        now_ms = self.now_ms()
        self.writer.append([record(name, proofs, now_ms) for name, proofs, _ in due])
        self.reported |= {name: report for name, _, report in due}


def _identity(changelog: str, topic_id: str, types: Mapping[str, AvroType]) -> str:
    columns = hashlib.blake2b(orjson.dumps(list(types.items())), digest_size=8).hexdigest()
    return f"{changelog} {topic_id} {columns}"
