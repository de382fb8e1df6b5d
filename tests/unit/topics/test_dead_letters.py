"""Dead-letter records on the in-memory log: contents, validated repairs, exactly-once replays."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from failing_log import FailingCluster
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import CallerError, Conflict, HubFault, NotFound, PeerError
from hub.record import NewRecord, Record
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.avro_to_json import render_json
from hub.schema_registry.codecs.values import encoder_of
from hub.schema_registry.codecs.wire_format import encode, frame, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.dead_letters import queue, reader
from hub.topics.dead_letters import routes as dead_letter_routes
from hub.topics.dead_letters.event_builder import Repair, sets, whole
from hub.topics.dead_letters.listing import page
from hub.topics.dead_letters.model import (
    ACTIONS_TOPIC,
    REPLAY_FOR,
    REPLAY_LETTER,
    REPLAY_OF,
    DeadLetterAction,
    RecordPlace,
    TrackedDeadLetter,
)
from hub.topics.dead_letters.queue import DeadLetters
from hub.topics.dead_letters.record_format import dead_letter_of, entry_of, folded
from hub.topics.dead_letters.repair import DecodedEvent, changed, difference, dumped, loaded, sight

AT = {"type": "long", "logicalType": "timestamp-millis"}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": ["null", AT], "default": None},
        {
            "name": "address",
            "type": {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]},
        },
    ],
}
EVENT = {"id": "o1", "cents": 5, "at": 1_700_000_000_123, "address": {"city": "Rome"}}
GOOD = encode(1, parsed(ORDER), EVENT)


@dataclass
class Registry:
    """Registry in which id 1 belongs to the topic, id 2 to another one."""

    texts: dict[int, str] = field(default_factory=lambda: {1: json.dumps(ORDER), 2: '"long"'})

    def subjects(self) -> list[str]:
        return ["t-value"]

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        if schema_id not in self.texts:
            raise NotFound("no such id")
        return frozenset({"t-value"} if schema_id != 2 else {"other-value"})

    def source(self, schema_id: int) -> SchemaSource:
        if schema_id not in self.texts:
            raise NotFound("no such id")
        return SchemaSource.of("AVRO", self.texts[schema_id])

    def latest(self, subject: str) -> RegisteredSchema:
        return RegisteredSchema(1, 1, self.texts[1])


@dataclass
class Desk:
    cluster: FailingCluster
    letters: DeadLetters

    def dead(
        self, value: bytes | None, reason: str, of: int, key: str = "o1", view: str = "v", **more: str
    ) -> RecordPlace:
        """Write a dead-letter record to t.dlq; ``of`` is the offset of its original."""
        said = {"reason": reason, "view": view, "topic": "t", "partition": "0", "offset": str(of)}
        headers = (
            ("hub.producer", b"till"),
            *((f"hub.dlq.{name}", text.encode()) for name, text in {**said, **more}.items()),
        )
        after = self.cluster.writer().append([NewRecord("t.dlq", key.encode(), value, headers, 9_000)])
        ((tp, end),) = list(after)
        return RecordPlace(tp.topic, tp.partition, end - 1)

    def written(self, topic: str = "t") -> list[Record]:
        return [record for log in self.cluster.logs[topic] for record in log]

    def replays(self) -> list[Record]:
        return [record for record in self.written() if record.header(REPLAY_LETTER)]


def open_desk(declared: str | None = "id") -> Desk:
    cluster = FailingCluster()
    cluster.failures = []
    for name in ("t", "t.dlq", "t.quarantine", "views.w.late"):
        cluster.create_topic(name, partitions=1, config={}, replication_factor=1)
    for n in range(4):
        cluster.writer().append([NewRecord("t", b"o1", GOOD, (), 1_000 + n)])
    return Desk(cluster, DeadLetters(cluster, Registry(), lambda _: declared, now_ms=lambda: 10_000))


@pytest.fixture
def desk() -> Desk:
    return open_desk()


UNFIT = "its bytes do not fit its schema id 1"
NULL_KEY = "the view's key is null in this event"


@pytest.mark.parametrize(
    ("name", "text"), [("timestamp", "--5"), ("timestamp", "9" * 5_000), ("offset", "9" * 5_000)]
)
def test_headers_that_are_no_numbers_are_left_out(desk: Desk, name: str, text: str) -> None:
    """Regression: anybody may write to the topic, and one such record failed every list."""
    desk.dead(GOOD, NULL_KEY, 3, **{name: text})
    (letter,) = map(dead_letter_of, desk.written("t.dlq"))
    assert letter.timestamp_ms is None and (letter.of is None) == (name == "offset")


def test_letters_say_where_they_are_from_and_are_counted(desk: Desk) -> None:
    desk.dead(frame(1, b"\x04"), UNFIT, 1)
    desk.dead(b"{}", "not in the Confluent wire format (no magic byte 0 and schema id)", 2)
    desk.dead(GOOD, NULL_KEY, 3, view="w")
    desk.cluster.writer().append([NewRecord("t.dlq", None, b"somebody else's", (), 8_000)])
    late = (("hub.late.topic", b"t"), ("hub.late.partition", b"0"), ("hub.late.offset", b"0"))
    desk.cluster.writer().append([NewRecord("views.w.late", b"o1", GOOD, late, 8_000)])
    rows, complete = desk.letters.heaps()
    assert complete
    by_topic = {row["topic"]: row for row in rows}
    assert by_topic["t.dlq"]["open"] == 4
    assert by_topic["t.dlq"]["by_reason"] == {"undecodable": 1, "framing": 1, "null_key": 1, "other": 1}
    assert by_topic["t.dlq"]["by_producer"] == {"till": 3, "unknown": 1}
    assert by_topic["t.dlq"]["oldest_age_ms"] == 2_000
    assert by_topic["views.w.late"]["by_reason"] == {"late": 1}
    assert "t.quarantine" not in by_topic
    assert desk.letters.resolved("t") == ["t.dlq", "t.quarantine"] and desk.letters.resolved("w") == [
        "views.w.late"
    ]
    with pytest.raises(NotFound):
        desk.letters.heaps("nowhere")


def test_show_tells_the_field_and_the_byte(desk: Desk) -> None:
    cut = GOOD[:-3]  # truncated within the city
    row = desk.letters.show(desk.dead(cut, UNFIT, 1))
    assert (row["schema_id"], row["format"], row["field"]) == (1, "AVRO", "address.city")
    assert row["json"] == {"id": "o1", "cents": 5, "at": "2023-11-14T22:13:20.123Z", "address": {}}
    assert row["json_is_partial"] and row["offset"] == len(GOOD) - 4 and "[" in row["hex_there"]
    assert row["later"] == {"events": 2, "first_offset": 2, "scanned": 2, "complete": True}
    assert desk.letters.show(desk.dead(frame(77, b"x"), "its schema id 77 is not a record schema", 1))[
        "wrong"
    ] == ("schema id 77 is not registered")
    assert desk.letters.show(desk.dead(b'{"id": "o1"}', "not in the Confluent wire format", 1))["json"] == {
        "id": "o1"
    }
    with pytest.raises(NotFound):
        desk.letters.show(RecordPlace("t.dlq", 0, 99))


def test_a_repair_is_judged_before_it_is_written_and_the_first_bytes_stay(desk: Desk) -> None:
    place = desk.dead(GOOD[:-3], UNFIT, 1)
    other = desk.dead(frame(2, b"\x02"), UNFIT, 2)
    fix = Repair(sets([("address.city", "Oslo")]))
    (dry,) = desk.letters.repair([place], fix, "ann", dry_run=True)
    assert dry["changes"] == [{"field": "address.city", "before": None, "after": "Oslo"}]
    assert ACTIONS_TOPIC not in desk.cluster.logs
    with pytest.raises(CallerError, match="t.dlq:0:1"):
        desk.letters.repair(
            [place, other], fix, "ann"
        )  # the second one is invalid, so the first is not written either
    assert desk.letters.letter(place).state == "open"
    with pytest.raises(CallerError, match="cents"):
        desk.letters.repair([place], Repair(sets([("address.city", "Oslo"), ("cents", "many")])), "ann")
    with pytest.raises(CallerError, match='declares "id" as the key'):
        desk.letters.repair([place], Repair(whole({**EVENT, "id": "o2"})), "ann")
    desk.letters.repair([place], fix, "ann", why="cut off")
    found = desk.letters.letter(place)
    assert found.state == "repaired" and found.letter.value == GOOD[:-3]
    row = desk.letters.show(place)
    assert row["wrong"] is None and row["original_hex"] == GOOD[:-3].hex()
    assert row["done"]["by"] == "ann" and row["done"]["why"] == "cut off"


def test_an_event_of_a_topic_without_a_schema_is_written_back_as_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Registry, "subjects", lambda _: [])
    desk = open_desk(None)
    place = desk.dead(b'{"id": "o1", "cents": "5"}', "its cents is not a valid bigint", 1)
    (row,) = desk.letters.repair([place], Repair(sets([("cents", 5)])), "ann")
    assert row["changes"] == [{"field": "cents", "before": "5", "after": 5}]
    desk.letters.replay([place], "ann")
    (replay,) = desk.replays()
    assert json.loads(replay.value or b"") == {"id": "o1", "cents": 5}
    assert replay.header(REPLAY_FOR) == b"v"  # another view may have accepted the original


BIG = b'"big": 18446744073709551617, "low": -9223372036854775809, "fine": [0.12345678901234567891, 1e-400]'


@pytest.mark.parametrize("subjects", [[], ["t-value"]])
def test_a_repair_leaves_the_numbers_that_nobody_asked_it_to_change(
    monkeypatch: pytest.MonkeyPatch, subjects: list[str]
) -> None:
    monkeypatch.setattr(Registry, "subjects", lambda _: subjects)
    monkeypatch.setattr(Registry, "source", lambda _, number: SchemaSource.of("JSON", '{"type": "object"}'))
    desk = open_desk(None)
    place = desk.dead(b'{"id": "o1", "price": 1.10, ' + BIG + b"}", "its cents is not a valid bigint", 1)
    fields = [("id", "o2"), ("more", 2**70)]
    (row,) = desk.letters.repair([place], Repair(sets(fields)), "ann")
    assert [each["field"] for each in row["changes"]] == ["id", "more"]
    start = frame(1, b"") if subjects else b""
    assert desk.letters.letter(place).value == start + (
        b'{"id": "o2", "price": 1.1, ' + BIG + b', "more": 1180591620717411303424}'
    ).replace(b" ", b"").replace(b"1e-", b"1E-")


@pytest.mark.parametrize("text", [b"[" * 300 + b"]" * 300, b'{"n": 1e-99999999999999999999}'])
def test_json_that_nobody_could_write_again_is_shown_as_bytes(desk: Desk, hub: Any, text: bytes) -> None:
    """Regression: the decoded part could not be serialized, so ``show`` failed."""
    place = desk.dead(text, "not in the Confluent wire format", 1)
    code, said, _ = hub("show", "t", str(place.offset), "-o", "json")
    row = json.loads(said)
    assert code == 0 and row["json"] is None and row["hex"] == text.hex()
    framed = sight(frame(3, text), lambda _: SchemaSource.of("JSON", '{"type": ["object", "array"]}'))
    assert framed.wrong is not None and framed.wrong.startswith("no JSON")


@given(st.recursive(st.integers() | st.decimals(allow_nan=False, allow_infinity=False, places=30), st.lists))
def test_every_number_is_written_back_as_it_was(value: Any) -> None:
    text = json.dumps(value, default=str).replace('"', "")
    exact = {"parse_int": Decimal, "parse_float": Decimal}
    assert json.loads(dumped(loaded(text)), **exact) == json.loads(text, **exact)


TIMED = SchemaSource.of(
    "PROTOBUF",
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/protobuf/struct.proto"; '
    'import "google/protobuf/any.proto"; message Order { google.protobuf.Timestamp at = 1; '
    "google.protobuf.Value any = 2; google.protobuf.Any other = 3; } message Line { string sku = 1; }",
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x0a\x0a\x08" + b"\xff" * 8 + b"\x7f", "no JSON for it"),
        (b"\x12\x09\x11\x00\x00\x00\x00\x00\x00\xf8\x7f", "no JSON for it"),
        (b"\x1a\x04\x0a\x02/X", "no JSON for it"),
    ],
    ids=["a time after the year 9999", "NaN", "an unknown type"],
)
def test_a_message_that_json_cannot_say_is_told(body: bytes, said: str) -> None:
    seen = sight(frame(3, b"\x00" + body), lambda _: TIMED)
    assert seen.wrong is not None and said in seen.wrong
    assert (seen.format, seen.value, seen.readable) == ("PROTOBUF", None, False)


def test_a_message_within_any_is_read_by_its_schema() -> None:
    seen = sight(frame(3, b"\x00\x1a\x0c\x0a\x05/Line\x12\x03\x0a\x01s"), lambda _: TIMED)
    assert seen.value == {"other": {"@type": "/Line", "sku": "s"}}


def test_only_the_schema_id_was_wrong(desk: Desk) -> None:
    place = desk.dead(frame(2, GOOD[5:]), UNFIT, 1)
    desk.letters.repair([place], Repair(schema_id=1), "ann")
    assert desk.letters.letter(place).value == GOOD
    bare = desk.dead(GOOD[5:], "not in the Confluent wire format", 2)
    desk.letters.repair([bare], Repair(schema_id=1), "ann")
    assert desk.letters.letter(bare).value == GOOD
    with pytest.raises(CallerError, match="foreign_schema"):
        desk.letters.repair([desk.dead(frame(1, b"\x02"), UNFIT, 3)], Repair(schema_id=2), "ann")


def test_a_replay_keeps_key_partition_and_time_and_says_where_it_is_from(desk: Desk) -> None:
    place = desk.dead(GOOD[:-3], UNFIT, 1)
    desk.letters.repair([place], Repair(whole(EVENT)), "ann")
    (row,) = desk.letters.replay([place], "ann")
    (event,) = desk.replays()
    assert (event.key, event.value, event.partition, event.timestamp_ms) == (b"o1", GOOD, 0, 1_001)
    assert event.header(REPLAY_OF) == b"t:0:1" and event.header(REPLAY_LETTER) == str(place).encode()
    assert event.header(REPLAY_FOR) is None and event.header("hub.producer") == b"till"
    assert not any(name.startswith("hub.dlq.") for name, _ in event.headers)
    assert row["later"]["events"] == 2 and row["for"] == "all"
    (again,) = desk.letters.replay([place], "ann")
    assert again["done"] == "before" and len(desk.replays()) == 1
    with pytest.raises(Conflict):
        desk.letters.repair([place], Repair(whole(EVENT)), "ann")
    assert desk.letters.letter(place).entry.went == RecordPlace("t", 0, 4)  # type: ignore[union-attr]


def test_the_time_that_the_letter_says_goes_before_the_original_s(desk: Desk) -> None:
    desk.letters.replay([desk.dead(GOOD, UNFIT, 1, timestamp="777")], "ann")
    assert desk.replays()[0].timestamp_ms == 777


def test_two_letters_of_one_event_are_one_replay(desk: Desk) -> None:
    one, two = desk.dead(GOOD, UNFIT, 1, view="v"), desk.dead(GOOD, UNFIT, 1, view="w")
    rows = desk.letters.replay([one, two], "ann")
    assert len(desk.replays()) == 1 and rows[1]["done"] == "before"
    assert desk.letters.letter(two).state == "replayed"
    assert desk.letters.letter(two).entry.why == f"replayed with {one}"  # type: ignore[union-attr]


def test_what_other_views_have_taken_is_for_the_view_that_has_not(desk: Desk) -> None:
    place = desk.dead(GOOD, NULL_KEY, 1, view="w")
    with pytest.raises(CallerError, match="would be rejected again"):
        desk.letters.replay([place], "ann")
    desk.letters.repair([place], Repair(sets([("cents", 6)])), "ann")
    desk.letters.replay([place], "ann")
    assert desk.replays()[0].header(REPLAY_FOR) == b"w"


def test_a_view_that_is_computed_anew_writes_its_letters_again_and_they_are_the_same(desk: Desk) -> None:
    first, dismissed = desk.dead(GOOD, UNFIT, 1), desk.dead(GOOD, NULL_KEY, 2)
    desk.letters.replay([first], "ann")
    desk.letters.dismiss([dismissed], "ann")
    again = desk.dead(GOOD, UNFIT, 1)
    desk.dead(GOOD, NULL_KEY, 2)
    later_view = desk.dead(GOOD, UNFIT, 1, view="new")  # it has processed the replay, too
    own = desk.dead(GOOD, NULL_KEY, 1, view="w")  # it has not: for this view the bytes were not the problem
    made_anew = desk.dead(
        frame(1, b"\x04"), UNFIT, 1
    )  # another event at the same position, after the topic was recreated
    states = [(each.letter.at, each.state) for each in desk.letters.letters(["t.dlq"]).letters]
    assert states == [
        (first, "replayed"),
        (dismissed, "dismissed"),
        (later_view, "open"),
        (own, "open"),
        (made_anew, "open"),
    ]
    assert [row["done"] for row in desk.letters.replay([again, later_view], "bob")] == ["before", "before"]
    assert len(desk.replays()) == 1
    entry = desk.letters.letter(later_view).entry
    assert entry is not None and (entry.state, entry.why) == ("replayed", f"replayed with {first}")
    desk.letters.repair([own, made_anew], Repair(whole(EVENT)), "bob")
    desk.letters.replay([own, made_anew, made_anew], "bob")
    assert len(desk.replays()) == 3


def test_what_a_changed_view_reads_again_by_itself_is_not_replayed_to_it(desk: Desk) -> None:
    there, gone = desk.dead(GOOD, NULL_KEY, 1), desk.dead(GOOD, NULL_KEY, 77)
    with pytest.raises(CallerError, match="would count it twice"):
        desk.letters.replay([there], "ann", as_is=True)
    desk.letters.replay([gone], "ann", as_is=True)  # retention deleted the original
    assert [event.header(REPLAY_OF) for event in desk.replays()] == [b"t:0:77"]


def test_another_event_at_its_place_is_not_the_one_that_a_view_has_read_again(desk: Desk) -> None:
    """The topic was recreated, so its events are different ones."""
    place = desk.dead(GOOD, NULL_KEY, 1)
    desk.cluster.delete_topic("t")
    desk.cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    desk.cluster.writer().append([NewRecord("t", b"o1", b"another", (), n) for n in range(3)])
    desk.letters.replay([place], "ann", as_is=True)
    assert [event.value for event in desk.replays()] == [GOOD]


def test_of_more_letters_than_are_read_at_once_those_that_are_named_are_found(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [desk.dead(GOOD, NULL_KEY, n) for n in range(60)]
    monkeypatch.setattr(reader, "MOST_DEAD_LETTERS", 30)
    desk.letters.dismiss(places[-25:], "ann")
    with pytest.raises(PeerError, match="more than 30 lie between"):
        desk.letters.dismiss([*places[:5], *places[-20:]], "ann")
    assert (
        desk.letters.letter(places[0]).state == "open"
        and desk.letters.letter(places[-1]).state == "dismissed"
    )


def test_of_more_letters_than_can_be_told_together_a_way_out_is_said_that_is_one(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the hint advised to dismiss records, but closed ones are read as well."""
    places = [desk.dead(GOOD, UNFIT, n) for n in range(5)]
    monkeypatch.setattr(reader, "MOST_DEAD_LETTERS", 3)
    with pytest.raises(Conflict, match="more than 3 dead-letter records") as refused:
        desk.letters.replay(places[:1], "ann")
    assert refused.value.hint is not None
    assert (
        "t.dlq" in refused.value.hint
        and "retention.ms" in refused.value.hint
        and "closed ones too" in refused.value.hint
    )


def test_nothing_is_replayed_where_one_cannot_be(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: those before the invalid one were replayed, and this was not reported."""
    monkeypatch.setattr(queue, "BATCH", 1)
    places = [desk.dead(GOOD, UNFIT, 1), desk.dead(GOOD[:-3], UNFIT, 2)]
    with pytest.raises(CallerError, match="t.dlq:0:1"):
        desk.letters.replay(places, "ann")
    assert desk.replays() == [] and desk.letters.letter(places[0]).state == "open"


def test_later_events_of_many_letters_are_found_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = open_desk(declared=None)
    dead = ((0, "o1"), (2, "o1"), (3, "o1"), (1, "o2"))
    places = [desk.dead(GOOD, UNFIT, of, key=key, timestamp="5") for of, key in dead]
    opened = desk.cluster.reader
    readers: list[object] = []
    monkeypatch.setattr(desk.cluster, "reader", lambda: readers.append(None) or opened())
    rows = desk.letters.replay(places, "ann", dry_run=True)
    # one for each record, one for all records of the same events, one for later events
    assert len(readers) == len(places) + 2
    assert [(row["later"]["events"], row["later"]["first_offset"]) for row in rows] == [
        (3, 1),
        (0, None),
        (1, 3),
        (0, None),
    ]


def test_a_replay_that_died_again_keeps_its_first_place(desk: Desk) -> None:
    again = {"hub.replay.of": "t:0:1", "hub.replay.letter": "t.dlq:0:0"}
    headers = (
        *((name, text.encode()) for name, text in again.items()),
        *((f"hub.dlq.{n}", t) for n, t in (("topic", b"t"), ("partition", b"0"), ("offset", b"3"))),
        ("hub.dlq.reason", UNFIT.encode()),
    )
    desk.cluster.writer().append([NewRecord("t.dlq", b"o1", GOOD, headers, 1)])
    desk.letters.replay([RecordPlace("t.dlq", 0, 0)], "ann")
    event = desk.replays()[0]
    assert event.header(REPLAY_OF) == b"t:0:1"
    assert [name for name, _ in event.headers].count(REPLAY_OF) == 1


def test_late_events_and_those_without_origin_are_not_replayed(desk: Desk) -> None:
    late = (("hub.late.topic", b"t"), ("hub.late.partition", b"0"), ("hub.late.offset", b"0"))
    desk.cluster.writer().append([NewRecord("views.w.late", b"o1", GOOD, late, 1)])
    with pytest.raises(CallerError, match="late event"):
        desk.letters.replay([RecordPlace("views.w.late", 0, 0)], "ann")
    desk.cluster.writer().append([NewRecord("t.dlq", None, GOOD, (), 1)])
    with pytest.raises(CallerError, match="does not name its origin"):
        desk.letters.replay([RecordPlace("t.dlq", 0, 0)], "ann")
    assert desk.replays() == []


def test_a_dismissal_and_its_undoing(desk: Desk) -> None:
    place = desk.dead(GOOD, UNFIT, 1)
    desk.letters.repair([place], Repair(sets([("cents", 6)])), "ann")
    desk.letters.dismiss([place], "ann", why="a test")
    with pytest.raises(Conflict, match="dismissed already"):
        desk.letters.replay([place], "ann")
    desk.letters.dismiss([place], "bob", undo=True)
    assert desk.letters.letter(place).state == "repaired"
    desk.letters.replay([place], "bob")
    with pytest.raises(Conflict):
        desk.letters.dismiss([place], "bob")


def test_a_topic_made_anew_has_letters_of_its_own(desk: Desk) -> None:
    place = desk.dead(GOOD, UNFIT, 1)
    desk.letters.dismiss([place], "ann")
    desk.cluster.delete_topic("t.dlq")
    desk.cluster.create_topic("t.dlq", partitions=1, config={}, replication_factor=1)
    desk.dead(GOOD, UNFIT, 2)
    assert desk.letters.letter(place).state == "open"


def test_the_topic_that_it_is_from_is_gone(desk: Desk) -> None:
    place = desk.dead(GOOD, UNFIT, 1)
    desk.cluster.delete_topic("t")
    with pytest.raises(NotFound, match="no longer exists"):
        desk.letters.replay([place], "ann")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "before", "after"])), max_size=12),
    st.integers(1, 4),
)
def test_wherever_a_replay_is_killed_each_event_is_there_once(
    steps: list[tuple[int, str]], batch: int
) -> None:
    """Attempts that end before or after their transaction; the last one completes."""
    desk = open_desk()
    places = [desk.dead(GOOD, UNFIT, n) for n in range(4)]
    size, queue.BATCH = queue.BATCH, batch
    try:
        for first, failure in steps:
            desk.cluster.failures = [failure]
            with contextlib.suppress(PeerError):
                desk.letters.replay(places[first:], "ann", look=False)
            desk.cluster.failures = []
        desk.letters.replay(places, "ann", look=False)
    finally:
        queue.BATCH = size
    assert sorted(record.header(REPLAY_OF) or b"" for record in desk.replays()) == [
        f"t:0:{n}".encode() for n in range(4)
    ]
    assert all(desk.letters.letter(place).state == "replayed" for place in places)


def test_events_are_replayed_in_the_order_that_they_had(desk: Desk) -> None:
    places = [desk.dead(GOOD, UNFIT, n) for n in (3, 1, 2)]
    desk.letters.replay(places, "ann")
    assert [record.header(REPLAY_OF) for record in desk.replays()] == [b"t:0:1", b"t:0:2", b"t:0:3"]


def test_a_record_of_the_ledger_that_is_none_is_told() -> None:
    entry = DeadLetterAction(
        RecordPlace("t.dlq", 0, 1), "id", "repaired", "ann", 5, None, True, b"\x00\xff", b"k"
    )
    new = entry.record()
    record = Record(ACTIONS_TOPIC, 0, 3, 0, new.key, new.value)
    assert entry_of(record) == entry
    assert folded([record, Record(ACTIONS_TOPIC, 0, 4, 0, new.key, None)]) == {}
    with pytest.raises(HubFault, match="offset 7"):
        entry_of(Record(ACTIONS_TOPIC, 0, 7, 0, b"{}", b"{}"))
    with pytest.raises(CallerError):
        dead_letter_of(record)


def test_a_header_without_a_value_is_nobody() -> None:
    said = (("hub.dlq.topic", b"t"), ("hub.producer", b"ann"), ("hub.producer", None), ("mine", None))
    letter = dead_letter_of(Record("t.dlq", 0, 1, 0, b"k", b"v", said))
    assert letter.producer == "unknown" and letter.headers[-1] == ("mine", None)


@given(
    st.fixed_dictionaries(
        {
            "id": st.text(max_size=8),
            "cents": st.integers(-(2**63), 2**63 - 1),
            "at": st.none() | st.integers(-(2**62), 2**62),
            "address": st.fixed_dictionaries({"city": st.text(max_size=8)}),
        }
    )
)
def test_the_twin_of_bytes_is_written_back_as_the_same_bytes(event: dict[str, Any]) -> None:
    source = SchemaSource.of("AVRO", json.dumps(ORDER))
    body = encode(1, parsed(ORDER), event)
    read = render_json(source.parsed().root(), body, 5)
    assert read.broken is None and read.end == len(body)
    assert frame(1, encoder_of(source).body(read.value)) == body


RICH = {
    "type": "record",
    "name": "Rich",
    "fields": [
        {"name": "any", "type": ["null", "string", "long", {"type": "array", "items": "int"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "ratio", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["L", "R"]}},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
    ],
}


def test_the_twin_of_a_decimal_has_all_its_digits() -> None:
    """Regression: Python's default context truncated it to 28 digits, and a repair wrote that."""
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}
    source = SchemaSource.of("AVRO", json.dumps(kind))
    text = "-" + "1234567890" * 5 + ".12"
    assert render_json(source.parsed().root(), encoder_of(source).body(text), 0).value == text
    kind = {**kind, "precision": 1_000_000_000, "scale": 1_000_000_000}
    far = render_json(SchemaSource.of("AVRO", json.dumps(kind)).parsed().root(), b"\x02\x01", 0)
    assert far.value == "\x01" and far.broken is None


@pytest.mark.parametrize("branch", [None, {"string": "x"}, {"long": 3}, {"array": [1, 2]}])
@pytest.mark.parametrize("ratio", [1.5, "NaN", "-Infinity"])
def test_every_type_has_a_twin(branch: Any, ratio: Any) -> None:
    source = SchemaSource.of("AVRO", json.dumps(RICH))
    value = {
        "any": branch,
        "price": "-12.50",
        "day": "2024-02-29",
        "clock": "12:30:00.000001",
        "local": "2024-02-29T12:30:00.000001",
        "ratio": ratio,
        "raw": "\x00\xff",
        "side": "R",
        "tags": {"a": True},
        "four": "abcd",
    }
    body = encoder_of(source).body(value)
    assert render_json(source.parsed().root(), body, 0).value == value


@given(st.binary(max_size=60))
def test_any_bytes_have_a_twin_or_a_break(data: bytes) -> None:
    for schema in (ORDER, RICH):
        read = render_json(SchemaSource.of("AVRO", json.dumps(schema)).parsed().root(), data, 0)
        assert read.broken is not None or read.end <= len(data)


def test_fields_are_set_by_their_paths() -> None:
    event = {"a": {"b": [{"c": 1}]}, "n": None}
    assert changed(event, [("a.b.0.c", 2), ("n.m", 3)]) == {"a": {"b": [{"c": 2}]}, "n": {"m": 3}}
    assert event == {"a": {"b": [{"c": 1}]}, "n": None}
    with pytest.raises(CallerError, match=r"a\.b\.7"):
        changed(event, [("a.b.7", 2)])
    assert difference({"a": 1, "b": {"c": 1}}, {"b": {"c": 2}, "d": 1}) == [
        {"field": "a", "before": 1, "after": None},
        {"field": "b.c", "before": 1, "after": 2},
        {"field": "d", "before": None, "after": 1},
    ]


# ---- lists


def listed(desk: Desk, **asked: Any) -> dict[str, Any]:
    """Return the body of ``GET /dlq/t.dlq``."""
    app = FastAPI()
    app.include_router(dead_letter_routes.create_router(desk.letters))
    with TestClient(app) as client:
        body: dict[str, Any] = client.get("/dlq/t.dlq", params=asked).json()
    return body


def offsets_of(body: dict[str, Any]) -> list[int]:
    return [row["offset"] for row in body["letters"]]


def test_an_answer_has_so_many_bytes_at_most_and_its_pages_each_letter_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a hundred records with keys of a megabyte were a response of a hundred megabytes."""
    for offset in range(6):
        desk.dead(GOOD, NULL_KEY, offset, key="k" * 1_000)
    desk.dead(GOOD, NULL_KEY, 6, key="k" * 10_000)  # larger than the limit of a response
    desk.dead(GOOD, NULL_KEY, 7)
    monkeypatch.setattr(dead_letter_routes, "MOST_ANSWER_BYTES", 4_000)
    assert listed(desk)["more"] == 5 and listed(desk)["complete"]
    pages, after = [], {}
    while True:
        body = listed(desk, **after)
        pages.append(offsets_of(body))
        if body["next"] is None:
            break
        after = {"after": body["next"]}
    assert pages == [[0, 1, 2], [3, 4, 5], [6], [7]] and body["more"] == 0


def test_pages_go_on_where_they_were_whatever_is_done_meanwhile(desk: Desk) -> None:
    places = [desk.dead(GOOD, UNFIT, offset) for offset in range(4)]
    again = desk.dead(GOOD, UNFIT, 0)  # its view was recomputed
    first = listed(desk, limit=2)
    assert offsets_of(first) == [0, 1] and (first["more"], first["next"]) == (2, "t.dlq:0:1")
    desk.letters.dismiss([places[1]], "ann")
    fix = Repair(sets([("cents", 6)]))
    # it represents the first now, and is after all others in the log
    desk.letters.repair([again], fix, "ann")
    assert offsets_of(listed(desk)) == [4, 2, 3]
    assert offsets_of(listed(desk, limit=2, after=first["next"])) == [2, 3]
    assert listed(desk, limit=2, after=first["next"])["next"] is None
    assert offsets_of(listed(desk, limit=1)) == [4] and listed(desk, limit=1)["next"] == "t.dlq:0:0"


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    st.integers(1, 4),
    st.integers(1, 1_500),
)
@settings(max_examples=fast_or(15, 50), deadline=None)
def test_pages_together_are_the_list(letters: list[tuple[int, bool]], limit: int, most_bytes: int) -> None:
    desk = open_desk()
    for of, large in letters:
        desk.dead(GOOD, NULL_KEY, of, key="k" * 700 if large else "k")

    def row(found: TrackedDeadLetter) -> dict[str, Any]:
        return {"at": str(found.letter.at), "key": str(found.key)}

    found = desk.letters.letters(["t.dlq"]).letters
    rows: list[dict[str, Any]] = []
    after = None
    while True:
        made = page(found, row, limit, most_bytes, after)
        assert 0 < len(made.rows) <= limit or not found
        assert len(made.rows) <= 1 or sum(len(json.dumps(each)) for each in made.rows) < most_bytes * 1.2
        rows += made.rows
        assert made.more == len(found) - len(rows)
        if made.after is None:
            break
        after = made.after
    assert rows == [row(each) for each in found]


def test_lists_hold_no_values_and_tell_events_apart_all_the_same(desk: Desk) -> None:
    """A list reads up to 100,000 records; with values of a megabyte each, they would not fit into memory."""
    desk.dead(GOOD, UNFIT, 1)
    desk.dead(GOOD[:-1], UNFIT, 1)  # another event, at the same position before the topic was recreated
    desk.dead(GOOD, UNFIT, 1)
    found = desk.letters.letters(["t.dlq"]).letters
    assert [each.letter.at.offset for each in found] == [0, 1]
    assert [each.value for each in found] == [None, None]
    assert [record.value for record in desk.letters.records(["t.dlq"])[0]] == [None] * 3


def test_what_is_kept_of_a_reading_is_bounded_in_bytes_and_it_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [desk.dead(GOOD, NULL_KEY, n, key="k" * 1_000) for n in range(60)]
    monkeypatch.setattr(reader, "POLL_RECORDS", 5)
    monkeypatch.setattr(reader, "MOST_BYTES", 40_000)
    found = desk.letters.letters(["t.dlq"])
    assert not found.complete and 20 < len(found.letters) < 45 and not listed(desk)["complete"]
    monkeypatch.setattr(reader, "MOST_BYTES_AT_ONCE", 40_000)
    with pytest.raises(PeerError, match="these have more than"):
        desk.letters.dismiss(places, "ann")
    desk.letters.dismiss([*places[:12], *places[-12:]], "ann")  # the ones in between are not retained


def test_names_that_are_as_many_as_letters_are_counted_as_others(desk: Desk) -> None:
    for n in range(60):
        desk.dead(GOOD, NULL_KEY, n, view=f"v{n}" + "x" * 500)
    ((row,), _) = desk.letters.heaps("t.dlq")
    assert len(row["by"]) == 51 and row["by"]["(others)"] == 10 and sum(row["by"].values()) == 60
    assert max(map(len, row["by"])) <= 249


# ---- command line


@pytest.fixture
def hub(desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``hub dlq …``; return its exit code, stdout and stderr."""
    from hub.cli import main
    from hub.cli.topic import dlq

    monkeypatch.setattr(dlq, "_open", lambda: desk.letters)
    # otherwise a command that acts asks which of the two topics is meant
    desk.cluster.delete_topic("t.quarantine")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["dlq", *arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def test_the_command_line_lists_repairs_and_replays(desk: Desk, hub: Any) -> None:
    assert hub("ls")[:2] == (0, "") and "no dead-letter records" in hub("ls")[2]
    desk.dead(frame(1, b"\x04"), UNFIT, 1)
    desk.dead(GOOD, NULL_KEY, 2)
    desk.dead(b"{}", "not in the Confluent wire format", 3)
    assert [row["open"] for row in json.loads(hub("ls", "-o", "json")[1])] == [3]
    rows = json.loads(hub("ls", "t", "--reason", "null_key", "-o", "json")[1])
    assert [(row["offset"], row["reason"]) for row in rows] == [(1, "null_key")]
    code, said, _ = hub("show", "t", "0", "-o", "json")
    assert code == 0 and json.loads(said)["field"] == "id"

    arguments = ("repair", "t", "1", "--set", "cents=6", "--by", "ann", "-o", "json")
    code, said, noted = hub(*arguments, "--dry-run")
    assert code == 0 and json.loads(said)[0]["changes"] == [{"field": "cents", "before": 5, "after": 6}]
    assert "nothing was written" in noted and ACTIONS_TOPIC not in desk.cluster.topics()
    ((row,), code) = (json.loads((done := hub(*arguments, "--replay"))[1]), done[0])
    assert (code, row["state"], row["replay"]["for"]) == (0, "repaired", ["v"])
    assert "1 had been before" in hub("replay", "t", "1")[2] and len(desk.replays()) == 1
    assert hub("dismiss", "t", "0", "2")[0] == 0
    assert [row["state"] for row in json.loads(hub("ls", "t", "--all", "-o", "json")[1])] == [
        "dismissed",
        "replayed",
        "dismissed",
    ]


def test_a_script_that_leaves_a_letter_leaves_the_others_to_be_replayed(
    desk: Desk, hub: Any, tmp_path: Path
) -> None:
    for offset in (1, 2, 3):
        desk.dead(GOOD, NULL_KEY, offset)
    script = tmp_path / "fix.py"
    script.write_text(
        "def repair(event, record):\n    return None if record.of.offset == 2 else {**event, 'cents': 6}\n"
    )
    asked = ("repair", "t", "--reason", "null_key", "--with", str(script), "--by", "ann")
    assert "2 would be repaired; nothing was written, 1 left as they are" in hub(*asked, "--dry-run")[2]
    code, said, noted = hub(*asked, "--replay", "-o", "json")
    assert code == 0 and "2 repaired, 1 left as they are" in noted
    assert [row["replay"] is not None for row in json.loads(said)] == [True, False, True]
    assert [event.header(REPLAY_OF) for event in desk.replays()] == [b"t:0:1", b"t:0:3"]
    code, _, noted = hub(*asked, "--replay")
    assert code == 0 and "0 repaired, 1 left as they are" in noted


def test_letters_of_several_partitions_are_told_apart(desk: Desk, hub: Any) -> None:
    desk.cluster.create_topic("s", partitions=1, config={}, replication_factor=1)
    desk.cluster.create_topic("s.dlq", partitions=3, config={}, replication_factor=1)
    for of, partition in enumerate((0, 2, 2)):
        said = (("hub.dlq.topic", b"s"), ("hub.dlq.partition", b"0"), ("hub.dlq.offset", b"%d" % of))
        desk.cluster.writer().append([NewRecord("s.dlq", b"o1", GOOD, said, 1, partition)])
    table = hub("ls", "s", "-l")[1]
    assert [line.split()[:2] for line in table.splitlines()[1:] if line.strip()][-3:] == [
        ["0", "0"],
        ["2", "0"],
        ["2", "1"],
    ]
    code, _, error = hub("dismiss", "s", "0")
    assert code == 1 and "in each of the partitions 0 and 2" in error and "-p 0" in error
    assert "does not exist" in hub("dismiss", "s", "7")[2]
    assert hub("dismiss", "s", "1")[0] == 0 and hub("dismiss", "s", "0", "-p", "2")[0] == 0
    states = {str(each.letter.at): each.state for each in desk.letters.letters(["s.dlq"]).letters}
    assert states == {"s.dlq:0:0": "open", "s.dlq:2:0": "dismissed", "s.dlq:2:1": "dismissed"}
    assert "hub dlq dismiss --undo s.dlq 0 -p 2" in hub("repair", "s", "0", "-p", "2", "--set", "cents=6")[2]
    assert json.loads(hub("show", "s", "1", "-o", "json")[1])["letter"] == "s.dlq:2:1"


def test_a_partition_that_is_said_is_the_only_one_that_is_meant(desk: Desk, hub: Any) -> None:
    """Regression: with --reason, or for all repaired ones, the records of every partition were dismissed and
    replayed.
    """
    desk.cluster.create_topic("s.dlq", partitions=2, config={}, replication_factor=1)
    for partition in (0, 1):
        said = (("hub.dlq.reason", NULL_KEY.encode()),)
        desk.cluster.writer().append([NewRecord("s.dlq", b"o1", GOOD, said, 1, partition)])
    assert hub("dismiss", "s", "--reason", "null_key", "-p", "1")[0] == 0
    states = {str(each.letter.at): each.state for each in desk.letters.letters(["s.dlq"]).letters}
    assert states == {"s.dlq:0:0": "open", "s.dlq:1:0": "dismissed"}
    assert "partition 1 has no such dead-letter records" in hub("replay", "s", "-p", "1")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "t.dql", "0"), 'did you mean "t.dlq"?'),
        (("show", "t", "9"), "hub dlq ls t.dlq lists those that do"),
        (("show", "t", "0", "--partition", "7"), "does not exist"),
        (("repair", "t", "0"), "--set, --json, --schema-id, --with or --key"),
        (("repair", "t", "0", "--set", "cents"), "such as address.city=Rome"),
        (("repair", "t", "0", "--set", "cents=x"), "hub dlq show t.dlq 0"),
        (("repair", "t", "0", "--with", "/nowhere/fix.py"), "def repair(event, record)"),
        (("repair", "t", "--set", "cents=1"), "name offsets, or --reason"),
        (("replay", "t"), "hub dlq ls lists them"),
        (("replay", "t", "--reason", "framing"), "there are those of reason null_key"),
        (("replay", "t", "0"), "repair it first"),
        (("dismiss", "t", "0", "--undo"), "not dismissed"),
    ],
)
def test_what_the_command_line_refuses_says_the_way_out(
    desk: Desk, hub: Any, arguments: tuple[str, ...], said: str
) -> None:
    desk.dead(GOOD, NULL_KEY, 2)
    code, out, error = hub(*arguments)
    assert code == 1 and said in error.replace("\n", " ") and out == ""
    assert desk.replays() == []


def test_a_letter_goes_back_to_the_topic_whose_letters_these_are_and_to_no_other(
    desk: Desk, hub: Any
) -> None:
    """Anybody who may write to the topic can choose the headers."""
    for topic in ("pay", "pay.dlq", "hr"):
        desk.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    said = (("hub.dlq.topic", b"hr"), ("hub.dlq.partition", b"0"), ("hub.dlq.offset", b"0"))
    desk.cluster.writer().append([NewRecord("pay.dlq", b"o1", GOOD, said)])
    code, _, error = hub("replay", "pay", "0")
    assert code == 1 and "does not name its origin" in error
    assert desk.cluster.logs["hr"] == [[]]


def test_the_command_line_lists_page_by_page(desk: Desk, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hub.cli.topic import dlq

    for offset in range(3):
        desk.dead(GOOD, NULL_KEY, offset, key="k" * 1_000)
    code, said, noted = hub("ls", "t", "-l", "--limit", "2", "-o", "json")
    assert code == 0 and [row["offset"] for row in json.loads(said)] == [0, 1]
    assert "1 more: --after t.dlq:0:1" in noted
    monkeypatch.setattr(dlq, "_MOST_LISTED_BYTES", 1_000)
    code, said, noted = hub("ls", "t", "--after", "t.dlq:0:0", "-o", "json")
    assert code == 0 and [row["offset"] for row in json.loads(said)] == [1] and "t.dlq:0:1" in noted
    assert "topic:partition:offset" in hub("ls", "t", "-l", "--after", "7")[2]


@pytest.mark.parametrize(
    "arguments",
    [("replay", "t", "0"), ("replay", "t", "0", "--dry-run"), ("replay", "t", "--reason", "undecodable")],
)
def test_what_another_cluster_owns_is_not_replayed_into(
    desk: Desk, hub: Any, arguments: tuple[str, ...]
) -> None:
    asked: list[str] = []

    def refuses(topic: str) -> Conflict:
        asked.append(topic)
        return Conflict(f'topic "{topic}": lon owns it', hint="write it at lon", code="HUB-1972")

    desk.dead(GOOD, UNFIT, 1)
    desk.letters.refuses = refuses
    code, out, error = hub(*arguments)
    assert code == 1 and out == "" and "HUB-1972" in error and "write it at lon" in error
    assert asked == ["t"] and desk.replays() == []


def test_an_event_counts_as_unreadable_until_it_is_decoded() -> None:
    event = DecodedEvent(None, None)
    assert not event.readable and not event.partial and event.row()["json"] is None
