"""Positions outside of Kafka, translated by the offset map: exactly, as a bound, or said to be unknown."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from positions_world import MAPS, ORDERS, PLACE, log, table

from hub.errors import CallerError, Conflict
from hub.record import Record
from hub.replication.maps.checkpoint import Gap
from hub.replication.maps.offset_map import Run
from hub.replication.maps.two_way_offset_map import TwoWayOffsetMap
from hub.replication.positions.connect_offsets import digest_of, newest, plan_offsets
from hub.replication.positions.lines import translated_line
from hub.replication.positions.position_table import check_table, plan_table
from hub.replication.positions.spark_logs import CheckpointLogs, moved
from hub.replication.positions.translation import PartitionMap, translate


@pytest.mark.parametrize(
    ("offset", "precision", "translated"),
    [
        (9, "unknown", None),  # before the map
        (10, "exact", 0),
        (14, "exact", 4),
        (15, "next", 6),  # a marker: the next record
        (16, "exact", 6),
        (20, "next", 10),  # a marker at the end of what is mirrored
        (21, "exact", 10),  # the end of both
        (22, "unknown", None),  # past the end
    ],
)
def test_a_position_is_exact_or_the_next_record_or_unknown(
    offset: int, precision: str, translated: int | None
) -> None:
    found = translate(PLACE, offset, ORDERS)
    assert (found.precision, found.translated) == (precision, translated)
    assert bool(found.why) == (precision != "exact")


def test_the_reasons_name_what_is_known() -> None:
    assert (
        "begin" in translate(PLACE, 3, ORDERS).why
        or "first record is at 10" in translate(PLACE, 3, ORDERS).why
    )
    assert "reaches to 21" in translate(PLACE, 30, ORDERS).why
    assert "nothing of this partition" in translate(PLACE, 30, None).why
    gap = Gap("m", "nyc.orders", 0, "id", 15, 16, "skipped")
    assert (
        "lacks offsets 15 to 16 (skipped)"
        in translate(PLACE, 15, PartitionMap(ORDERS.table, gaps=(gap,))).why
    )
    moved_before = translate(PLACE, 12, PartitionMap(ORDERS.table, incomplete="it moved"))
    assert (moved_before.translated, moved_before.why) == (None, "it moved")


def test_where_the_sides_differ_in_order_the_position_is_a_bound() -> None:
    # two_way_offset_map.py's drawing: home's h3 was carried behind t0 and t1.
    forward, back = table(Run(0, 0, 3), Run(3, 5, 1)), table(Run(3, 4, 2))
    both = PartitionMap(forward, TwoWayOffsetMap(forward, back))
    found = translate(PLACE, 4, both)
    assert (found.precision, found.translated, found.read_again) == ("bounded", 3, 1)
    assert not found.is_exact


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=8
    ),
    offset=st.integers(0, 80),
)
def test_a_reader_gets_each_record_once_or_is_told(steps: list[tuple[int, int, int]], offset: int) -> None:
    """An exact position splits the records of both sides alike; and there and back is the same record."""
    runs, source, target = [], 0, 0
    for more_source, more_target, count in steps:
        runs.append(Run(source + more_source, target + more_target, count))
        source, target = runs[-1].source_end, runs[-1].target_end
    known = PartitionMap(table(*runs))
    found = translate(PLACE, offset, known)
    pairs = [(run.source + n, run.target + n) for run in runs for n in range(run.count)]
    if found.translated is None:
        assert offset < runs[0].source or offset > source
        return
    assert all((there < found.translated) == (here < offset) for here, there in pairs)
    returned = translate(PLACE, found.translated, known, back=True)
    assert returned.precision == "exact" and (returned.translated == offset or found.precision == "next")


# ---- lines


@pytest.mark.parametrize(
    ("line", "topic", "becomes"),
    [
        ("nyc.orders:0:12", "", "nyc.orders:0:2"),
        ("nyc.orders:0:12,nyc.orders:7:1", "", "nyc.orders:0:2,nyc.orders:7:?"),
        (
            "partition:0,offset:12;partition:0,offset:16",
            "nyc.orders",
            "partition:0,offset:2;partition:0,offset:6",
        ),
        (
            "[Partition: nyc.orders-0, StartingOffset: 12, StoppingOffset: -9223372036854775808]",
            "",
            "[Partition: nyc.orders-0, StartingOffset: 2, StoppingOffset: -9223372036854775808]",
        ),
    ],
)
def test_a_line_keeps_its_form(line: str, topic: str, becomes: str) -> None:
    assert translated_line(line + "\n", 1, MAPS.translate, topic).text == becomes


def test_a_line_of_json_keeps_its_other_fields() -> None:
    found = translated_line('{"topic":"nyc.orders","partition":0,"offset":30,"job":"j1"}', 1, MAPS.translate)
    body = orjson.loads(found.text)
    assert (body["offset"], body["source_offset"], body["job"], body["precision"]) == (
        None,
        30,
        "j1",
        "unknown",
    )


@pytest.mark.parametrize(
    "line", ["x", '{"topic":"a"}', '{"topic":"a","partition":0,"offset":-1}', "partition:0,offset:1"]
)
def test_a_wrong_line_is_named(line: str) -> None:
    with pytest.raises(CallerError) as caught:
        translated_line(line, 7, MAPS.translate)
    assert caught.value.code == "HUB-1640" and caught.value.message.startswith("line 7")


# ---- Spark


def logs(
    offsets: Mapping[int, str], commits: set[int], sources: Mapping[int, str] | None = None
) -> CheckpointLogs:
    return CheckpointLogs("/data/q", offsets, frozenset(commits), sources or {})


def test_a_checkpoint_is_translated_and_other_sources_stay() -> None:
    rate = '{"0":{"value":3,"runTimeMs":1}}'
    given_logs = logs(
        {0: log(12), 1: log(16, rate, "-")}, {0, 1}, {0: '\0v1\n{"nyc.orders":{"0":10}}', 1: "v1\n3"}
    )
    plan = moved(given_logs, MAPS)
    assert plan.offsets == {0: log(2), 1: log(6, rate, "-")}
    assert plan.sources == {0: '\0v1\n{"nyc.orders":{"0":0}}'}
    assert (plan.left_out, plan.repeated) == ((), None)
    assert [each.translated for each in plan.positions] == [6]


def test_old_batches_before_the_map_are_left_out_and_needed_ones_refused() -> None:
    plan = moved(logs({4: log(3), 5: log(12), 6: log(16)}, {4, 5, 6}), MAPS)
    assert plan.left_out == (4,) and set(plan.offsets) == {5, 6}
    for offsets in ({5: log(3), 6: log(16)}, {5: log(12), 6: log(22)}):
        with pytest.raises(Conflict) as caught:
            moved(logs(offsets, {5, 6}), MAPS)
        assert caught.value.code == "HUB-1975" and "nyc.orders" in caught.value.message


def test_a_batch_in_flight_is_refused_or_repeated() -> None:
    begun = logs({0: log(12), 1: log(16)}, {0})
    with pytest.raises(Conflict) as caught:
        moved(begun, MAPS)
    assert caught.value.code == "HUB-1976" and "availableNow" in (caught.value.hint or "")
    plan = moved(begun, MAPS, in_flight="repeat")
    assert (plan.repeated, plan.offsets) == (1, {0: log(2), 1: log(6)})


@pytest.mark.parametrize(
    ("offsets", "commits"),
    [({}, set()), ({0: "v2\n{}\n-"}, {0}), ({0: log(12)}, {0, 1}), ({0: "v1\n{}"}, {0})],
)
def test_what_is_no_checkpoint_is_said(offsets: dict[int, str], commits: set[int]) -> None:
    with pytest.raises(CallerError) as caught:
        moved(logs(offsets, commits), MAPS)
    assert caught.value.code == "HUB-1641" and "/data/q" in caught.value.message


# ---- Kafka Connect


def stored(key: object, value: object | None, offset: int = 0) -> Record:
    return Record("offsets", 3, offset, 0, orjson.dumps(key), None if value is None else orjson.dumps(value))


def test_positions_of_topics_are_translated_and_others_copied() -> None:
    records = [
        stored(["replicator", {"topic": "nyc.orders", "partition": 0}], {"offset": 12}),
        stored(["mm2", {"cluster": "nyc", "topic": "nyc.orders", "partition": 0}], {"offset": 12}),
        stored(["mm2", {"cluster": "sfo", "topic": "nyc.orders", "partition": 0}], {"offset": 12}),
        stored(["end", {"cluster": "nyc", "topic": "nyc.orders", "partition": 0}], {"offset": 20}),
        stored(["debezium", {"server": "crm"}], {"lsn": 77}),
        stored(["late", {"topic": "nyc.orders", "partition": 0}], {"offset": 99}),
        stored(["gone", {"server": "x"}], {"lsn": 1}),
        stored(["gone", {"server": "x"}], None, 1),
    ]
    planned = {
        (each.connector, each.outcome): orjson.loads(each.value) if each.value else None
        for each in plan_offsets(newest(records), "nyc", MAPS)
    }
    assert planned == {
        ("replicator", "translated"): {"offset": 2},
        ("mm2", "translated"): {"offset": 2},  # the last record read: 12 is at 2
        ("mm2", "copied"): {"offset": 12},
        ("end", "translated"): {"offset": 9},  # 20 is a marker, and 10 the next record of both
        ("debezium", "copied"): {"lsn": 77},
        ("late", "refused"): None,
    }


def test_another_plan_has_another_digest() -> None:
    one = plan_offsets(
        newest([stored(["a", {"topic": "nyc.orders", "partition": 0}], {"offset": 12})]), "nyc", MAPS
    )
    other = plan_offsets(
        newest([stored(["a", {"topic": "nyc.orders", "partition": 0}], {"offset": 13})]), "nyc", MAPS
    )
    assert digest_of(one) == digest_of(list(one)) != digest_of(other)


# ---- tables


def test_a_plan_is_applied_once_and_only_when_all_is_exact() -> None:
    plan = plan_table("p", [("nyc.orders", 0, 12)], MAPS)
    check_table(plan, plan.digest)
    after = plan_table("p", [("nyc.orders", 0, 16)], MAPS)
    with pytest.raises(Conflict) as caught:
        check_table(after, plan.digest)
    assert caught.value.code == "HUB-1978"
    unknown = plan_table("p", [("nyc.orders", 0, 99)], MAPS)
    with pytest.raises(Conflict) as caught:
        check_table(unknown, unknown.digest)
    assert caught.value.code == "HUB-1975"
    with pytest.raises(CallerError):
        plan_table("p", [("nyc.orders", 0, -1)], MAPS)
