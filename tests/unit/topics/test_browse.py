"""Message browser: newest first, from a position, by words, within limits; and the reported coverage."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest

from hub.errors import CallerError, NotFound, PeerError
from hub.log import MemoryCluster, MemoryReader
from hub.record import NewRecord, Record
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.browse.bounded_read import BrowseBounds, FoundMessages, MessageQuery
from hub.topics.browse.browse import Browser
from hub.topics.browse.rendered import MOST_CHARACTERS, dump, part
from hub.topics.browse.tail import Tail

SCHEMA = {"type": "record", "name": "A", "fields": [{"name": "note", "type": "string"}]}


ENCRYPT = {"name": "e", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "params": {}}


class Schemas:
    def source(self, schema_id: int) -> SchemaSource:
        if schema_id == 9:
            rules = {"domainRules": [ENCRYPT]}
            return replace(SchemaSource.of("AVRO", json.dumps(SCHEMA)), rule_set=rules)
        if schema_id == 10:
            return replace(SchemaSource.of("AVRO", json.dumps(SCHEMA)), rule_set={"domainRules": "x"})
        if schema_id == 8:
            return SchemaSource.of("AVRO", "{")
        if schema_id != 7:
            raise NotFound(f"schema {schema_id}")
        return SchemaSource.of("AVRO", json.dumps(SCHEMA))

    def sees(self, schema_id: int) -> bool:
        return True

    def registered(self, schema_id: int, topic: str) -> tuple[str, int] | None:
        return (f"{topic}-value", 3) if schema_id == 7 else None


def event(note: str) -> bytes:
    return encode(7, parsed(SCHEMA), {"note": note})


@pytest.fixture
def log() -> MemoryCluster:
    """Forty messages in two partitions, alternating, one second apart; partition 1 has the even ones."""
    cluster = MemoryCluster()
    cluster.create_topic("a.b", partitions=2, config={}, replication_factor=1)
    writer = cluster.writer()
    for number in range(40):
        writer.append(
            [
                NewRecord(
                    "a.b",
                    f"K-{number}".encode(),
                    event(f"note {number}"),
                    timestamp_ms=1_000 * number,
                    partition=(number + 1) % 2,
                )
            ]
        )
    return cluster


@pytest.fixture
def browser(log: MemoryCluster) -> Browser:
    return Browser(log, Schemas())


def test_encrypted_fields_are_named_beside_their_ciphertext(log: MemoryCluster) -> None:
    log.create_topic("sealed", partitions=1, config={}, replication_factor=1)
    values = [encode(each, parsed(SCHEMA), {"note": "AQID"}) for each in (7, 9, 10)]
    log.writer().append([NewRecord("sealed", b"k", each, partition=0) for each in values])
    found = Browser(log, Schemas()).find(MessageQuery("sealed"))
    schemas = [each.value.schema for each in found.messages]
    assert {each.id: each.encrypted for each in schemas if each is not None} == {7: (), 9: ("note",), 10: ()}
    assert all("AQID" in each.value.text for each in found.messages)


def keys(found: FoundMessages) -> list[str]:
    return [each.key.text for each in found.messages]


def test_the_newest_come_first_from_all_partitions(browser: Browser) -> None:
    found = browser.find(MessageQuery("a.b", limit=5))
    assert keys(found) == ["K-39", "K-38", "K-37", "K-36", "K-35"]
    assert not found.complete and found.ended_by == "limit"
    first = found.messages[0]
    assert json.loads(first.value.text) == {"note": "note 39"}
    assert first.value.schema is not None
    assert (first.value.schema.id, first.value.schema.subject, first.value.schema.version) == (
        7,
        "a.b-value",
        3,
    )


def test_older_goes_on_without_a_gap_or_a_repetition(browser: Browser) -> None:
    seen: list[str] = []
    before: dict[int, int] = {}
    for _ in range(20):
        found = browser.find(MessageQuery("a.b", before=before, limit=7))
        seen += keys(found)
        if found.older is None:
            assert found.complete
            break
        before = dict(found.older)
    assert seen == [f"K-{number}" for number in reversed(range(40))]


def test_times_that_go_back_lose_nothing(log: MemoryCluster, browser: Browser) -> None:
    log.create_topic("odd", partitions=2, config={}, replication_factor=1)
    for at in (9, 1, 5, 3, 8, 2):
        record = [NewRecord("odd", str(at).encode(), b"v", timestamp_ms=at, partition=at % 2)]
        log.writer().append(record)
    seen: list[str] = []
    before: dict[int, int] = {}
    for _ in range(20):
        found = browser.find(MessageQuery("odd", before=before, limit=1))
        seen += keys(found)
        if found.older is None:
            break
        before = dict(found.older)
    assert sorted(seen) == ["1", "2", "3", "5", "8", "9"]


def test_from_an_offset_and_from_a_time_the_oldest_come_first(browser: Browser) -> None:
    assert keys(browser.find(MessageQuery("a.b", 1, start={1: 4}, limit=3))) == ["K-8", "K-10", "K-12"]
    found = browser.find(MessageQuery("a.b", since_ms=30_500, limit=4))
    assert keys(found) == ["K-31", "K-32", "K-33", "K-34"]
    assert found.newer is not None
    again = browser.find(MessageQuery("a.b", start=found.newer, limit=50))
    assert keys(again) == [f"K-{number}" for number in range(35, 40)]
    assert again.complete and again.newer is None
    assert browser.find(MessageQuery("a.b", since_ms=99_000_000)).messages == ()


def test_words_are_sought_to_the_beginning_of_the_log(browser: Browser) -> None:
    found = browser.find(MessageQuery("a.b", words="NOTE k-3"))
    assert keys(found) == [
        "K-39",
        "K-38",
        "K-37",
        "K-36",
        "K-35",
        "K-34",
        "K-33",
        "K-32",
        "K-31",
        "K-30",
        "K-3",
    ]
    assert found.complete and found.records == 40
    assert [(each.first, each.next) for each in found.scanned] == [(0, 20), (0, 20)]


def test_large_messages_are_read_a_few_at_a_time(log: MemoryCluster) -> None:
    log.create_topic("large", partitions=1, config={}, replication_factor=1)
    log.writer().append([NewRecord("large", b"k", b"x" * 1_000_000, partition=0)] * 200)
    found = Browser(log, Schemas(), BrowseBounds(bytes=20_000_000)).find(MessageQuery("large", limit=100))
    assert len(found.messages) == 19 and found.ended_by == "bytes" and found.older == {0: 181}
    assert found.bytes <= 21_000_000


def test_messages_of_which_a_few_are_too_large_come_one_by_one() -> None:
    """Regression: they were never returned, and `older` was the start position again."""

    class OneAPoll(MemoryReader):
        def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
            return super().poll(1, timeout_s)

    class Log(MemoryCluster):
        def reader(self) -> MemoryReader:
            return OneAPoll(self)

    log = Log()
    log.create_topic("large", partitions=1, config={}, replication_factor=1)
    log.writer().append([NewRecord("large", b"k", b"x" * 1_500, partition=0) for _ in range(20)])
    found = Browser(log, Schemas(), BrowseBounds(bytes=2_000)).find(MessageQuery("large"))
    assert [each.offset for each in found.messages] == [19]
    assert (found.ended_by, found.older) == ("bytes", {0: 19})


class Broken(MemoryCluster):
    """Log whose partition 0 has batches that cannot be unpacked, by offset range [first, end)."""

    batches: tuple[tuple[int, int], ...] = ()

    def reader(self) -> MemoryReader:
        return BrokenReader(self)

    def broken(self, offset: int) -> bool:
        return any(first <= offset < last for first, last in self.batches)


class BrokenReader(MemoryReader):
    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        log = cast(Broken, self.cluster)
        found: list[Record] = []
        for tp, position in self.positions.items():
            records = itertools.takewhile(
                lambda each: each.partition or not log.broken(each.offset),
                log._log(tp.topic)[tp.partition][position : position + limit - len(found)],
            )
            taken = list(records)
            self.positions[tp] = position + len(taken)
            found += taken
        if not found and any(not tp.partition and log.broken(at) for tp, at in self.positions.items()):
            raise PeerError("the batch there cannot be unpacked", code="HUB-3021")
        return found


@pytest.mark.parametrize("batches", [((7, 8),), ((0, 3), (9, 16)), ((18, 20),), ((0, 20),)])
@pytest.mark.parametrize("limit", [3, 50])
@pytest.mark.parametrize("words", ["", "k"])
def test_what_cannot_be_unpacked_is_passed_both_ways(
    batches: tuple[tuple[int, int], ...], limit: int, words: str
) -> None:
    """Regression: `older` and `newer` stayed at the start position forever."""
    log = Broken()
    log.batches = batches
    log.create_topic("t", partitions=2, config={}, replication_factor=1)
    for number in range(40):
        new = NewRecord("t", f"K-{number}".encode(), b"v", timestamp_ms=number, partition=number % 2)
        log.writer().append([new])
    there = [f"K-{number}" for number in range(40) if number % 2 or not log.broken(number // 2)]
    browser = Browser(log, Schemas())
    seen: list[str] = []
    said: list[str] = []
    older: dict[int, int] | None = {}
    for _ in range(40):
        found = browser.find(MessageQuery("t", before=older or {}, limit=limit, words=words))
        seen, older = seen + keys(found), found.older and dict(found.older)
        said += found.unreadable
        if older is None:
            break
    assert sorted(seen) == sorted(there) and len(seen) == len(set(seen))
    assert said and older is None
    forwards: list[str] = []
    newer: dict[int, int] | None = {0: 0, 1: 0}
    for _ in range(40):
        found = browser.find(MessageQuery("t", start=newer or {}, limit=limit, words=words))
        forwards, newer = forwards + keys(found), found.newer and dict(found.newer)
        if newer is None:
            break
    assert sorted(forwards) == sorted(there) and newer is None


def test_words_are_sought_behind_what_is_cut(log: MemoryCluster, browser: Browser) -> None:
    log.writer().append([NewRecord("a.b", b"far", event("x" * 50_000 + " Needle"), partition=0)])
    found = browser.find(MessageQuery("a.b", words="needle"))
    assert keys(found) == ["far"] and "Needle" not in found.messages[0].value.text


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (BrowseBounds(records=10), "records"),
        (BrowseBounds(bytes=300), "bytes"),
        (BrowseBounds(seconds=-1), "seconds"),
    ],
)
def test_a_bound_ends_the_reading_and_is_named(log: MemoryCluster, bounds: BrowseBounds, why: str) -> None:
    found = Browser(log, Schemas(), bounds).find(MessageQuery("a.b", words="nothing has this"))
    assert (found.complete, found.ended_by) == (False, why)
    assert found.records <= 40
    if why == "records":
        assert found.records <= 10 and [each.first for each in found.scanned] == [15, 15]


def test_what_is_asked_wrongly_is_said(browser: Browser) -> None:
    with pytest.raises(NotFound, match='"a.c"') as caught:
        browser.find(MessageQuery("a.c"))
    assert caught.value.hint == 'did you mean "a.b"?'
    with pytest.raises(NotFound, match="no partition 7"):
        browser.find(MessageQuery("a.b", 7))
    with pytest.raises(CallerError):
        browser.find(MessageQuery("a.b", limit=100_000))


def test_the_tail_shows_what_comes_and_counts_what_it_leaves_out(
    log: MemoryCluster, browser: Browser
) -> None:
    tail = Tail(browser, MessageQuery("a.b"), most=3)
    assert tail.step(0).seen == 0
    log.writer().append([NewRecord("a.b", f"N-{n}".encode(), event("new"), partition=0) for n in range(10)])
    tick = tail.step(0)
    assert [each.key.text for each in tick.messages] == ["N-9", "N-8", "N-7"]
    assert (tick.seen, tick.total_shown, tick.total_seen) == (10, 3, 10)
    log.writer().append([NewRecord("a.b", b"x", event("flood"), partition=0)] * 5_000)
    tick = tail.step(0)
    assert (tick.seen, tick.passed_by, tick.total_seen) == (1_000, 4_000, 5_010)
    assert tail.step(0).seen == 0
    tail.close()


def test_bytes_are_shown_as_what_they_are(browser: Browser) -> None:
    def shown(data: bytes | None) -> tuple[str, str]:
        found = part(data, lambda schema_id: browser.ready_schema(schema_id, "a.b"))
        return found.form, found.problem

    assert shown(None) == ("null", "")
    assert shown(b'{"a": 1}') == ("json", "")
    assert shown("grüß".encode()) == ("text", "")
    assert shown(b"\xff\xfe") == ("hex", "")
    assert shown(b"a\x00b") == ("hex", "")
    assert shown(b"[" * 100_000) == ("text", "")
    assert shown(b"\x00\x00\x00\x00\x63rest") == (
        "hex",
        "it names schema 99, which the registry does not have",
    )
    assert "cannot be used" in shown(b"\x00\x00\x00\x00\x08rest")[1]
    half = part(b'{"a": "\\ud800", "b": 123456789012345678901234567890, "c": NaN}', None)
    assert half.form == "json" and "\\ud800" in half.text and half.text.encode()
    form, problem = shown(b"\x00\x00\x00\x00\x07\xff\xff")
    assert form == "hex" and problem.startswith("its schema cannot read it")


def test_what_is_no_number_is_not_shown_as_null() -> None:
    found = part(b'{"a": [NaN, -Infinity, null], "b": 1.5}', None)
    assert (found.form, found.line) == ("json", '{"a": [NaN, -Infinity, null], "b": 1.5}')


def test_huge_values_are_cut_and_say_so() -> None:
    text = part(b"x" * 90_000, None)
    assert len(text.text) == MOST_CHARACTERS and text.cut == "86,000 of 90,000 characters are not shown"
    raw = part(b"\xff" * 9_000, None)
    assert raw.cut == "8,488 of 9,000 bytes are not shown"
    assert len(part(b"x" * 90_000, None, 200_000).text) == 90_000
    assert dump(bytes(range(65, 82))).splitlines()[1].startswith("00000010  51")
