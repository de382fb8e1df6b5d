"""The writer of Iceberg tables on a log in memory: rows, positions, restarts, schemas, dead letters,
upkeep.
"""

from __future__ import annotations

import datetime as dt
import shutil
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import pytest
from lake_world import DAY_MS, NOON_MS, LakeWorld

from hub.errors import HubError
from hub.lake.maintenance import maintain
from hub.lake.table import LakeTable
from hub.lake.verify import compare
from hub.record import NewRecord

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
LATER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "remark", "type": ["null", "string"], "default": None, "aliases": ["note"]},
        {"name": "price", "type": "double", "default": 9.5},
    ],
}


@pytest.fixture
def world(tmp_path: Path) -> LakeWorld:
    return LakeWorld(tmp_path)


def test_a_record_is_a_row_with_its_place_and_its_bytes(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"}, {"id": 2, "note": None}, headers=(("h", b"1"), ("h", None)))
    world.write(first, {"id": 3, "note": "b"}, partition=1, at_ms=NOON_MS + DAY_MS)
    world.cluster.writer().append([NewRecord(world.topic, b"k0", None, (), NOON_MS, 0)])
    writer = world.writer()
    assert writer.step()
    assert world.rows("_partition", "_offset", "_key", "_schema_id", "id", "note") == [
        {"_partition": 0, "_offset": 0, "_key": b"k0", "_schema_id": 1, "id": 1, "note": "a"},
        {"_partition": 0, "_offset": 1, "_key": b"k1", "_schema_id": 1, "id": 2, "note": None},
        {"_partition": 0, "_offset": 2, "_key": b"k0", "_schema_id": None, "id": None, "note": None},
        {"_partition": 1, "_offset": 0, "_key": b"k0", "_schema_id": 1, "id": 3, "note": "b"},
    ]
    assert world.rows("_headers")[0] == {
        "_headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    }
    assert world.rows("_timestamp")[3]["_timestamp"] == dt.datetime(2023, 11, 15, 22, 13, 20, tzinfo=dt.UTC)
    files = [task.file.partition[0] for task in world.table().table.scan().plan_files()]
    assert sorted(files) == [19_675, 19_676]  # one file for each day
    note = writer.note().topics[world.topic]
    assert (note.state, note.rows, note.behind, note.dead_letters, note.lost) == ("WRITING", 4, 0, 0, 0)


def test_a_writer_that_starts_again_goes_on_from_the_snapshot(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    world.writer().step()
    world.write(first, {"id": 2, "note": "a"})
    world.writer().step()
    world.writer().step()
    assert [row["id"] for row in world.rows("id")] == [1, 2]
    assert len(world.table().table.snapshots()) == 2  # nothing new, no commit


def test_a_commit_whose_answer_is_lost_is_not_repeated(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    append = LakeTable.append

    def lost(*arguments: object) -> None:
        append(*arguments)  # type: ignore[arg-type]
        raise HubError("the connection broke")

    with patch.object(LakeTable, "append", lost):
        writer.step()
    assert writer.note().topics[world.topic].state == "FAILING"
    world.now_s += 60
    world.write(first, {"id": 2, "note": "a"})
    writer.step()
    assert [row["id"] for row in world.rows("id")] == [1, 2]


def test_of_two_writers_one_commits_and_the_other_begins_again(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    one, other = world.writer(), world.writer()
    one.step()
    other.step()
    world.write(first, {"id": 2, "note": "a"})
    world.now_s += 60
    one.step()
    other.step()  # it still has the table as it was
    assert other.note().topics[world.topic].trouble.endswith("another writer has committed meanwhile")
    world.now_s += 60
    other.step()
    assert other.note().topics[world.topic].state == "WRITING"
    assert [row["id"] for row in world.rows("id")] == [1, 2]


def test_columns_follow_the_schema_by_their_ids(world: LakeWorld) -> None:
    """A column is added, one is widened, one is renamed by its alias; rows of before are in the new
    columns.
    """
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    writer.step()
    before = {each.name: each.field_id for each in world.table().fields}
    second = world.registry.add(world.topic, LATER)
    world.write(first, {"id": 2, "note": "b"})
    world.write(second, {"id": 2**40, "remark": "c", "price": 1.5})
    world.now_s += 60
    writer.step()
    assert world.rows("id", "remark", "price") == [
        {"id": 1, "remark": "a", "price": None},
        {"id": 2, "remark": "b", "price": None},
        {"id": 2**40, "remark": "c", "price": 1.5},
    ]
    after = {each.name: each.field_id for each in world.table().fields}
    assert (after["id"], after["remark"]) == (before["id"], before["note"])
    verified(world)


def test_a_table_made_late_is_the_same_as_one_that_grew(world: LakeWorld, tmp_path: Path) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    writer.step()
    second = world.registry.add(world.topic, LATER)
    world.write(second, {"id": 2, "remark": "c", "price": 1.5})
    world.now_s += 60
    writer.step()
    grown = world.rows()
    shutil.rmtree(tmp_path / "lake")
    world.writer().step()
    assert world.rows() == grown


def test_a_type_that_iceberg_cannot_widen_gets_a_column_of_its_own(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    writer.step()
    fields = [{"name": "id", "type": "string"}, {"name": "note", "type": "int"}]
    second = world.registry.add(world.topic, {**ORDER, "fields": fields})
    world.write(second, {"id": "x", "note": 7})
    world.write(first, {"id": 2, "note": "b"})
    world.now_s += 60
    writer.step()
    assert world.rows("id", "id__int", "note", "note__string") == [
        {"id": None, "id__int": 1, "note": None, "note__string": "a"},
        {"id": "x", "id__int": None, "note": 7, "note__string": None},
        {"id": None, "id__int": 2, "note": None, "note__string": "b"},
    ]
    verified(world)


def test_what_does_not_decode_becomes_a_dead_letter_and_harms_nobody(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    other = world.registry.add("shop.other", ORDER)
    world.write(first, {"id": 1, "note": "a"})
    bad = [b"{}", b"\x00\x00\x00\x00\x01\x02", b"\x00\x00\x00\x00\x63\x02\x00"]
    world.cluster.writer().append([NewRecord(world.topic, b"k", each, (), NOON_MS, 0) for each in bad])
    world.cluster.writer().append(
        [NewRecord(world.topic, b"k", b"\x00" + other.to_bytes(4, "big") + b"\x02\x00", (), NOON_MS, 0)]
    )
    world.write(first, {"id": 2, "note": "a"})
    writer = world.writer()
    writer.step()
    assert [row["_offset"] for row in world.rows("_offset")] == [0, 5]
    dead = world.cluster.logs[f"{world.topic}.dlq"][0]
    reasons = [(record.header("hub.dlq.reason") or b"").decode() for record in dead]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "not in the Confluent wire format (no magic byte 0 and schema id)",
        "its bytes do not fit its schema id 1",
        "its schema id 99 is not a record schema",
        f'its schema id {other} is not a version of "shop.orders-value"',
    ]
    assert [record.header("hub.dlq.offset") for record in dead] == [b"1", b"2", b"3", b"4"]
    assert writer.note().topics[world.topic].dead_letters == 4
    verified(world)


def test_a_topic_without_a_schema_has_its_bytes(world: LakeWorld) -> None:
    world.cluster.writer().append(
        [NewRecord(world.topic, b"k", each, (), NOON_MS, 0) for each in (b"x", None, b"")]
    )
    world.writer().step()
    assert [row["_value"] for row in world.rows("_value")] == [b"x", None, b""]
    verified(world)


def test_retention_that_was_faster_is_counted(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    writer.step()
    world.write(first, *({"id": n, "note": None} for n in range(2, 7)))
    world.now_s += 60
    with patch.object(world.cluster, "beginning_offsets", lambda _names: begins(world, 4)):
        writer.step()
    assert [row["_offset"] for row in world.rows("_offset")] == [0, 4, 5]
    assert writer.note().topics[world.topic].lost == 3


def test_a_topic_that_was_made_again_is_not_mixed_with_the_former_one(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"})
    writer = world.writer()
    writer.step()
    world.cluster.delete_topic(world.topic)
    world.cluster.create_topic(world.topic, partitions=2, config={}, replication_factor=1)
    world.write(first, {"id": 2, "note": "a"})
    world.now_s += 60
    writer.step()
    note = writer.note().topics[world.topic]
    assert note.state == "FAILING"
    assert "it was deleted and created again" in note.trouble
    assert [row["id"] for row in world.rows("id")] == [1]


def test_upkeep_merges_files_and_keeps_rows_and_positions(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    writer = world.writer()
    for n in range(6):
        world.write(first, {"id": n, "note": "a"})
        writer.step()
        world.now_s += 60
    before = world.rows()
    done = maintain(world.table(), world.settings, world.now_s + 10 * 86_400 * 1_000, sweep_after_h=0)
    assert (done.merged, done.into) == (6, 1)
    assert done.expired == 6
    assert done.deleted >= 6
    assert world.rows() == before
    world.write(first, {"id": 9, "note": "a"})
    world.writer().step()
    assert [row["id"] for row in world.rows("id")] == [0, 1, 2, 3, 4, 5, 9]
    verified(world)


def test_positions_are_found_when_other_engines_made_all_snapshots(world: LakeWorld) -> None:
    first = world.registry.add(world.topic, ORDER)
    world.write(first, {"id": 1, "note": "a"}, {"id": 2, "note": "a"})
    world.writer().step()
    table = world.table().table
    table.overwrite(table.scan().to_arrow())  # as a rewrite of Spark's: no properties
    now = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    table.maintenance.expire_snapshots().older_than(now).commit()
    world.write(first, {"id": 3, "note": "a"})
    world.writer().step()
    assert [row["id"] for row in world.rows("id")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("avro", "value", "shown"),
    [
        ({"type": "long", "logicalType": "timestamp-micros"}, 1_700_000_000_000_001, 1_700_000_000_000_001),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_123, 1_700_000_000_123_000),
        ({"type": "int", "logicalType": "date"}, 19_675, dt.date(2023, 11, 14)),
        ({"type": "int", "logicalType": "time-millis"}, 45_000_123, "12:30:00.123000"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("12.34"),
            Decimal("12.34"),
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        (["null", "int", "string"], "x", '"x"'),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "long"]}, {"a": 1, "b": None}, [("a", 1), ("b", None)]),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
            },
            {"at": 5},
            {"at": dt.datetime(1970, 1, 1, 0, 0, 0, 5_000, tzinfo=dt.UTC)},
        ),
    ],
)
def test_each_type_of_avro_keeps_its_value(
    world: LakeWorld, avro: object, value: object, shown: object
) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "x", "type": avro}]}
    bare = without_times(schema)
    world.registry.add(world.topic, schema)
    from lake_world import framed

    world.cluster.writer().append([NewRecord(world.topic, b"k", framed(1, bare, {"x": value}), (), 0, 0)])
    world.writer().step()
    (row,) = world.rows("x")
    found = row["x"]
    if isinstance(found, dt.datetime) and isinstance(shown, int):
        found = (found - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    assert found == shown


def test_json_schema_and_its_times(world: LakeWorld) -> None:
    world.registry.add(
        world.topic,
        {
            "type": "object",
            "properties": {
                "id": {"type": "integer"},
                "at": {"type": "string", "format": "date-time"},
                "lines": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"sku": {"type": "string"}}},
                },
                "any": {},
            },
        },
        "JSON",
    )
    bodies = [
        b'{"id": 7, "at": "2023-11-14T22:13:20Z", "lines": [{"sku": "a"}], "any": {"b": 1}}',
        b'{"id": 8, "at": "soon"}',
    ]
    world.cluster.writer().append(
        [NewRecord(world.topic, b"k", b"\x00\x00\x00\x00\x01" + each, (), NOON_MS, 0) for each in bodies]
    )
    writer = world.writer()
    writer.step()
    at = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert world.rows("id", "at", "lines", "any") == [
        {"id": 7, "at": at, "lines": [{"sku": "a"}], "any": '{"b":1}'}
    ]
    assert writer.note().topics[world.topic].dead_letters == 1


def without_times(schema: object) -> object:
    """Return the schema as fastavro writes plain numbers with it."""
    if isinstance(schema, list):
        return [without_times(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: without_times(of) for key, of in schema.items() if key != "logicalType" or of == "decimal"
        }
    return schema


def begins(world: LakeWorld, at: int) -> object:
    from hub.record import Positions

    return Positions.of([(world.topic, 0, at), (world.topic, 1, 0)])


def verified(world: LakeWorld) -> None:
    """Assert that the table is equal to the log."""
    from typing import cast

    from hub.lake.schemas import LakeSchemas
    from hub.schema_registry.client.registry_client import RegistryClient

    schemas = LakeSchemas(cast(RegistryClient, world.registry), world.topic)
    schemas.refresh()
    found = compare(world.cluster, world.table(), schemas, {})
    assert found.equal, found.examples
    assert found.compared == len(world.rows())
