"""Continuous verification: it finds every kind of difference by itself, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest
import store_contract
from changelog import CHANGELOG, Bench, schema
from hypothesis import given
from hypothesis import strategies as st

from hub.alerts.model.alert_state import AlertingState as Alerts
from hub.alerts.model.alert_state import NotificationRoute
from hub.alerts.model.rules import RuleChange, RuleChanges, Verdict
from hub.alerts.model.state_machine import step as judge
from hub.errors import PeerError
from hub.materializers.applying.applier import Applier
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.materializers.stores.stored_row import key_hash
from hub.materializers.verification import verification_status as proof_module
from hub.materializers.verification.changelog_fold import ChangelogFold
from hub.materializers.verification.continuous_check import ContinuousVerifier
from hub.materializers.verification.fingerprint import (
    CpuBudget,
    Fingerprint,
    FingerprintSums,
    hashes_of,
    region_of,
)
from hub.materializers.verification.metrics import families
from hub.materializers.verification.turns import FirstRead, VerifiableView
from hub.materializers.verification.verification_status import (
    PREFIX,
    VerificationState,
    VerificationStatus,
    aged,
    observe_unverified,
    observe_verifications,
    reported_verifications,
    rows_of,
)
from hub.record import Positions

KEY = ("other", "v")
ROWS = {1: "row", 2: "other"}


class Keeper:
    """A store's thread whose state the test sets."""

    def __init__(self, name: str, store: Any, changelog: str = CHANGELOG, table: str = "v") -> None:
        self.name, self.store, self.changelog, self.table = name, store, changelog, table
        self.down = self.why = ""

    def provable(self) -> tuple[list[VerifiableView], str]:
        if self.down:
            return [], self.down
        return [VerifiableView("v", self.table, self.changelog, self.store, self.why)], ""


class World(Bench):
    """A changelog, an applier of another store, and a verifier of that store."""

    def __init__(self, folder: Path, kind: str = "sqlite") -> None:
        super().__init__(folder)
        self.folder, self.now = folder, 10**12
        self.other = store_contract.opened_in(kind, folder / "other")
        self.other_applier = Applier(self.cluster, self.schemas, self.other)
        self.keeper = Keeper("other", self.other)
        self.prover = self.started()
        self.write_history()
        self.other_applier.follow([self.view])

    def started(self, *more: Keeper) -> ContinuousVerifier:
        made = ContinuousVerifier(
            self.cluster, self.schemas, [self.keeper, *more], self.folder / "proof", 1.0, 60.0
        )
        made.now_ms, made.rest = (lambda: self.now), (lambda _seconds: None)
        return made

    def applied(self) -> World:
        while self.other_applier.step(0):
            pass
        return self

    def proved(self, key: tuple[str, str] = KEY) -> VerificationStatus:
        """Take one more turn and return the status."""
        self.prover.step()
        self.prover.turns[key].next_s = 0.0
        self.prover.step()
        self.prover.step()
        return self.prover.turns[key].proof

    def stored(self) -> dict[str, int]:
        with self.other.cut("v") as cut:
            return {key: version for key, version, _ in cut.rows()}

    def told(self) -> dict[str, Any]:
        reader = self.cluster.reader()
        reader.assign(Positions.of([(PROGRESS_TOPIC, 0, 0)]))
        records = reader.poll(10_000, 0.0)
        return {
            str(each.key, "utf-8"): orjson.loads(each.value)
            for each in records
            if each.key is not None and each.value is not None
        }

    def close(self) -> None:
        self.prover.close()
        self.store.close()
        self.other.close()


@pytest.fixture(params=sorted(store_contract.URLS))
def any_world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = World(tmp_path, request.param)
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Any:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_store_that_applied_all_matches_and_goes_on_matching(any_world: World) -> None:
    found = any_world.applied().proved()
    assert (found.state, found.rows, found.regions) == (VerificationState.MATCHES, len(any_world.stored()), 0)
    assert found.matched_ms == found.compared_ms == any_world.now
    before = found.fingerprint
    any_world.write("k1", 1_000, {"points": 7})
    any_world.write("k2", 1_001, None)
    any_world.now += 60_000
    found = any_world.applied().proved()
    assert (
        found.state is VerificationState.MATCHES
        and found.fingerprint != before
        and found.compared_ms == any_world.now
    )
    assert found.positions == str(any_world.cluster.end_offsets([CHANGELOG]))


def test_every_kind_of_difference_is_found_and_its_key_is_named(any_world: World) -> None:
    assert any_world.applied().proved().state is VerificationState.MATCHES
    good = any_world.stored()
    stale, lost, edited = sorted(good)[:3]
    at = any_world.other.positions("v", "changelog")
    any_world.write(edited, 2_000, {"points": 1, "city": "Oslo"})
    any_world.applied()
    at = any_world.other.positions("v", "changelog")
    any_world.write(edited, 2_001, {"points": 1, "city": "Oslo"})
    at = any_world.cluster.end_offsets([CHANGELOG])
    planted = [
        RowVersion("ghost", 5, 0, 0, {"points": 1}),
        RowVersion(stale, good[stale] + 5_000, 0, 0, {"points": 1}),
        RowVersion(lost, good[lost] + 5_000, 0, 0, None),
        RowVersion(edited, 2_001, 0, 0, {"points": 2, "city": "Oslo"}),
    ]
    any_world.other.apply([ViewBatch("v", planted, at)])
    found = any_world.proved()
    assert found.state is VerificationState.DIFFERS and 1 <= found.regions <= 4
    assert {each.key: each.why for each in found.keys} == {
        "ghost": "the changelog has no such key, the store version 5",
        stale: f"version {good[stale]}, the store has version {good[stale] + 5_000}",
        lost: f"the store has not version {good[lost]}",
        edited: "another row of version 2001",
    }
    assert found.matched_ms is not None and found.reason.endswith("of 256 regions of keys differ")


def test_a_difference_is_told_until_it_is_gone(world: World) -> None:
    world.applied().proved()
    with sqlite3.connect(world.folder / "other" / "store.db") as by_hand:
        names = [row[0] for row in by_hand.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        (table,) = [name for name in names if name.startswith("view_v")] or [
            name for name in names if name.endswith("_v") or name == "v"
        ]
        key, points = by_hand.execute(
            f'SELECT key, points FROM "{table}" WHERE NOT _deleted AND points IS NOT NULL ORDER BY key'
        ).fetchone()
        by_hand.execute(f'UPDATE "{table}" SET points = points + 1 WHERE key = ?', [key])
    found = world.proved()
    assert (found.state, [each.key for each in found.keys]) == (VerificationState.DIFFERS, [key])
    since = found.since_ms
    world.now += 60_000
    found = world.proved()
    assert found.state is VerificationState.DIFFERS and found.since_ms == since
    told = world.told()
    assert told[f"{PREFIX}other"]["views"]["v"]["differing"][0]["key"] == key
    with sqlite3.connect(world.folder / "other" / "store.db") as by_hand:
        by_hand.execute(f'UPDATE "{table}" SET points = ? WHERE key = ?', [points, key])
    assert world.proved().state is VerificationState.MATCHES


def test_it_goes_on_where_it_was_after_a_restart_and_begins_anew_when_its_file_does_not_fit(
    world: World,
) -> None:
    world.applied().proved()
    world.prover.close()
    read: list[int] = []

    class Counting(ChangelogFold):
        def take(self, rows: Any, reached: Positions) -> None:
            read.append(len(rows))
            super().take(rows, reached)

    from hub.materializers.verification import followed_changelogs as prover_module

    original, prover_module.ChangelogFold = prover_module.ChangelogFold, Counting  # type: ignore[misc]
    try:
        world.prover = world.started()
        assert world.proved().state is VerificationState.MATCHES and read == []
        world.prover.close()
        (world.folder / "proof" / f"{CHANGELOG}.db").write_bytes(b"no file of ours")
        world.prover = world.started()
        assert world.proved().state is VerificationState.MATCHES and sum(read) > 20
        # The fold was not read for half of the time that tombstones are kept: removed rows would seem to
        # exist.
        world.prover.close()
        read.clear()
        world.now += 13 * 3_600_000
        world.prover = world.started()
        assert world.proved().state is VerificationState.MATCHES and sum(read) > 20
    finally:
        prover_module.ChangelogFold = original  # type: ignore[misc]


def test_sums_that_are_not_those_of_the_rows_are_no_alarm(world: World) -> None:
    world.applied().proved()
    world.prover.close()
    with sqlite3.connect(world.folder / "proof" / f"{CHANGELOG}.db") as by_hand:
        by_hand.execute("UPDATE sums SET count = count + 1 WHERE rowid = (SELECT min(rowid) FROM sums)")
    world.prover = world.started()
    assert world.proved().state is VerificationState.MATCHES


def test_what_a_later_generation_swept_out_is_no_difference_in_any_store(world: World) -> None:
    world.write("k1", (2 << GENERATION_SHIFT) + 1, {"points": 2})
    world.drain()
    world.applied()
    own = Keeper("serving", world.store)
    world.prover.keepers = [world.keeper, own]
    world.tell(3, generation=2)
    world.other_applier.step(0)  # the one has swept, the other has not heard of it yet
    assert len(world.stored()) == 1 < len(world.rows())
    for _ in range(2):
        found = world.proved()
        assert (found.state, found.rows) == (VerificationState.MATCHES, 1)
        found = world.proved(("serving", "v"))
        assert (found.state, found.rows) == (VerificationState.MATCHES, len(world.rows()))
    world.drain()
    assert world.proved(("serving", "v")).rows == 1


def test_a_changelog_that_is_made_anew_is_open_until_the_store_follows_it(any_world: World) -> None:
    any_world.applied().proved()
    any_world.cluster.delete_topic(CHANGELOG)
    any_world.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
    any_world.write("a", 7, {"points": 1})
    found = any_world.proved()
    assert found.state is VerificationState.OPEN and "recreated" in found.reason
    any_world.other_applier.follow([any_world.view])
    found = any_world.applied().proved()
    assert (found.state, found.rows) == (VerificationState.MATCHES, 1)


def test_nothing_of_a_changelog_that_no_longer_exists_is_left(world: World) -> None:
    """Its file has the keys of its rows, and is open until then."""
    world.applied().proved()
    assert [each.name for each in (world.folder / "proof").glob("*.db")] == [f"{CHANGELOG}.db"]
    world.cluster.delete_topic(CHANGELOG)
    world.keeper.why = "the view was dropped"
    again = world.started()
    again.folds = world.prover.folds
    again.step()
    assert list((world.folder / "proof").iterdir()) == []


def test_new_columns_are_no_difference(world: World) -> None:
    world.applied().proved()
    world.schemas.texts.append(orjson.dumps(schema(("tier", ["null", "string"]))).decode())
    world.write("k3", 5_000, {"points": 1, "tier": "gold"}, schema_id=2)
    found = world.applied().proved()
    assert found.state is VerificationState.MATCHES, found


def test_a_compacted_changelog_is_no_difference(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction leaves each key's last record only, and no tombstone; the fold uses these alone."""
    for key in [f"k{n}" for n in range(40)]:  # no zombie writes last: verify cannot detect that either
        world.write(key, 9_000, None if key in ("k3", "k4") else {"points": 5})
    world.applied()
    newest = {each.key: each for log in world.cluster.logs[CHANGELOG] for each in log}
    plain = world.cluster.reader

    def compacted() -> Any:
        reader = plain()
        poll = reader.poll

        def left(limit: int, timeout_s: float) -> list[Any]:
            return [
                each for each in poll(limit, timeout_s) if newest[each.key] == each and each.value is not None
            ]

        monkeypatch.setattr(reader, "poll", left)
        return reader

    monkeypatch.setattr(world.cluster, "reader", compacted)
    found = world.proved()
    assert (found.state, found.rows) == (VerificationState.MATCHES, 38)


def test_a_store_that_is_down_or_stopped_or_catches_up_is_never_said_to_match(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.applied().proved().state is VerificationState.MATCHES
    world.keeper.down = "disk full"
    found = world.proved()
    assert (found.state, found.reason) == (VerificationState.UNKNOWN, "the store does not answer: disk full")
    assert found.matched_ms == world.now  # when it last did
    world.keeper.down, world.keeper.why = "", "the view is stopped in this store: a bad row"
    assert "a bad row" in world.proved().reason
    world.keeper.why = ""
    assert world.proved().state is VerificationState.MATCHES
    monkeypatch.setattr("hub.materializers.verification.continuous_check._NEAR", 10)
    for version in range(6_000, 6_100):
        world.write(f"k{version % 40}", version, {"points": version})
    world.now += 200_000
    found = world.proved()
    assert found.state is VerificationState.OPEN and found.reason == "the store catches up: 100 records"
    assert world.applied().proved().state is VerificationState.MATCHES


def test_a_store_behind_the_fold_waits_and_is_open_when_that_takes_long(world: World) -> None:
    world.drain()
    world.applied()
    own = Keeper("serving", world.store)
    world.prover.keepers = [world.keeper, own]
    assert (
        world.proved().state is VerificationState.MATCHES
        and world.proved(("serving", "v")).state is VerificationState.MATCHES
    )
    world.write("k5", 7_000, {"points": 1})
    world.drain()  # the other store does not take it
    assert world.proved(("serving", "v")).positions == str(world.cluster.end_offsets([CHANGELOG]))
    assert world.proved().state is VerificationState.MATCHES  # it was compared a moment ago
    world.now += 100_000
    found = world.proved()
    assert found.state is VerificationState.OPEN and "1 records behind" in found.reason
    assert world.applied().proved().state is VerificationState.MATCHES


def test_another_version_that_is_served_is_open_until_it_was_compared(world: World) -> None:
    world.applied().proved()
    world.keeper.table = "v@2"
    world.prover.step()
    found = world.prover.turns[KEY].proof
    assert found.state is VerificationState.OPEN and found.table == "v@2" and found.matched_ms is None


def test_a_log_that_cannot_be_read_is_unknown_and_a_match_ages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.applied().proved()

    def away(_topics: object) -> Positions:
        raise PeerError("Kafka does not answer")

    monkeypatch.setattr(world.cluster, "end_offsets", away)
    found = world.proved()
    assert (found.state, found.reason) == (VerificationState.UNKNOWN, "Kafka does not answer")
    monkeypatch.undo()
    found = world.proved()
    assert found.state is VerificationState.MATCHES
    assert aged(found, 60.0, 0.0, world.now + 380_000).state is VerificationState.MATCHES
    assert aged(found, 60.0, 0.0, world.now + 400_000).state is VerificationState.OPEN


def test_what_is_told_is_shown_until_nobody_tells_and_keys_only_to_readers(world: World) -> None:
    world.applied()
    at = world.other.positions("v", "changelog")
    world.other.apply([ViewBatch("v", [RowVersion("ghost", 5, 0, 0, {"points": 1})], at)])
    world.proved()
    told = world.told()
    (row,) = rows_of(told, world.now, lambda _view: True, lambda _view: True)
    assert (row["view"], row["store"], row["state"]) == ("v", "other", "DIFFERS")
    assert row["differing"] == [{"key": "ghost", "why": "the changelog has no such key, the store version 5"}]
    (row,) = rows_of(told, world.now, lambda _view: True, lambda _view: False)
    assert row["differing"] == [] and "ghost" not in str(row)
    assert rows_of(told, world.now, lambda _view: False, lambda _view: False) == []
    seen = observe_verifications(told, RuleChanges(), world.now, {"v": "crm"})
    assert [each.verdict for each in seen.observations] == [Verdict.BAD] and "ghost" not in str(seen)
    later = world.now + 100_000
    ((_, proof),) = reported_verifications(told, later)
    assert (proof.state, proof.reason) == (
        VerificationState.UNKNOWN,
        "the applier has not reported for 100 s",
    )
    assert observe_verifications(told, RuleChanges(), later, {}).observations[0].verdict is Verdict.UNKNOWN


def test_a_second_opinion_is_an_alert_and_a_series_too() -> None:
    told = {"versions:v": {"recomputed": {"state": "DIFFERS", "reason": "3 rows are others", "at_ms": 5}}}
    (seen,) = observe_verifications(told, RuleChanges(), 9, {}).observations
    assert seen.verdict is Verdict.BAD and "3 rows are others" in seen.summary
    (family,) = [each for each in families(told, 9) if each.name == "hub_view_recomputed_match"]
    assert [(each.labels, each.value) for each in family.samples] == [({"view": "v"}, 0.0)]
    for state, verdict in (("DIFFERS", Verdict.GOOD), ("UNKNOWN", Verdict.BAD)):
        told["versions:v"]["recomputed"] |= {"state": state, "reason": "its topic is gone"}
        (seen,) = observe_unverified(told, RuleChanges(), 9, {}, on=True).observations
        assert (seen.verdict, dict(seen.object)) == (verdict, {"view": "v"})
        (family,) = [each for each in families(told, 9) if each.name == "hub_view_state_unproved"]
        assert [each.value for each in family.samples] == [float(verdict is Verdict.BAD)]
    assert (
        seen.summary == "view v could not be computed again from its sources"
        and "its topic is gone" in seen.detail
    )


class Watched:
    """Alerts on the reports of a world's verifier, and on a silent verifier."""

    def __init__(self, world: World) -> None:
        self.world, self.alerts, self.changes, self.on = world, Alerts(), RuleChanges(), True

    def after(self, minutes: float, *, silent: bool = False) -> list[tuple[str, str, str]]:
        """Return (rule, phase, detail) after this time, in looks of ten seconds."""
        for _ in range(round(minutes * 6)):
            self.world.now += 10_000
            if not silent:
                self.world.prover.reported.clear()  # its own clock does not move here: make it report again
                self.world.prover.step()
            told, now = self.world.told(), self.world.now
            seen = [
                observe_verifications(told, self.changes, now, {"v": "crm"}),
                observe_unverified(told, self.changes, now, {"v": "crm"}, on=self.on),
            ]
            self.alerts, _ = judge(self.alerts, seen, [NotificationRoute((), ("ops",))], now)
        return [(each.rule, each.phase, each.detail) for each in self.alerts.alerts.values()]


def test_a_view_that_nothing_proves_for_an_hour_is_an_alert_until_it_is_proved(world: World) -> None:
    world.applied().proved()
    watched = Watched(world)
    assert watched.after(5) == []
    world.keeper.down = "disk full"
    ((rule, phase, why),) = watched.after(59)
    assert (rule, phase) == ("view-unproved", "pending")
    # Another reason, and a restart of the applier, which forgets the last match: the hour continues.
    world.keeper.down, world.keeper.why = "", "the view is stopped in this store: a bad row"
    world.prover.close()
    world.prover = world.started()
    ((rule, phase, why),) = watched.after(2)
    assert (rule, phase) == ("view-unproved", "firing")
    assert why == "UNKNOWN: the view is stopped in this store: a bad row"
    (alert,) = watched.alerts.alerts.values()
    labels = dict(alert.labels)
    assert (labels["view"], labels["store"], labels["owner"]) == ("v", "other", "crm")
    assert alert.summary == "store other of view v has not been compared with its changelog"
    world.keeper.why = ""
    assert world.proved().state is VerificationState.MATCHES
    assert watched.after(3) == []


def test_an_applier_that_is_silent_is_an_alert_too_but_not_where_views_are_not_to_be_proved(
    world: World,
) -> None:
    world.applied().proved()
    watched = Watched(world)
    watched.after(1)
    assert watched.after(61, silent=True)[0][1] == "pending"  # it is believed for 90 s
    ((rule, phase, why),) = watched.after(2, silent=True)
    assert (rule, phase) == ("view-unproved", "firing") and "the applier has not reported for" in why
    watched.on = False  # proof_core_share: 0
    assert watched.after(2, silent=True) == []
    watched.on, watched.changes = True, RuleChanges({"view-unproved": RuleChange(for_ms=60_000)})
    assert watched.after(2, silent=True)[0][1] == "firing"


def test_what_differs_was_compared_and_is_the_other_rules(world: World) -> None:
    world.applied()
    at = world.other.positions("v", "changelog")
    world.other.apply([ViewBatch("v", [RowVersion("ghost", 5, 0, 0, {"points": 1})], at)])
    world.proved()
    ((rule, phase, _),) = Watched(world).after(65)
    assert (rule, phase) == ("view-differs", "firing")


def test_a_changelog_that_takes_longer_to_read_has_the_time_that_it_says_and_no_more() -> None:
    reading = FirstRead(0.0, 1_000, 1_000)
    reading.went_on(1_000, 100.0)
    assert reading.needs_s == 0.0  # it stands
    reading.went_on(900, 1_000.0)  # a tenth of it
    assert reading.needs_s == 20_000.0
    reading.went_on(900, 9_000.0)
    assert reading.needs_s == 20_000.0  # stands again: no longer for that
    hour = 3_600_000
    open_ = VerificationStatus("v", "v", since_ms=hour, needs_s=3.0 * 3_600)

    def verdict(proof: VerificationStatus, now_ms: int) -> Verdict:
        told = {f"{PREFIX}other": {"store": "other", "at_ms": now_ms, "views": {"v": proof.body()}}}
        (seen,) = observe_unverified(told, RuleChanges(), now_ms, {}, on=True).observations
        (family,) = [each for each in families(told, now_ms) if each.name == "hub_view_state_unproved"]
        assert [each.value for each in family.samples] == [float(seen.verdict is Verdict.BAD)]
        return seen.verdict

    assert verdict(open_, 3 * hour - 1) is Verdict.UNKNOWN
    assert verdict(open_, 3 * hour) is Verdict.BAD  # and fires an hour later
    assert verdict(VerificationStatus("v", "v", since_ms=hour, needs_s=60.0), hour) is Verdict.BAD
    # A store that cannot be compared gets no extra time for a long comparison.
    assert verdict(open_.now(VerificationState.UNKNOWN, "the store is not open", hour), hour) is Verdict.BAD
    old = {key: value for key, value in open_.body().items() if key != "needs_s"}
    assert proof_module.verification_of("v", old).needs_s == 0.0


def test_how_long_it_takes_is_told_and_forgotten_when_it_was_compared(world: World) -> None:
    world.applied()
    world.prover.read_views()
    turn = world.prover.turns[KEY]
    turn.reads_on(1_000)
    assert turn.reading is not None
    turn.reading.began_s -= 500.0
    turn.reads_on(900)
    world.prover.report()

    def told() -> float:
        return float(world.told()[f"{PREFIX}other"]["views"]["v"]["needs_s"])

    assert 10_060 <= told() < 12_000
    assert world.proved().state is VerificationState.MATCHES
    world.prover.reported.clear()
    world.prover.report()
    assert 60 <= told() < 1_000


def test_a_comparison_that_takes_long_is_no_silence(world: World, monkeypatch: Any) -> None:
    world.applied().proved()
    monkeypatch.setattr("hub.materializers.verification.continuous_check._ROWS", 1)
    monkeypatch.setattr("hub.materializers.verification.continuous_check.REPORT_S", -1.0)
    told: list[int] = []
    tell = world.prover.report_due
    monkeypatch.setattr(world.prover, "report_due", lambda: (told.append(1), tell()))
    world.prover.turns[KEY].next_s = 0.0
    world.prover.step()
    assert len(told) > len(world.stored()), "told in the midst of it"


@given(
    st.lists(
        st.tuples(
            st.integers(0, 30), st.integers(1, 6), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
        ),
        max_size=60,
    ),
    st.integers(0, 2),
)
def test_sums_that_go_on_are_those_of_the_rows_that_are_left(
    changes: list[tuple[int, int, int | None]], swept: int
) -> None:
    sums, rows = FingerprintSums(), dict[int, tuple[int, int | None]]()
    for key, number, row in changes:
        at, version = key_hash(str(key)), (number // 3 << GENERATION_SHIFT) + number
        if at not in rows or version > rows[at][0]:
            if at in rows:
                sums.change(at, *rows[at], -1)
            rows[at] = version, row
            sums.change(at, version, row, 1)
    anew = Fingerprint()
    for at, (version, row) in rows.items():
        if row is not None and version >= swept << GENERATION_SHIFT:
            anew.add(at, row)
    assert not anew.differing(sums.fingerprint(swept << GENERATION_SHIFT))
    assert FingerprintSums(list(sums.changed())).fingerprint(0).value == sums.fingerprint(0).value


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_region_is_a_range_of_hashes(hashed: int) -> None:
    first, last = hashes_of(region_of(hashed))
    assert first <= hashed <= last


def test_the_share_of_a_core_is_paid_with_rest() -> None:
    clock = CpuBudget(0.1)
    clock.work(1.0)
    assert clock.rest(3.0) == 3.0 and clock.rest(100.0) == pytest.approx(6.0) and clock.rest(1.0) == 0.0
