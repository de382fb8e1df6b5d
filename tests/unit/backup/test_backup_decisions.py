"""Decisions of backups: what a run reads, where a time cuts, what a restore creates,
and the objects' bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.backup.restoring.point_in_time import base_run, cut_at, cut_within, groups_run
from hub.backup.restoring.restore_plan import TargetFacts, plan_topics
from hub.backup.restoring.saved_log import PartitionToRestore, before
from hub.backup.saving.range_reader import RangeCursor, next_cursor
from hub.backup.saving.run_plan import ClusterTopic, RunPlan, plan_run
from hub.backup.storage.last_run import LastRun, families, keep
from hub.backup.storage.manifest import (
    Manifest,
    SavedPartition,
    SavedSegment,
    SavedTopic,
    UnreadableBackup,
    manifest_of,
)
from hub.backup.storage.sealing import ObjectSealer, key_of
from hub.errors import ConfigError, Conflict, NotFound
from hub.kafka.protocol.record_batch import CorruptBatch, FetchedPartition, batches_in, is_intact
from hub.log import TopicDescription
from hub.record import TopicPartition
from hub.replication.planning.schema_plan import RegistrySide, SchemaVersion, SubjectSettings
from hub.replication.rewriting.reencode import RawRecord, batch_of, records_in, rest_of
from hub.schema_registry.model.facts import Reference

DAY_MS = 86_400_000


def segment(first: int, after: int, newest_ms: int = 0, taken_at_ms: int = 0) -> SavedSegment:
    return SavedSegment(f"s/{first}", first, after, after - first, 10, 5, "digest", newest_ms, taken_at_ms)


def partition(*segments: SavedSegment, read_at_ms: int = 0) -> SavedPartition:
    start, after = (segments[0].first, segments[-1].next) if segments else (0, 0)
    return SavedPartition(start, after, tuple(segments), (), read_at_ms)


def topic(*partitions: SavedPartition, name: str = "shop.a", **config: str) -> SavedTopic:
    return SavedTopic(
        name, "id", 3, {key.replace("_", "."): each for key, each in config.items()}, partitions
    )


def facts(begin: int, end: int, topic_id: str = "id", **config: str) -> ClusterTopic:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return ClusterTopic("shop.a", topic_id, 1, settings, (begin,), (end,))


def plan(
    saved: SavedPartition | None, now: ClusterTopic, now_ms: int = 0, from_start: bool = False
) -> RunPlan:
    last = None if saved is None else Manifest(1, 0, topics={"shop.a": topic(saved)})
    return plan_run(last, [now], now_ms, lambda _topic: from_start)


def test_a_run_goes_on_where_the_last_one_ended() -> None:
    (wanted,) = plan(partition(segment(5, 20)), facts(5, 30)).ranges
    assert (wanted.first, wanted.end, wanted.reason) == (20, 30, "")
    assert wanted.saved.segments == (segment(5, 20),)


def test_a_new_topic_is_read_from_its_first_record() -> None:
    (wanted,) = plan(None, facts(7, 30)).ranges
    assert (wanted.first, wanted.end, wanted.saved) == (7, 30, SavedPartition(7, 7))


def test_records_that_were_deleted_between_runs_are_a_gap() -> None:
    (wanted,) = plan(partition(segment(5, 20)), facts(25, 30)).ranges
    assert (wanted.first, wanted.saved.gaps) == (25, ((20, 25),))


@pytest.mark.parametrize(("topic_id", "from_start"), [("other", False), ("id", True)])
def test_a_recreated_topic_is_read_from_its_start(topic_id: str, from_start: bool) -> None:
    (wanted,) = plan(partition(segment(5, 20)), facts(0, 3, topic_id), from_start=from_start).ranges
    assert (wanted.first, wanted.end, wanted.saved.segments) == (0, 3, ())
    assert wanted.reason


@pytest.mark.parametrize(
    ("config", "hours", "is_again"),
    [
        ({"cleanup_policy": "compact"}, 25, True),
        ({"cleanup_policy": "compact"}, 23, False),
        ({"cleanup_policy": "compact,delete", "delete_retention_ms": "3600000"}, 2, True),
        ({"cleanup_policy": "delete"}, 1_000, False),
    ],
)
def test_a_compacted_topic_is_read_from_its_start_when_tombstones_may_be_gone(
    config: dict[str, str], hours: int, is_again: bool
) -> None:
    saved = partition(segment(0, 20), read_at_ms=1_000)
    (wanted,) = plan(saved, facts(0, 30, **config), now_ms=1_000 + hours * 3_600_000).ranges
    assert (wanted.first == 0) == is_again


def test_a_cluster_that_lost_records_is_a_trouble_and_the_backup_keeps_them() -> None:
    made = plan(partition(segment(0, 20)), facts(0, 10))
    assert made.ranges == ()
    assert "lost records" in made.troubles["shop.a"]
    assert made.topics["shop.a"].partitions[0].segments == (segment(0, 20),)


# ---- point in time


def runs() -> list[Manifest]:
    saved = [segment(0, 10, 90, 100), segment(10, 20, 900, 200), segment(20, 30, 290, 300)]
    return [
        Manifest(number, 100 * number, topics={"shop.a": topic(partition(*saved[:number]))})
        for number in (1, 2, 3)
    ]


def test_a_time_is_restored_from_the_first_run_after_it_with_the_groups_before_it() -> None:
    made = runs()
    assert [base_run(made, at).number for at in (None, 50, 150, 200, 900)] == [3, 1, 2, 2, 3]
    assert [groups_run(made, made[2], at).number for at in (None, 50, 150, 900)] == [3, 3, 1, 3]
    with pytest.raises(NotFound):
        base_run([], None)


def test_a_cut_is_within_the_first_run_after_the_time_only() -> None:
    saved = runs()[1].topics["shop.a"].partitions[0]
    assert cut_at(saved, None) == (20, None)
    # The first run was before the time, whatever its timestamps are; the second one is searched.
    assert cut_at(saved, 150) == (10, saved.segments[1])
    assert cut_at(saved, 50) == (0, saved.segments[0])
    assert cut_at(saved, 95) == (10, saved.segments[1])
    assert cut_at(saved, 200) == (20, None)


def test_a_cut_is_after_the_last_record_before_the_time_not_in_the_hole_that_follows() -> None:
    log = batch_at(3, 2) + batch_at(7, 3)  # their times are 1,000 ms and the offset; 5 and 6 are a hole
    found = [cut_within(batches_in(log), 1_000 + at, 1) for at in (2, 3, 4, 6, 7, 9, 20)]
    assert found == [1, 4, 5, 5, 8, 10, 10]


# ---- batches up to a position


def batch_at(offset: int, count: int) -> bytearray:
    made = batch_of(
        [RawRecord(n, 1_000 + n, 0, rest_of(b"k", b"%d" % n)) for n in range(offset, offset + count)]
    )
    made.payload[:8] = offset.to_bytes(8, "big")
    return made.payload


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 20))
def test_batches_before_a_position_have_exactly_its_records(sizes: Sequence[int], end: int) -> None:
    log, offset = bytearray(), 3
    for size in sizes:
        log += batch_at(offset, size)
        offset += size + 2  # a hole between batches
    every = [record for each in batches_in(log) for record in records_in(each)]
    cut = before(batches_in(log), end)
    assert all(is_intact(each) for each in batches_in(cut))
    assert [each for batch in batches_in(cut) for each in records_in(batch)] == [
        each for each in every if each.offset < end
    ]


def test_a_position_finds_its_segment() -> None:
    part = PartitionToRestore("id", partition(segment(5, 10), segment(12, 20)), 18)
    found = [part.segment_at(at) for at in (5, 9, 10, 17, 18, 25)]
    assert [each and each.first for each in found] == [5, 5, 12, 12, None, None]


# ---- reading


def test_a_damaged_batch_ends_a_range_at_the_second_look() -> None:
    broken = FetchedPartition(next_offset=5, corrupt=CorruptBatch("offset 5"))
    cursor, error = next_cursor(RangeCursor(5, 9), broken, whole=True)
    assert error is None
    assert next_cursor(cursor, broken, whole=True)[1] is not None


def test_a_range_whose_end_was_compacted_away_is_over_after_some_empty_answers() -> None:
    nothing, cursor = FetchedPartition(next_offset=5), RangeCursor(5, 9)
    assert not next_cursor(cursor, nothing, whole=False)[0].empty
    for _ in range(3):
        assert not cursor.is_over
        cursor, _ = next_cursor(cursor, nothing, whole=True)
    assert cursor.is_over


# ---- manifest and objects


def test_a_manifest_is_read_as_it_was_written() -> None:
    version = SchemaVersion("s", 1, 7, "AVRO", "{}", (Reference("A", "a", 2),), True, "{}", "")
    side = RegistrySide((version,), {"s": SubjectSettings('{"a":1}', "READONLY")}, "FULL")
    made = replace(
        runs()[2],
        groups={"g": {TopicPartition("shop.a", 0): 4}},
        registry=side,
        files={"topics.yaml": "a: b\n"},
        complete=True,
    )
    assert manifest_of(made.to_json(), "m") == made
    with pytest.raises(UnreadableBackup, match='"m"'):
        manifest_of(b'{"number": 1}', "m")


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_an_object_is_opened_under_its_own_name_and_key_only(key: bytes | None) -> None:
    sealer, content = ObjectSealer(key), b"batches" * 100
    sealed = sealer.seal("a", content, bytes(12))
    assert bytes(sealer.open("a", sealed)) == content
    if key is not None:
        for other, name, changed in (
            (sealer, "b", sealed),
            (ObjectSealer(b"1" * 32), "a", sealed),
            (sealer, "a", sealed[:-1] + b"x"),
        ):
            with pytest.raises(UnreadableBackup):
                other.open(name, changed)


def test_a_key_is_32_bytes_in_hex_or_base64() -> None:
    assert key_of("00" * 32) == key_of("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n") == bytes(32)
    with pytest.raises(ConfigError, match="32 bytes"):
        key_of("secret")


# ---- restore


def there(name: str, partitions: int = 1, topic_id: str = "new") -> TopicDescription:
    return TopicDescription(name, topic_id, partitions, 1)


def test_a_missing_topic_is_created_and_keeps_all_records_until_it_is_whole() -> None:
    saved = topic(partition(), retention_ms="1000", min_insync_replicas="2", cleanup_policy="compact")
    (step,), refused = plan_topics([saved], "", TargetFacts({}, 1, {}, frozenset(), frozenset()))
    assert refused == ()
    assert step.create is not None
    assert (step.create.replication_factor, step.create.config["retention.ms"]) == (1, "-1")
    assert "min.insync.replicas" not in step.create.config
    assert step.settings["retention.ms"] == "1000"
    assert step.settings["message.timestamp.type"] is None
    assert "min.insync.replicas" in step.note


@pytest.mark.parametrize(
    ("description", "begun", "empty", "refused"),
    [
        (there("p.shop.a"), {}, frozenset(), "not of this backup"),
        (there("p.shop.a", 2), {}, frozenset({"p.shop.a"}), "2 partitions"),
        (there("p.shop.a"), {"p.shop.a": "former"}, frozenset(), "made again"),
        (there("p.shop.a"), {"p.shop.a": "new"}, frozenset(), ""),
        (there("p.shop.a"), {}, frozenset({"p.shop.a"}), ""),
    ],
)
def test_a_topic_with_records_that_are_not_of_the_backup_is_refused(
    description: TopicDescription, begun: dict[str, str], empty: frozenset[str], refused: str
) -> None:
    target = TargetFacts({"p.shop.a": description}, 3, begun, empty, frozenset())
    steps, refusals = plan_topics([topic(partition())], "p.", target)
    assert (len(steps), len(refusals)) == ((0, 1) if refused else (1, 0))
    assert all(refused in each.reason for each in refusals)


def test_a_topic_that_another_cluster_owns_is_refused() -> None:
    error = Conflict('topic "shop.a": lon owns it, and here at nyc is a copy at most; nothing was written')
    target = TargetFacts({}, 1, {}, frozenset(), frozenset(), {"shop.a": error})
    steps, (refusal,) = plan_topics([topic(partition())], "", target)
    assert steps == () and refusal.reason == "lon owns it, and here at nyc is a copy at most"
    assert "--ignore-ownership" in refusal.hint
    assert plan_topics([topic(partition())], "p.", target)[1] == ()


def test_a_topic_that_a_killed_restore_left_gets_its_settings_at_last() -> None:
    saved = topic(partition(), retention_ms="1000")
    target = TargetFacts({"shop.a": there("shop.a")}, 1, {}, frozenset({"shop.a"}), frozenset({"shop.a"}))
    (step,), _ = plan_topics([saved], "", target)
    assert (step.create, step.settings["retention.ms"], step.note) == (None, "1000", "")


def test_the_age_of_a_backup_is_a_series_and_an_unreadable_note_is_none(tmp_path: Path) -> None:
    keep(tmp_path, LastRun("/backup", 3, 1_000, 77, 2))
    (tmp_path / "backups" / "broken.json").write_text("{")
    samples = {
        each.name: (each.labels["place"], each.value)
        for family in families(tmp_path, 61_000)
        for each in family.samples
    }
    assert samples == {
        "hub_backup_age_seconds": ("/backup", 60.0),
        "hub_backup_troubles": ("/backup", 2.0),
        "hub_backup_stored_bytes": ("/backup", 77.0),
    }
    assert not [each for family in families(tmp_path / "none", 0) for each in family.samples]
