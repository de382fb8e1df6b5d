"""Decisions of the lake: positions, starts, compaction, settings of the catalog, changes of schemas."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.types import DecimalType, IntegerType, LongType, NestedField, StringType, StructType

from hub.cli.platform.up import children
from hub.config import Settings
from hub.errors import ConfigError
from hub.iceberg.catalog import identifier_of, properties_of
from hub.lake.columns import META, columns_of
from hub.lake.evolution import next_changes, widens
from hub.lake.rows import micros
from hub.lake.snapshots import SmallFile, TableProgress, plan_compaction, progress_of, starts
from hub.schema_registry.formats.avro.types import types_of
from hub.topics.tree.tree import load


def test_progress_is_the_same_after_a_snapshot() -> None:
    progress = TableProgress("id", {0: 5, 11: 2**40}, 3, 4)
    assert progress_of(progress.summary()) == progress
    assert progress_of({"operation": "append"}) is None


def test_partitions_begin_at_their_position_or_where_the_log_does() -> None:
    progress = TableProgress("id", {0: 5, 1: 7, 2: 9})
    assert starts(progress, {0: 0, 1: 10, 3: 2}, {0: 8, 1: 12, 2: 4, 3: 6}) == (
        {0: 5, 1: 10, 2: 9, 3: 2},
        3,  # of partition 1
        [2],  # its log ends before its position
    )


def test_small_files_of_a_day_are_merged_up_to_the_target() -> None:
    files = [SmallFile(f"{n}", 1, 30, 1) for n in range(7)]
    files += [SmallFile("large", 1, 60, 1), SmallFile("alone", 2, 1, 1)]
    groups = plan_compaction(files, 100, 3)
    assert [[each.path for each in group] for group in groups] == [["0", "1", "2"], ["3", "4", "5"]]


def test_timestamps_that_no_engine_reads_are_null() -> None:
    assert micros(0) == 0
    assert micros(253_402_300_799_999) == 253_402_300_799_999_000
    assert micros(253_402_300_800_000) is None
    assert micros(-(2**62)) is None


def test_the_tree_decides_and_is_inherited(tmp_path: Path) -> None:
    (tmp_path / "topics.yaml").write_text(
        "topics:\n  a:\n    lake: true\n    topics: {b: {}, c: {lake: false}}\n  d: {}\n"
    )
    tree = load(tmp_path / "topics.yaml")
    assert {topic.name: topic.lake for topic in tree.topics} == {"a.b": True, "a.c": False, "d": False}


def test_the_catalog_is_that_of_the_settings(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, home=tmp_path / ".hub", lake_warehouse="tables")
    found = properties_of(settings, {"AWS_ENDPOINT_URL": "http://s3"})
    assert found == {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/.hub/lake/catalog.db",
        "warehouse": f"file://{tmp_path}/tables",
        "s3.endpoint": "http://s3",
    }
    assert identifier_of(settings, "nyc.jfk") == ("topics", "nyc", "jfk")
    rest = Settings(
        project=tmp_path,
        lake_catalog="rest",
        lake_uri="http://c:8181",
        lake_warehouse="prod",
        lake_properties={"credential": "hub:${LAKE_SECRET}"},
    )
    assert properties_of(rest, {"LAKE_SECRET": "x"}) == {
        "type": "rest",
        "uri": "http://c:8181",
        "warehouse": "prod",
        "credential": "hub:x",
    }
    with pytest.raises(ConfigError, match="the variable LAKE_SECRET is not set"):
        properties_of(rest, {})
    with pytest.raises(ConfigError, match="lake_uri does not name the server"):
        properties_of(Settings(project=tmp_path, lake_catalog="rest"), {})


def test_changes_within_a_record_name_the_path_and_renames_come_first() -> None:
    have = [
        *META,
        NestedField(
            20, "at", StructType(NestedField(21, "x", IntegerType()), NestedField(22, "y", StringType()))
        ),
    ]
    inner = [{"name": "x", "type": "long"}, {"name": "z", "type": "string", "aliases": ["y"]}]
    record = {"type": "record", "name": "P", "fields": [*inner, {"name": "w", "type": "int"}]}
    root = types_of({"type": "record", "name": "T", "fields": [{"name": "at", "type": record}]})
    changes = next_changes(have, columns_of(root))
    assert [(each.kind, each.path, each.name) for each in changes] == [
        ("widen", ("at", "x"), ""),
        ("rename", ("at", "y"), "z"),
    ]


def test_names_that_are_taken_get_a_suffix() -> None:
    fields = [{"name": name, "type": "int"} for name in ("_key", "a", "A")]
    columns = columns_of(types_of({"type": "record", "name": "T", "fields": fields}))
    assert [(each.name, each.field) for each in columns] == [("_key_", "_key"), ("a", "a"), ("A_", "A")]


def test_only_what_iceberg_allows_is_widened() -> None:
    assert widens(IntegerType(), LongType())
    assert not widens(LongType(), IntegerType())
    assert widens(DecimalType(9, 2), DecimalType(12, 2))
    assert not widens(DecimalType(9, 2), DecimalType(12, 3))


def test_hub_up_runs_the_writer_where_a_topic_wants_a_table(tmp_path: Path) -> None:
    settings = Settings(project=tmp_path, home=tmp_path / ".hub")
    assert "lake" not in {child.name for child in children(settings)}
    (tmp_path / "topics.yaml").write_text("topics: {a: {}}\n")
    assert "lake" not in {child.name for child in children(settings)}
    (tmp_path / "topics.yaml").write_text("topics: {a: {lake: true}}\n")
    assert "lake" in {child.name for child in children(settings)}
