"""Completeness counts: sums detect what counts miss, offsets make writes idempotent, unknown is not lost."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.cli.monitor.completeness import bucket, lines
from hub.completeness.balances import CompletenessState, audit_of, differences
from hub.completeness.counts import (
    COUNTS_TOPIC,
    MOST_RUNS,
    Cell,
    Cells,
    CountEntry,
    Counts,
    Holes,
    MinuteHoles,
    covered,
    entry_of,
    id_of,
    named,
    runs_of,
)
from hub.completeness.counts_follower import row_of, series_of
from hub.completeness.minutes import minute_grid_of
from hub.completeness.receipts import entries_of
from hub.errors import CallerError, HubFault
from hub.record import NewRecord, Record, TopicPartition

MINUTE = 60_000
PLACE = TopicPartition("t", 0)
records = st.lists(st.tuples(st.integers(0, 5 * MINUTE), st.integers(0, 2**64 - 1)), max_size=40)


def cells(those: list[tuple[int, int]]) -> Cells:
    made = Cells()
    for at_ms, record_id in those:
        made.add(at_ms, record_id, 1)
    return made


def log(first: int, end: int, counts: Cells | None = None, **more: object) -> CountEntry:
    made = cells([(0, n) for n in range(first, end)]) if counts is None else counts
    return replace(CountEntry("log", "", "t", 0, first, end, 1, made, "id"), **more)  # type: ignore[arg-type]


def stored(entry: CountEntry, offset: int = 0) -> Record:
    new = entry.record()
    return Record(COUNTS_TOPIC, 0, offset, 0, new.key, new.value)


@given(records, st.randoms(use_true_random=False))
def test_the_same_records_in_any_order_are_the_same(
    those: list[tuple[int, int]], chance: random.Random
) -> None:
    other = chance.sample(those, len(those))
    assert differences(cells(those), cells(other)) == []


@given(st.lists(st.integers(1, 2**64 - 1), min_size=2, max_size=20, unique=True))
def test_one_lost_and_another_twice_is_found(ids: list[int]) -> None:
    (found,) = differences(
        cells([(0, each) for each in ids]), cells([(0, each) for each in [ids[1], *ids[1:]]])
    )
    assert found.state is CompletenessState.MISMATCH
    assert (found.expected, found.actual, found.short, found.excess) == (len(ids), len(ids), 0, 0)


def test_differences_are_by_minute_and_say_how_many() -> None:
    ours = cells([(0, 1), (0, 2), (MINUTE, 3), (2 * MINUTE, 4)])
    theirs = cells([(0, 1), (MINUTE, 3), (2 * MINUTE, 4), (2 * MINUTE, 5), (9 * MINUTE, 6)])
    found = {each.bucket_ms // MINUTE: each for each in differences(ours, theirs)}
    assert {minute: each.state for minute, each in found.items()} == {0: "SHORT", 2: "EXCESS", 9: "EXCESS"}
    assert (found[0].short, found[9].excess) == (1, 1)
    assert {each.state for each in differences(ours, theirs, compact=True)} == {CompletenessState.UNKNOWN}


def test_an_id_is_the_events_own_or_of_all_that_makes_a_record() -> None:
    plain = id_of(b"k", 1, b"v")
    assert (
        len({plain, id_of(b"k", 2, b"v"), id_of(None, 1, b"v"), id_of(b"", 1, b"v"), id_of(b"k", 1, None)})
        == 5
    )
    assert id_of(b"k1", 1, b"2v") != id_of(b"k", 1, b"12v")
    assert id_of(b"a", 1, b"b", b"e-1") == id_of(b"x", 9, b"y", b"e-1") != id_of(b"a", 1, b"b", b"e-2")


@given(records, st.sets(st.integers(0, 500)))
def test_an_entry_comes_back_from_its_record(those: list[tuple[int, int]], offsets: set[int]) -> None:
    entry = CountEntry(
        *("source", "gateway-1", "a.b-c_d", 3, 5, 900, 77, cells(those), "id", Holes(1, 2, 3, 4), 5, 6),
        compact=True,
        runs=runs_of(sorted(offsets)),
        why="w",
    )
    assert entry_of(stored(entry)) == entry


def test_what_is_no_entry_names_the_record() -> None:
    for new in (
        NewRecord(COUNTS_TOPIC, b"log||t|0", b"{}"),
        NewRecord(COUNTS_TOPIC, b"log||t|0|0", b'{"v": 2}'),
        NewRecord(COUNTS_TOPIC, b'{"topic": 1}', b"{}"),
    ):
        with pytest.raises(HubFault, match="offset 9"):
            entry_of(Record(COUNTS_TOPIC, 0, 9, 0, new.key, new.value))


def test_written_twice_counts_once_and_overlaps_are_left_out() -> None:
    ledger = Counts()
    for entry in (log(0, 10), log(0, 10), log(5, 15), log(20, 30)):
        ledger.apply(stored(entry))
    audit = audit_of("t", ledger.of("t"))
    assert (audit.records, audit.offsets) == (20, 20)
    assert audit.unaudited == ((0, 10, 20),)
    assert audit.state is CompletenessState.UNKNOWN  # nothing to compare with
    assert covered(ledger.of("t"), PLACE, "id") == [(0, 15), (20, 30)]
    assert covered(ledger.of("t"), PLACE, "another") == []
    ledger.apply(Record(COUNTS_TOPIC, 0, 9, 0, log(0, 10).key, None))
    assert audit_of("t", ledger.of("t")).offsets == 20


def test_a_topic_made_anew_is_another_log() -> None:
    audit = audit_of("t", [log(0, 100), log(0, 4, topic_id="new", at_ms=2)])
    assert audit.records == 4


def test_a_mirror_is_compared_over_the_same_offsets_only() -> None:
    first, second = log(0, 10), log(10, 30)
    whole = named(first, "mirror", first.cells, 2, instance="m")
    audit = audit_of("t", [first, second, whole], ["m"])
    (mirror,) = audit.balances
    assert (mirror.state, mirror.compared, mirror.waiting) == (CompletenessState.OPEN, 10, 20)
    short = named(second, "mirror", cells([(0, n) for n in range(11, 30)]), 2, instance="m")
    audit = audit_of("t", [first, second, whole, short])
    assert (audit.state, audit.balances[0].missing) == (CompletenessState.SHORT, 1)
    assert "1 records are not at the target" in audit.cause
    assert audit_of("t", [first, second], ["m"]).balances[0].state is CompletenessState.OPEN
    blind = named(second, "mirror", Cells(), 2, instance="m", why="retention took them")
    audit = audit_of("t", [first, second, whole, blind])
    assert (audit.state, audit.cause) == (CompletenessState.UNKNOWN, "mirror m: retention took them")


def test_a_producer_is_compared_at_its_own_offsets_whoever_else_writes() -> None:
    receipts = CountEntry("source", "g", "t", 0, 2, 6, 1, cells([(0, 2), (0, 5)]), runs=((2, 1), (5, 1)))
    found = named(receipts, "found", cells([(0, 2), (0, 5)]), 2)
    audit = audit_of("t", [log(0, 10), receipts, found])
    assert (audit.state, audit.cause) == (CompletenessState.BALANCED, "every tier has the same records")
    lost = named(receipts, "found", cells([(0, 2)]), 2)
    audit = audit_of("t", [log(0, 10), receipts, lost])
    assert audit.state is CompletenessState.SHORT
    assert audit.cause == "source g: 1 acknowledged records are not in the log, in 1 minute"
    dropped = replace(receipts, dropped=7)
    assert audit_of("t", [log(0, 10), dropped, found]).state is CompletenessState.UNKNOWN
    assert audit_of("t", [log(0, 10), receipts]).state is CompletenessState.OPEN


def test_a_topic_without_records_is_open_and_does_not_claim_that_nobody_audited_it() -> None:
    """`hub completeness run` of an empty topic answered "never audited: hub completeness run"."""
    audit = audit_of("t", [])
    assert (audit.state, audit.cause) == (
        CompletenessState.OPEN,
        "no record is counted yet: hub completeness run",
    )


def test_offsets_that_hold_nothing_are_told_apart() -> None:
    quiet = log(0, 10, holes=Holes(markers=2, aborted=3, compacted=1))
    assert audit_of("t", [quiet]).state is CompletenessState.UNKNOWN
    lost = audit_of("t", [log(0, 10, holes=Holes(unexplained=4))])
    assert lost.state is CompletenessState.UNEXPLAINED
    assert "4 offsets contain no record" in lost.cause


def test_the_ledger_is_bounded_and_says_what_it_forgot() -> None:
    ledger = Counts(most=20)
    for first in range(0, 300, 10):
        ledger.apply(stored(log(first, first + 10)))
    assert ledger.cells <= 20
    assert ledger.forgotten == 20
    assert max(entry.first for entry in ledger.entries.values()) == 290


@given(st.sets(st.integers(0, 20_000), min_size=1))
def test_receipts_become_entries_that_say_each_offset_once(offsets: set[int]) -> None:
    told = [(offset, offset * 7, offset, 1) for offset in offsets]
    entries = list(entries_of("g", {PLACE: [*told, *told]}, {PLACE: 3}, 1))
    named_ = [first + n for entry in entries for first, count in entry.runs for n in range(count)]
    assert named_ == sorted(offsets)
    assert sum(entry.cells.total.count for entry in entries) == len(offsets)
    assert sum(entry.dropped for entry in entries) == 3
    assert all(entry.first == entry.runs[0][0] and entry.end == sum(entry.runs[-1]) for entry in entries)


def test_a_scattered_producer_makes_several_entries() -> None:
    told = [(offset, 0, offset, 1) for offset in range(0, 4 * MOST_RUNS, 2)]
    entries = list(entries_of("g", {PLACE: told}, {}, 1))
    assert [len(entry.runs) for entry in entries] == [MOST_RUNS, MOST_RUNS]
    assert len({entry.key for entry in entries}) == 2


def test_rows_and_series_of_an_audit() -> None:
    receipts = CountEntry("source", "g", "t", 0, 2, 6, 1, cells([(0, 2), (0, 5)]), runs=((2, 1), (5, 1)))
    audit = audit_of("t", [log(0, 10), receipts, named(receipts, "found", cells([(0, 2)]), 2)])
    row = row_of(audit, buckets=True)
    assert row["buckets"] == [{"bucket_ms": 0, "records": 10, "sum": f"{sum(range(10)):016x}", "bytes": 10}]
    first, second = lines(row)
    assert (first["state"], second["tier"], second["missing"]) == ("SHORT", "source g", "1")
    series = {(name, *labels.values()): value for name, _, labels, value in series_of(audit)}
    assert series["hub_completeness_missing", "t", "source"] == 1
    assert series["hub_completeness_state", "t", "SHORT"] == 1
    assert series["hub_completeness_state", "t", "BALANCED"] == 0


def test_a_minute_is_named_as_people_write_it() -> None:
    assert bucket("1970-01-01T00:02:59Z") == bucket("120001") == bucket("1970-01-01T00:02") == 2 * MINUTE
    for text in ("yesterday", "9" * 16, ""):
        with pytest.raises(CallerError):
            bucket(text)


def test_sums_wrap_and_never_grow() -> None:
    assert Cell(1, 2**64 - 1).plus(Cell(1, 2)) == Cell(2, 1)


def test_spots_come_back_and_older_entries_have_none() -> None:
    made = log(0, 3, spots={MINUTE: MinuteHoles(Holes(aborted=2, unexplained=1), 4)})
    assert entry_of(stored(made)) == made
    assert entry_of(stored(log(0, 3))).spots == {}
    assert named(made, "mirror", Cells(), 2).spots == {}


def test_a_topic_is_found_without_reading_all_of_the_ledger_and_forgotten_with_its_last_entry() -> None:
    ledger = Counts()
    first, second = log(0, 3), replace(log(0, 3), topic="u")
    for each in (first, second, first):
        ledger.apply(stored(each))
    assert ledger.topics() == ["t", "u"] and ledger.of("t") == [first] and ledger.of("none") == []
    gone = stored(second)
    ledger.apply(Record(gone.topic, 0, 9, 0, gone.key, None))
    assert ledger.topics() == ["t"] and ledger.of("u") == []


def test_a_topic_that_was_made_anew_with_fewer_partitions_has_no_records_of_the_one_before() -> None:
    before = [replace(log(0, 4), partition=part, topic_id="old") for part in range(3)]
    after = replace(log(0, 2), topic_id="new", at_ms=2)
    audit = audit_of("t", [*before, after])
    assert (audit.records, audit.offsets) == (2, 2)


def test_what_was_found_for_a_receipt_says_nothing_of_one_that_takes_its_place() -> None:
    one = replace(log(0, 1), tier="source", instance="gateway", topic_id="", runs=((0, 1),))
    other = replace(one, cells=cells([(0, 7)]))  # the topic was recreated, and offset 0 written again
    ledger = Counts()
    for offset, entry in enumerate((one, named(one, "found", one.cells, 1), other)):
        ledger.apply(stored(entry, offset))
    (balance,) = audit_of("t", ledger.of("t")).balances
    assert (balance.state, balance.waiting) == (CompletenessState.OPEN, 1)
    ledger.apply(stored(named(other, "found", other.cells, 2), 3))
    (balance,) = audit_of("t", ledger.of("t")).balances
    assert balance.state is CompletenessState.BALANCED


def test_receipts_of_a_log_that_is_gone_are_not_sought_in_the_one_made_anew() -> None:
    before = CountEntry(
        "source", "g", "t", 0, 0, 4, 1, cells([(0, n) for n in range(4)]), "old", runs=((0, 4),)
    )
    after = CountEntry("source", "g", "t", 0, 4, 6, 3, cells([(0, 7), (0, 8)]), "new", runs=((4, 2),))
    now = log(0, 9, topic_id="new", at_ms=2)
    audit = audit_of("t", [now, before, after, named(after, "found", after.cells, 3)])
    assert [(each.state, each.records) for each in audit.balances] == [(CompletenessState.BALANCED, 2)]
    heat = minute_grid_of([now, before, after, named(after, "found", after.cells, 3)])
    assert heat is not None and [side.waiting for side in heat.minutes[0].sides] == [0]
    untold = replace(before, topic_id="")  # from an older version, or from a producer's own counts
    assert audit_of("t", [now, untold]).balances[0].waiting == 4
