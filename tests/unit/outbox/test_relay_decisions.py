"""Messages of pgoutput, positions and batches of the outbox, the checks of a database."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.alerts.model.rules import RuleChanges, Verdict
from hub.cli.platform import status
from hub.errors import CallerError, Conflict, HubFault
from hub.observability.export.objectives import observe_outbox
from hub.outbox import note as notes
from hub.outbox.checkpoints import (
    OUTBOX_TOPIC,
    RefusedOutboxEvent,
    StoredOutbox,
    forget_record,
    position_record,
    refused_record,
)
from hub.outbox.database import DatabaseFacts, plain_url, problems, slot_name
from hub.outbox.events import (
    COLUMNS,
    BrokenRow,
    MissingColumns,
    OutboxEvent,
    Position,
    TransactionReader,
    event_of,
)
from hub.outbox.pgoutput import (
    EPOCH_MS,
    Begin,
    BrokenMessage,
    Commit,
    Insert,
    Message,
    PgRelation,
    decode,
    lsn_text,
    parse_lsn,
)
from hub.outbox.relay import check_events, check_position, check_slot
from hub.outbox.relay_state import relay_state
from hub.outbox.statements import execute
from hub.record import NewRecord, Record


def begin(lsn: int, at_us: int = 5_000_000, xid: int = 7) -> bytes:
    return b"B" + struct.pack("!qqi", lsn, at_us, xid)


def commit(lsn: int, end: int, at_us: int = 5_000_000) -> bytes:
    return b"C" + struct.pack("!bqqq", 0, lsn, end, at_us)


def relation(*columns: str) -> bytes:
    body = b"R" + struct.pack("!i", 16384) + b"public\0hub_outbox\0d" + struct.pack("!h", len(columns))
    return body + b"".join(b"\0" + each.encode() + b"\0" + struct.pack("!ii", 25, -1) for each in columns)


def insert(*values: bytes | None) -> bytes:
    body = b"I" + struct.pack("!i", 16384) + b"N" + struct.pack("!h", len(values))
    cells = (b"n" if each is None else b"t" + struct.pack("!i", len(each)) + each for each in values)
    return body + b"".join(cells)


def row(number: int) -> bytes:
    return insert(f"id-{number}".encode(), b"shop.orders", b"k", b"Placed", b"\\x0001ff", b'{"trace": "42"}')


def test_messages_are_decoded() -> None:
    assert decode(begin(0x10, 1_500)) == Begin(0x10, EPOCH_MS + 1, 7)
    assert decode(commit(0x10, 0x20)) == Commit(0x10, 0x20, EPOCH_MS + 5_000)
    assert decode(relation("id", "payload")) == PgRelation(16384, "public", "hub_outbox", ("id", "payload"))
    assert decode(insert(b"a", None, b"")) == Insert(16384, (b"a", None, b""))
    assert decode(b"T" + b"\0" * 20) is None


@pytest.mark.parametrize("whole", [begin(1), commit(1, 2), relation("id", "x"), insert(b"abc", None)])
def test_a_message_that_is_cut_short_is_an_error(whole: bytes) -> None:
    for size in range(len(whole) - 1):
        with pytest.raises(BrokenMessage):
            decode(whole[:size])


def test_an_lsn_is_read_as_it_is_written() -> None:
    assert lsn_text(parse_lsn("16/B374D848")) == "16/B374D848"


def log_of(*sizes: int) -> list[Message]:
    """Transactions with so many events each, as the database sends them."""
    messages: list[bytes] = [relation(*COLUMNS)]
    number, lsn = 0, 100
    for size in sizes:
        messages.append(begin(lsn))
        for _ in range(size):
            messages.append(row(number))
            number += 1
        messages.append(commit(lsn, lsn + 50))
        lsn += 100
    return [decoded for each in messages if (decoded := decode(each)) is not None]


def read(messages: list[Message], start: Position) -> list[OutboxEvent]:
    reader = TransactionReader(start)
    return [event for each in messages if (event := reader.apply(each)) is not None]


def test_a_row_becomes_a_record() -> None:
    (event,) = read(log_of(1), Position(0, 0))
    headers = (("trace", b"42"), ("id", b"id-0"), ("eventType", b"Placed"))
    expected = NewRecord("shop.orders", b"k", b"\x00\x01\xff", headers, EPOCH_MS + 5_000)
    assert (event.record, event.id, event.after) == (expected, "id-0", Position(100, 1))


@given(st.lists(st.integers(0, 4), max_size=5), st.integers(0, 20))
def test_any_position_finds_the_next_event(sizes: list[int], cut: int) -> None:
    messages = log_of(*sizes)
    every = read(messages, Position(0, 0))
    done = every[:cut]
    start = done[-1].after if done else Position(0, 0)
    assert read(messages, start) == every[len(done) :]
    assert all(one.after < other.after for one, other in pairwise(every))


def test_a_confirmed_place_within_the_log_passes_nothing_over() -> None:
    messages = log_of(2, 1)
    reader = TransactionReader(Position(0, 0))
    for each in messages[:5]:
        reader.apply(each)
    # The first transaction is whole: its end is the position, and the second one begins after it.
    assert reader.position == Position(150, 0)
    assert reader.between_transactions
    assert [event.id for event in read(messages, reader.position)] == ["id-2"]


def test_a_slot_that_begins_after_the_stored_position_is_refused() -> None:
    check_slot(None, 500)  # nothing was relayed yet
    check_slot(Position(500, 2), 500)
    check_slot(Position(500, 0), None)
    with pytest.raises(Conflict, match="0/1F5, after the relay's position 0/1F4") as refused:
        check_slot(Position(500, 7), 501)
    assert refused.value.code == "HUB-1981"


def test_a_position_keeps_the_time_from_which_on_rows_are_relayed() -> None:
    stored = StoredOutbox("1/hub_outbox")

    def apply(new: NewRecord) -> None:
        stored.apply(Record(OUTBOX_TOPIC, 0, 0, 0, new.key, new.value, ()))

    apply(position_record("1/hub_outbox", Position(7, 1), 3, 1_000))
    assert (stored.position, stored.since_ms) == (Position(7, 1), 1_000)
    apply(forget_record("1/hub_outbox", 2_000))
    assert (stored.position, stored.since_ms, stored.events) == (None, 2_000, 3)


def test_a_table_that_is_no_outbox_is_named() -> None:
    reader = TransactionReader(Position(0, 0))
    with pytest.raises(MissingColumns, match=r'"public.hub_outbox" has no column type, headers'):
        reader.apply(PgRelation(1, "public", "hub_outbox", ("id", "aggregatetype", "aggregateid", "payload")))


@pytest.mark.parametrize(
    ("row_", "said"),
    [
        (insert(b"id-1", b"t", b"k", None, None, b"[1]"), "headers are not a JSON object"),
        (insert(b"id-1", b"t", b"k", None, None, b"{"), "cannot be an event"),
        (insert(b"id-1", None, b"k", None, None, None), "no aggregatetype"),
        (insert(b"id-1", b"\xff", b"k", None, None, None), "cannot be an event"),
        (insert(b"id-1", b"t", b"k", None, b"\\xzz", None), "cannot be an event"),
    ],
)
def test_a_row_that_cannot_be_an_event_is_refused_alone(row_: bytes, said: str) -> None:
    messages = [decode(each) for each in (relation(*COLUMNS), begin(1), row_, row(2), commit(1, 9))]
    bad, good = read([each for each in messages if each is not None], Position(0, 0))
    assert (bad.id, bad.after, good.id, good.broken) == ("id-1", Position(1, 1), "id-2", "")
    with pytest.raises(CallerError, match=said) as refused:
        check_events([good, bad])
    assert refused.value.code == "HUB-1143"
    with pytest.raises(BrokenRow, match="no id"):
        event_of([None] * 6, Position(1, 1), 0)


def stored(*records: NewRecord) -> StoredOutbox:
    found = StoredOutbox("1/slot")
    for offset, new in enumerate(records):
        found.apply(Record(new.topic, 0, offset, 0, new.key, new.value))
    return found


def test_positions_and_refused_events_are_read_back() -> None:
    refused = RefusedOutboxEvent("e1", "no.such", "it does not exist", 5)
    found = stored(
        position_record("1/slot", Position(0x1_0000_0001, 3), 10),
        position_record("1/other", Position(9, 9), 99),
        refused_record("1/slot", refused),
        refused_record("1/other", replace(refused, id="e2")),
    )
    assert (found.position, found.events) == (Position(0x1_0000_0001, 3), 10)
    assert found.refused == {"e1": refused}
    assert stored(position_record("1/slot", Position(5, 0), 1), forget_record("1/slot", 1)).position is None


def test_a_record_that_no_relay_writes_is_an_error() -> None:
    with pytest.raises(HubFault, match=OUTBOX_TOPIC):
        stored(NewRecord(OUTBOX_TOPIC, b"position/1/slot", b"{}"))


def test_topics_of_the_hub_are_refused() -> None:
    (event,) = read(log_of(1), Position(0, 0))
    check_events([event])
    for topic in ("_hub.alerts", "__consumer_offsets", "_schemas", "views.customer_360"):
        with pytest.raises(CallerError, match=topic):
            check_events([event, replace(event, record=replace(event.record, topic=topic))])


def test_a_restored_database_is_found() -> None:
    check_position(Position(5, 0), 5)
    check_position(None, 0)
    with pytest.raises(Conflict, match="0/6 is after the end of the database's log 0/5"):
        check_position(Position(6, 0), 5)


READY = DatabaseFacts(160_000, False, "logical", True, 3, 3, 1024, "app", "shop", False, False, False, False)


@pytest.mark.parametrize(
    ("change", "fix", "fatal"),
    [
        ({"version": 90_600}, "upgrade", True),
        ({"in_recovery": True}, "primary", True),
        ({"wal_level": "replica"}, "ALTER SYSTEM SET wal_level = 'logical'", True),
        ({"may_replicate": False}, 'ALTER ROLE "app" REPLICATION', True),
        ({"free_slots": 0}, "max_replication_slots", True),
        ({"free_senders": 0}, "max_wal_senders", True),
        ({"keeps_wal_mb": -1}, "max_slot_wal_keep_size", False),
    ],
)
def test_each_problem_of_a_database_has_its_fix(change: dict[str, object], fix: str, fatal: bool) -> None:
    assert problems(READY) == []
    (problem,) = problems(replace(READY, **change))  # type: ignore[arg-type]
    assert fix in problem.fix
    assert problem.fatal is fatal


def test_a_slot_that_exists_needs_no_free_one() -> None:
    assert problems(replace(READY, free_slots=0, slot=True)) == []


def test_names_are_valid() -> None:
    assert slot_name("Shop-EU" * 20) == ("hub_outbox_" + "shop_eu" * 20)[:63]
    assert plain_url("postgres://a@b/c") == "postgresql://a@b/c"
    with pytest.raises(CallerError, match="mysql") as raised:
        plain_url("mysql://app:secret@db/shop")
    assert "secret" not in str(raised.value)


def test_a_note_is_known_while_it_is_fresh(tmp_path: Path) -> None:
    file = notes.NoteFile(tmp_path)
    assert notes.read_note(tmp_path, 0) is None
    first = notes.OutboxNote(1_000_000, "RELAYING", outbox="1/s", events=5, lag_s=0.5, lag_bytes=10)
    file.write(first)
    file.write(replace(first, at_ms=1_000_500, events=6))  # too soon
    assert notes.read_note(tmp_path, 1_010_000) == first
    failing = replace(first, at_ms=1_000_600, state="FAILING", lag_s=None)
    file.write(failing)
    assert notes.read_note(tmp_path, 1_010_000) == failing
    assert notes.read_note(tmp_path, 1_000_600 + notes.STALE_MS + 1) is None


def test_unknown_lag_has_no_sample() -> None:
    def samples(note: notes.OutboxNote | None) -> dict[str, float]:
        return {each.name: each.value for family in notes.families(note) for each in family.samples}

    assert samples(None) == {}
    failing = notes.OutboxNote(1, "FAILING", "no database")
    assert samples(failing) == {"hub_outbox_up": 0.0}
    assert samples(replace(failing, state="RELAYING", lag_s=0.0))["hub_outbox_lag_seconds"] == 0.0


def test_a_session_of_another_library_is_refused() -> None:
    with pytest.raises(CallerError, match="object is not a session"):
        execute(object(), "SELECT 1", {})


@pytest.mark.parametrize(
    ("state", "declared", "expected", "verdict"),
    [
        (None, False, "off", None),
        (None, True, "unknown", Verdict.UNKNOWN),
        ({"state": "STOPPED"}, True, "unknown", Verdict.UNKNOWN),
        ({"state": "FAILING", "trouble": "no slot"}, False, "failing", Verdict.BAD),
        ({"state": "STANDBY"}, True, "ok", Verdict.GOOD),
        ({"state": "RELAYING", "refused": 2}, True, "refused", Verdict.GOOD),
        ({"state": "RELAYING", "lag_s": 0.5}, True, "ok", Verdict.GOOD),
    ],
)
def test_a_relay_that_fails_or_is_silent_is_never_shown_as_well(
    state: dict[str, Any] | None, declared: bool, expected: str, verdict: Verdict | None
) -> None:
    found = relay_state(None if state is None else notes.OutboxNote(5, **state), declared=declared)
    assert found.state == expected
    observed = [each.verdict for rule in observe_outbox(found, RuleChanges()) for each in rule.observations]
    assert observed == ([] if verdict is None else [verdict])
    lines = status.outbox(found, runs=True)
    assert [line.state in ("OK", "WARN") for line in lines] == (
        [] if verdict is None else [verdict is Verdict.GOOD]
    )
