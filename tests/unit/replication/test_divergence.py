"""Decisions about the records that only one side has: what a merge leaves out, and what a restore removes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError
from hub.kafka.protocol.record_batch import answer_of, overlaps
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.replication.config.mirrors import Mirror, MirrorsFile
from hub.replication.maps.checkpoint import CHECKPOINTS_TOPIC, Checkpoint, Gap, checkpoint_of
from hub.replication.operations.divergence import restoring
from hub.replication.operations.divergence.diverged import DivergedTopic
from hub.replication.operations.divergence.settling import Settling, removed_ranges
from hub.replication.operations.divergence.tail_export import with_states
from hub.replication.operations.divergence.tail_plan import TailPlan
from hub.replication.ownership.divergence import (
    DivergedPartition,
    RestoredPartition,
    RestoredTopic,
    fresh_checkpoint,
    left_out_ranges,
    older_ranges,
    restored_of,
    superseded,
    tail_gaps,
)
from hub.replication.ownership.failover import begin, done
from hub.replication.ownership.links import Link
from hub.replication.ownership.operation_steps import Tail
from hub.replication.rewriting.reencode import RawRecord, Reencode, batch_of, patched, rest_of

CHAT = TopicPartition("nyc.chat", 0)
ROW = DivergedPartition(CHAT, 3, 10, 15, 2, 9, 20, ((3, 5),))
TOPIC = RestoredTopic("nyc", "nyc.chat", "7", "old", 1, 3, {"retention.ms": "9"}, (ROW,), "ana@one")
KEYS = st.none() | st.sampled_from([b"a", b"b", b"c"])


def record(offset: int, key: bytes | None) -> Record:
    return Record(*CHAT, offset, 0, key, b"%d" % offset)


@given(st.lists(KEYS), st.lists(KEYS), st.lists(KEYS))
def test_after_a_merge_the_last_record_of_each_key_is_the_same_on_both_sides(
    both: list[bytes | None], tail: list[bytes | None], since: list[bytes | None]
) -> None:
    common = [record(offset, key) for offset, key in enumerate(both)]
    only_home = [record(100 + offset, key) for offset, key in enumerate(tail)]
    only_away = [record(200 + offset, key) for offset, key in enumerate(since)]
    left_out = superseded(only_home, {key for key in since if key is not None}).get(CHAT, frozenset())
    home = [*common, *only_home, *only_away]
    away = [*common, *only_away, *(each for each in only_home if each.offset not in left_out)]
    assert {r.key: r.value for r in home if r.key} == {r.key: r.value for r in away if r.key}
    # Nothing is left out that has no newer record, and records without a key never are.
    for each in only_home:
        assert (each.offset in left_out) == (each.key is not None and each.key in since)


def test_a_merge_stops_the_writers_before_it_decides() -> None:
    def steps(tail: Tail) -> list[str]:
        control: Any = _given_away()
        return [s.name for s in begin(control, "failback", id="1", mirror="m", home="nyc", new="nyc", now_ms=0, tail=tail).steps]  # fmt: skip # noqa: E501

    merge, others = steps("merge"), [steps(each) for each in ("replay", "discard", "restore")]
    assert merge.index("stop_writers") + 1 == merge.index("settle_tail")
    assert all(each.index("stop_writers") == each.index("drain") - 1 for each in others)
    assert sorted(merge) == sorted(others[0]) and len(set(merge)) == len(merge)


def _given_away() -> Any:
    from hub.replication.ownership.failover import Control, apply, ownership

    change = begin(Control(), "failover", id="0", mirror="m", home="nyc", new="lon", now_ms=0)
    made = [*change.records(), *ownership(change, 1).records()]
    while change.next is not None:
        change = done(change, change.next.name)
    control = Control()
    for number, each in enumerate([*made, *change.records()]):
        control = apply(control, Record(each.topic, 0, number, 0, each.key, each.value))
    return control


@pytest.mark.parametrize(("tail", "workers"), [("replay", True), ("merge", True), ("restore", False)])
def test_workers_append_a_tail_only_where_it_is_to_be_appended(tail: Tail, workers: bool) -> None:
    control = _given_away()
    change = begin(control, "failback", id="1", mirror="m", home="nyc", new="nyc", now_ms=0, tail=tail)
    while change.next is not None and change.next.name != "settle_tail":
        change = done(change, change.next.name)
    at_settling = replace(control, operations={"nyc": change})
    assert at_settling.may_mirror("nyc", "nyc", "lon") is workers
    assert at_settling.may_mirror("nyc", "lon", "nyc") is False
    if tail == "merge":
        assert not at_settling.may_write("lon", "nyc") and not at_settling.may_write("nyc", "nyc")


def test_superseded_ranges_are_those_of_the_link_and_of_the_present_topic() -> None:
    def gap(first: int, end: int, **other: Any) -> Gap:
        return replace(Gap("m", *CHAT, "id", first, end, "superseded"), **other)

    gaps = [gap(7, 9), gap(3, 5), gap(5, 6), gap(20, 30, reason="skipped"), gap(40, 50, topic_id="former")]
    gaps.append(gap(60, 70, link="other"))
    assert left_out_ranges(gaps, "m", {"nyc.chat": "id"}) == {CHAT: [(3, 6), (7, 9)]}


def test_a_batch_of_which_some_records_are_superseded_is_written_without_them() -> None:
    """A producer's batch has records of several keys: leaving out all of it would lose the others."""
    raws = [RawRecord(offset, 1, 0, rest_of(b"k", b"%d" % offset)) for offset in range(4)]
    payload = batch_of(raws).payload
    for ranges, kept in (
        ([(1, 3)], [0, 3]),
        ([(0, 4)], []),
        ([(9, 12)], [0, 1, 2, 3]),
        ([(0, 1)], [1, 2, 3]),
    ):
        answer = answer_of(payload, 0, len(payload), 0, left_out=ranges)
        (piece,) = answer.pieces
        assert piece.rewrite == overlaps(ranges, 0, 4)
        made = Reencode().reencode(piece.batches, 0, 1 << 20, ranges)
        offsets = [o for each in made for run in each.runs for o in range(run.source, run.source_end)]
        assert offsets == kept
        assert all(patched(each.payload).count == each.count for each in made)


def test_what_a_restore_removes_is_exported_and_counted() -> None:
    assert older_ranges(0, 10, 4, [Gap("m", *CHAT, "id", 6, 8, "skipped"), Gap("m", *CHAT, "id", 9, -1, "recreated")]) == ((0, 4), (6, 8))  # fmt: skip # noqa: E501
    assert older_ranges(5, 10, 4, [Gap("m", *CHAT, "id", 3, 12, "skipped")]) == ((5, 10),)
    assert (ROW.only_home, ROW.only_home_before, ROW.only_away) == (5, 2, 11)
    ranges = removed_ranges(TOPIC, "lon")
    assert [(each.first, each.end) for each in ranges] == [(3, 5), (10, 15)]
    assert "older" in ranges[0].reason(record(3, None)) and "not mirrored" in ranges[1].reason(
        record(10, None)
    )
    (gap,) = tail_gaps("m", [ROW, replace(ROW, home_end=10)], "old", 5)
    assert (gap.first, gap.end, gap.topic_id, gap.reason) == (10, 15, "old", "skipped")


def test_a_restored_topic_is_read_as_it_was_written() -> None:
    for each in (TOPIC, replace(TOPIC, topic_id="new", after=(RestoredPartition(0, 0, 18, 16),))):
        made = each.record()
        assert made.key == b"restored|nyc|nyc.chat" and made.value is not None
        assert restored_of("nyc|nyc.chat", orjson.loads(made.value)) == each
    before, after = (row["after"] for each in (TOPIC, replace(TOPIC, after=(RestoredPartition(0, 0, 18, 16),))) for row in each.as_json()["partitions"])  # fmt: skip # noqa: E501
    assert before is None and after == {"home_first": 0, "home_end": 18, "records": 16}


def test_a_direction_begins_anew_once() -> None:
    former = Checkpoint("m", 0, *CHAT, "old", 100, 3, 90, "lon", 2, 5, 5)
    empty = Checkpoint("m", 0, *CHAT, "new", 0, -1, 0, "lon")
    (made,) = fresh_checkpoint(former, empty, 4, 77)
    read = checkpoint_of(_read(made))
    assert read == replace(empty, generation=3, committed_at_ms=77)
    assert isinstance(read, Checkpoint) and read.age > former.age
    assert fresh_checkpoint(read, empty, 4, 78) == []
    (first,) = fresh_checkpoint(None, empty, 4, 77)
    assert checkpoint_of(_read(first)) == replace(empty, committed_at_ms=77)


def _read(new: NewRecord) -> Record:
    return Record(CHECKPOINTS_TOPIC, new.partition or 0, 0, 0, new.key, new.value)


def test_records_of_aborted_transactions_are_marked() -> None:
    every = [record(offset, None) for offset in range(6)]

    def committed() -> Iterator[Record]:
        yield from (every[1], every[2], every[5])

    states = {each.offset: is_committed for each, is_committed in with_states(every, committed())}
    assert [offset for offset, is_committed in states.items() if is_committed] == [1, 2, 5]
    assert [is_committed for _, is_committed in with_states(every, iter(()))] == [False] * 6


def test_the_digest_is_of_the_decision_and_of_what_only_home_has() -> None:
    plan = TailPlan("restore", (ROW,))
    assert plan.digest == TailPlan("restore", (replace(ROW, away_end=99),)).digest
    others = [
        TailPlan("discard", (ROW,)),
        TailPlan("restore", ()),
        TailPlan("restore", (replace(ROW, home_end=16),)),
    ]
    assert plan.digest not in {each.digest for each in others}
    lines = "\n".join(replace(plan, refused={"nyc.x": "why"}).lines("nyc", "lon"))
    assert "only nyc has 5 offsets (10 to 15) and 2 older ones; lon has 11 written since" in lines
    assert "made again and filled from lon: nyc.chat" in lines and '"nyc.x" cannot be restored: why' in lines


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, None),
        ({"only": [{"topics": ["nyc.**"], "where": {"header": "h", "in": ["x"]}}]}, "filtered or masked"),
        ({"third": True}, "mirror nyc-sgp copies it to another cluster"),
    ],
)
def test_a_topic_is_restored_only_if_the_other_side_has_all_of_it(
    more: dict[str, Any], why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = more.pop("third", False)
    mirrors = {"nyc-lon": {"source": "nyc", "target": "lon", "topics": ["nyc.**"], **more}}
    if third:
        mirrors["nyc-sgp"] = {"source": "nyc", "target": "sgp", "topics": ["nyc.**"]}
    clusters = {name: {"bootstrap": f"{name}:9092", "owns": [f"{name}.**"]} for name in ("nyc", "lon", "sgp")}
    file = MirrorsFile.model_validate({"clusters": clusters, "mirrors": mirrors})
    link = Link("nyc-lon", cast(Mirror, file.mirrors["nyc-lon"]), "nyc-lon")
    diverged = [DivergedTopic(link, "nyc.chat", (ROW,), {})]
    monkeypatch.setattr(restoring, "diverged_topics", lambda *_: diverged)
    monkeypatch.setattr(restoring, "topics_of", lambda _: {"nyc.chat": SimpleNamespace(topic_id="id")})
    world = cast(Any, SimpleNamespace(file=file, clusters={"nyc": None}))
    found = restoring.restore_refusals(world, "nyc", "lon")
    assert (why in found["nyc.chat"]) if why else found == {}


@pytest.mark.parametrize(
    ("ids", "forgets"), [(None, False), (("away", "former"), True), (("away", "new"), False)]
)
def test_the_map_back_of_a_former_topic_is_forgotten_before_the_topic_is_filled(
    ids: tuple[str, str] | None, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the id of the other side's topic, which stays: its runs would be taken for new ones."""
    file = _pair()
    known = {} if ids is None else {CHAT: Checkpoint("m", 0, *CHAT, ids[0], 9, -1, 9, ids[1])}
    done_: list[str] = []
    kafka = SimpleNamespace(beginning_offsets=lambda _: Positions({CHAT: 2}))
    sides = {name: SimpleNamespace(name=name, kafka=kafka) for name in ("nyc", "lon")}
    link = Link("nyc-lon", file.mirrors["nyc-lon"], "nyc-lon")
    world = SimpleNamespace(
        file=file, clusters=sides, ways=lambda *_: [link], topics_of_link=lambda *_: {"nyc.chat"}
    )
    monkeypatch.setattr(restoring, "topics_of", lambda _: {"nyc.chat": SimpleNamespace(topic_id="away")})
    monkeypatch.setattr(restoring, "read_progress", lambda *_, **__: SimpleNamespace(of=lambda _: known))
    monkeypatch.setattr(restoring, "forget", lambda back, *_: done_.append(f"forget {back.name}"))

    def written(of: Link, _: object, marks: list[Checkpoint], gaps: tuple[Gap, ...] = ()) -> None:
        begins = ", ".join(f"{mark.source_start}" for mark in marks)
        done_.append(f"{of.name} begins at {begins}, {len(gaps)} gaps")

    monkeypatch.setattr(restoring, "_write", written)
    operation = SimpleNamespace(home="nyc", old="lon", new="nyc")
    restoring.begin_anew(cast(Any, world), cast(Any, operation), TOPIC, "new")
    expected = ["nyc-lon begins at 0, 1 gaps", "nyc-lon~back begins at 2, 0 gaps"]
    assert done_ == ([expected[0], "forget nyc-lon~back", expected[1]] if forgets else expected)


def _pair() -> MirrorsFile:
    clusters = {name: {"bootstrap": f"{name}:9092", "owns": [f"{name}.**"]} for name in ("nyc", "lon")}
    mirrors = {"nyc-lon": {"source": "nyc", "target": "lon", "topics": ["nyc.**"]}}
    return MirrorsFile.model_validate({"clusters": clusters, "mirrors": mirrors})


def test_a_deleted_topic_is_not_filled_without_its_files(tmp_path: Path) -> None:
    """The command continues on another machine, which does not have them."""
    operation = SimpleNamespace(export=str(tmp_path), mirror="m")
    settling = Settling(cast(Any, None), cast(Any, operation), 1.0, print, print)
    wanted = removed_ranges(TOPIC, "lon")
    with pytest.raises(CallerError, match="not in .* on this machine") as refused:
        settling.check_exported({"nyc.chat": TOPIC}, wanted)
    assert "ana@one" in (refused.value.hint or "")
    for first, end in ((3, 5), (10, 15)):
        head = orjson.dumps({"topic": "nyc.chat", "partition": 0, "first": first, "end": end})
        (tmp_path / f"nyc.chat-0-{first}-{end}.jsonl").write_bytes(head + b"\n")
    settling.check_exported({"nyc.chat": TOPIC}, wanted)
