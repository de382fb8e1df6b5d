"""Conformance checker on the in-memory log: judgements, and exactly-once copies after a crash at any
point.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from failing_log import FailingCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import CallerError, HubFault, NotFound, PeerError
from hub.log import MemoryReader, Unreadable
from hub.observability.export.metrics import exposition
from hub.observability.overview.overview import KafkaHealth, Overview
from hub.record import NewRecord, Record, TopicPartition
from hub.schema_registry.codecs.wire_format import frame
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.conformance.auditor import ConformanceChecker, mode_of
from hub.topics.conformance.rules import (
    AUDIT_TOPIC,
    MOST_PRODUCERS,
    OTHER,
    KnownSchema,
    Mode,
    Tally,
    copy_of,
    counters,
    judge,
    summary,
    tally_of,
)
from hub.topics.dead_letters.record_format import dead_letter_of
from hub.topics.tree.tree import LiveTree

INNER = {"type": "enum", "name": "x.Side", "symbols": ["L", "R"]}
OUTER = {
    "type": "record",
    "name": "x.Move",
    "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": "x.Side"}],
}
GOOD = frame(1, b"\x02")
# (record of an unknown producer, expected violation).
VALUES: Mapping[bytes | None, str | None] = {
    GOOD: None,
    None: None,
    frame(3, b"\x02\x00"): None,
    frame(4, b"{}"): None,
    frame(4, b"anything"): "undecodable",
    b"": "framing",
    b"\x01\x00\x00\x00\x01\x02": "framing",
    b'{"json": 1}': "framing",
    frame(99, b"\x02"): "unknown_schema",
    frame(2, b"\x02"): "foreign_schema",
    frame(1, b""): "undecodable",
    frame(3, b"\x02\x04"): "undecodable",
    frame(1, b"\x02\x02"): "rest",
}


@dataclass
class Registry:
    """Registry in which ids 1 (long), 3 (refers to another) and 4 (JSON) belong to subject t-value; id 2 does
    not.
    """

    away: bool = False
    subjects_: list[str] = field(default_factory=lambda: ["t-value", "side", "views.v-value", "gone-value"])
    asked: list[int] = field(default_factory=list)

    def subjects(self) -> list[str]:
        return self.subjects_

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        if self.away:
            raise PeerError("away")
        self.asked.append(schema_id)
        if schema_id not in (1, 2, 3, 4):
            raise NotFound("no such id")
        return frozenset({"side"} if schema_id == 2 else {"t-value"})

    def source(self, schema_id: int) -> SchemaSource:
        side = SchemaSource.of("AVRO", json.dumps(INNER))
        return {
            1: SchemaSource.of("AVRO", '"long"'),
            3: SchemaSource.of("AVRO", json.dumps(OUTER), (("x.Side", side),)),
            4: SchemaSource.of("JSON", '{"type": "object"}'),
        }[schema_id]


class Cluster(FailingCluster):
    """In-memory cluster with topic settings."""

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: self.descriptions[name].config for name in names}


def cluster(partitions: int = 2) -> Cluster:
    made = Cluster()
    made.failures = []
    for name in ("t", "untyped", "views.v"):
        made.create_topic(name, partitions=partitions, config={}, replication_factor=1)
    return made


def auditor(
    log: Cluster, mode: Mode = "quarantine", registry: Registry | None = None, **more: Any
) -> ConformanceChecker:
    clock = iter(range(0, 10**9, 10))
    return ConformanceChecker(log, registry or Registry(), lambda _: mode, now_s=lambda: next(clock), **more)


def write(log: Cluster, values: Sequence[bytes | None], producer: str = "till") -> None:
    headers = (("hub.producer", producer.encode()), ("x", b"\x00"))
    log.writer().append(
        [NewRecord("t", b"k", value, headers, 1_000 + n, n % 2) for n, value in enumerate(values)]
    )


def copied(log: Cluster) -> list[tuple[int, int]]:
    """Return (partition, offset of the original) in the order of the quarantine topic."""
    return [
        (partition, int(record.header("hub.quarantine.offset") or b"-1"))
        for partition, records in enumerate(log.logs.get("t.quarantine", []))
        for record in records
    ]


@pytest.mark.parametrize(("value", "reason"), VALUES.items())
def test_a_record_is_judged(value: bytes | None, reason: str | None) -> None:
    log = cluster()
    write(log, [value])
    running = auditor(log)
    assert running.step() == 1
    tally = running.tallies[TopicPartition("t", 0)]
    assert tally.violations == ({} if reason is None else {(reason, "till"): 1})
    assert tally.position == 1
    if reason is None:
        assert "t.quarantine" not in log.logs
        return
    (copy,) = log.logs["t.quarantine"][0]
    (original,) = log.logs["t"][0]
    assert (copy.key, copy.value) == (original.key, original.value)
    assert copy.headers[:2] == original.headers
    said = {name: text.decode() for name, text in copy.headers[2:]}
    assert said["hub.quarantine.reason"] == reason and said["hub.quarantine.detail"]
    assert (said["hub.quarantine.topic"], said["hub.quarantine.partition"]) == ("t", "0")


def test_a_copy_is_as_old_as_the_copy_and_tells_the_originals_time() -> None:
    """Regression: with the original's timestamp, retention deleted copies of old records at once."""
    log = cluster()
    log.now_ms = 9_000_000
    write(log, [b"wrong"])
    auditor(log).step()
    ((copy,), _) = log.logs["t.quarantine"]
    assert copy.timestamp_ms == 9_000_000
    assert copy.header("hub.quarantine.timestamp") == b"1000"
    letter = dead_letter_of(copy)
    assert (letter.timestamp_ms, letter.written_at_ms) == (1_000, 9_000_000)


def test_a_policy_has_the_last_word() -> None:
    log = cluster()
    write(log, [GOOD, frame(3, b"\x02\x00")])
    running = auditor(log, policies=[lambda record, schema_id: "no threes" if schema_id == 3 else None])
    running.step()
    assert running.tallies[TopicPartition("t", 1)].violations == {("policy", "till"): 1}
    assert judge(Record("t", 0, 0, 0, None, GOOD), lambda _: KnownSchema(True, None)) is None


def test_only_topics_with_a_schema_are_read_and_off_is_off() -> None:
    log = cluster()
    for name in ("untyped", "views.v"):
        log.writer().append([NewRecord(name, None, b"wild")])
    running = auditor(log)
    assert running.step() == 0
    assert {place.topic for place in running.tallies} == {"t"}
    write(log, [b"wild"])
    silent = auditor(log, "off")
    assert silent.step() == 0
    reporting = auditor(log, "report")
    assert reporting.step() == 1
    assert "t.quarantine" not in log.logs


@settings(max_examples=fast_or(30, 150), deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(list(VALUES)), max_size=6), min_size=1, max_size=5),
    st.lists(st.sampled_from(["", "", "before", "after", "crash"]), max_size=12),
)
def test_each_violation_is_copied_once_and_in_order_wherever_it_dies(
    batches: list[list[bytes | None]], failures: list[str]
) -> None:
    log = cluster()
    running = auditor(log)
    written: list[bytes | None] = []
    for batch in [*batches, *[[] for _ in failures], []]:
        write_from = len(written)
        written += batch
        log.failures = []
        log.writer().append(
            [NewRecord("t", b"k", value, (), 1_000, n % 2) for n, value in enumerate(batch, write_from)]
        )
        said = failures.pop(0) if failures else ""
        if said == "crash":
            running = auditor(log)  # fences the other checker, which is dropped
        log.failures = [said] if said in ("before", "after") else []
        try:
            running.step()
        except PeerError:
            running.close()
    log.failures = []
    running.step()
    wrong = [(n % 2, n // 2) for n, value in enumerate(written) if VALUES[value] is not None]
    assert copied(log) == sorted(wrong)
    tallies = running.tallies.values()
    assert sum(tally.checked for tally in tallies) == len(written)
    assert sum(tally.quarantined for tally in tallies) == len(wrong)
    running.flush()
    last = {tally.topic_partition: tally for tally in map(tally_of, log.logs[AUDIT_TOPIC][0])}
    assert last == running.tallies


def test_the_registry_away_loses_nothing_and_an_id_may_be_registered_later() -> None:
    log, registry = cluster(), Registry(away=True)
    write(log, [GOOD, b"wild"])
    running = auditor(log, registry=registry)
    with pytest.raises(PeerError):
        running.step()
    running.close()
    registry.away = False
    running.step()
    assert copied(log) == [(1, 0)]
    write(log, [GOOD] * 50)
    running.step()
    assert registry.asked.count(1) == 1


def test_a_topic_made_anew_is_judged_from_its_start() -> None:
    log = cluster()
    write(log, [b"wild"] * 4)
    running = auditor(log)
    running.step()
    log.delete_topic("t")
    log.create_topic("t", partitions=2, config={}, replication_factor=1)
    write(log, [b"wild"])
    running.close()
    running.step()
    assert running.tallies[TopicPartition("t", 0)].checked == 1
    assert copied(log) == [(0, 0), (0, 1), (0, 0), (1, 0), (1, 1)]


def test_a_quarantine_that_kafka_refuses_ends_its_copies_and_no_audit() -> None:
    """Regression: Kafka refuses "t.quarantine" next to "t_quarantine", and the check of all topics waited
    forever.
    """

    class Refusing(Cluster):
        def create_topic(self, name: str, **said: Any) -> None:
            if name == "t.quarantine":
                raise CallerError(f'topic "{name}": collides with existing topics: t_quarantine')
            super().create_topic(name, **said)

    log = Refusing()
    log.failures = []
    log.create_topic("t", partitions=1, config={}, replication_factor=1)
    log.writer().append([NewRecord("t", b"k", value, partition=0) for value in (b"wild", GOOD, b"wild")])
    running = auditor(log)
    running.step()
    tally = running.tallies[TopicPartition("t", 0)]
    assert (tally.position, tally.checked, tally.uncopied, tally.quarantined) == (3, 3, 2, 0)


def test_what_cannot_be_read_stops_its_partition_alone() -> None:
    """Regression: a batch that could not be unpacked ended each step of the checker, for all topics."""
    broken: dict[TopicPartition, int] = {}

    class Reader(MemoryReader):
        def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
            before = dict(self.positions)
            found = [
                each
                for each in super().poll(limit, timeout_s)
                if each.offset < broken.get(each.topic_partition, each.offset + 1)
            ]
            stopped = {place: offset for place, offset in broken.items() if place in self.positions}
            self.positions |= {place: min(self.positions[place], at) for place, at in stopped.items()}
            if not found and any(before[place] == offset for place, offset in stopped.items()):
                place = next(iter(stopped))
                raise Unreadable(f"offset {broken[place]} cannot be unpacked", place, broken[place])
            return found

    log = cluster()
    log.reader = lambda: Reader(log)  # type: ignore[method-assign]
    write(log, [GOOD, b"wild"] * 3)
    place = TopicPartition("t", 0)
    broken[place] = 1
    running = auditor(log)
    for _ in range(20):
        running.step()
        if copied(log) == [(1, 0), (1, 1), (1, 2)] and running.tallies[place].unread:
            break
    (row,) = summary(running.tallies.values())
    assert (row["positions"], row["unread"]) == ({"0": 1, "1": 3}, {"0": "offset 1 cannot be unpacked"})
    write(log, [GOOD, b"wild"])
    for _ in range(3):
        running.step()
    assert (1, 3) in copied(log) and running.tallies[place].position == 1
    running.flush()
    running.close()
    running.step()  # the next checker reads it from the log
    assert running.tallies[place].unread
    broken.clear()
    for _ in range(20):
        running.step()
    (row,) = summary(running.tallies.values())
    assert (row["positions"], row["unread"]) == ({"0": 4, "1": 4}, {})


def test_a_gap_is_counted_and_a_topic_grows() -> None:
    tally = Tally("t", 0, "id", position=5)
    tally.moved(8, 20)
    assert (tally.position, tally.missed) == (8, 3)
    tally.moved(0, 6)
    assert (tally.position, tally.missed) == (6, 3)
    log = cluster()
    write(log, [b"wild"])
    running = auditor(log)
    running.step()
    log.add_partitions("t", 3)
    log.writer().append([NewRecord("t", None, b"wild", partition=2)])
    running.step()
    assert copied(log) == [(0, 0), (2, 0)]


def test_producers_are_told_apart_up_to_a_limit() -> None:
    tally = Tally("t", 0, "id")
    for number in range(MOST_PRODUCERS + 5):
        record = Record("t", 0, number, 1, None, b"", (("hub.producer", b"p%d" % number),))
        tally.take(record, judge(record, lambda _: None), None)
    assert tally.violations["framing", OTHER] == 5
    unnamed = Record("t", 0, 999, 1, None, b"")
    fresh = Tally("t", 1, "id")
    fresh.take(unnamed, judge(unnamed, lambda _: None), True)
    assert fresh.violations == {("framing", "unknown"): 1}
    again = tally_of(Record(AUDIT_TOPIC, 0, 0, 0, fresh.record().key, fresh.record().value))
    assert again == fresh
    with pytest.raises(HubFault, match="offset 7"):
        tally_of(Record(AUDIT_TOPIC, 0, 7, 0, b"{}", b"{}"))


def test_what_was_found_is_summed_up_and_counted() -> None:
    log = cluster()
    write(log, [b"wild", b"wild", GOOD, frame(1, b"")])
    running = auditor(log)
    running.step()
    (row,) = summary(running.tallies.values())
    assert (row["topic"], row["checked"], row["violations"], row["quarantined"]) == ("t", 4, 3, 3)
    assert row["by_reason"] == {"framing": 2, "undecodable": 1} and row["by_producer"] == {"till": 3}
    assert row["positions"] == {"0": 2, "1": 2} and row["last"]["offset"] == 1
    series = {
        (name, *labels.values()): value for name, _, labels, value in counters(running.tallies.values())
    }
    assert series["hub_audit_violations", "t", "framing", "till"] == 2
    assert series["hub_audit_records", "t"] == 4


def test_counters_go_into_the_metrics() -> None:
    overview = Overview(0, KafkaHealth("127.0.0.1:9092", 0, None), None, (), ())
    text = exposition(overview, [("hub_audit_records", "Said", {"topic": "t"}, 4.0)]).decode()
    assert 'hub_audit_records_total{topic="t"} 4.0' in text


def test_the_tree_says_the_mode_and_may_change_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "topics.yaml"
    tree = LiveTree(file)
    assert mode_of(tree, "a.b") == "report"
    file.write_text("topics: {a: {audit: quarantine, topics: {b: {}, c: {audit: off}, d: {audit: report}}}}")
    assert [mode_of(tree, f"a.{label}") for label in "bcdx"] == ["quarantine", "off", "report", "report"]
    file.write_text("topics: {a: {audit: perhaps}}")
    assert mode_of(tree, "a.b") == "quarantine" and tree.error is not None
    file.write_text("topics: {a: {topics: {b: {}}}}")
    assert mode_of(tree, "a.b") == "report" and tree.error is None


def test_a_copy_keeps_a_missing_time_missing() -> None:
    record = Record("t", 1, 2, -1, None, b"")
    violation = judge(record, lambda _: None)
    assert violation is not None and copy_of(record, violation).timestamp_ms is None
