"""The tables are the registry's state, whatever history made it; to build them again changes nothing."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from samples import fast_or

from hub.errors import ConfigError, NotFound, PeerError
from hub.log import Log, MemoryCluster, MemoryReader
from hub.record import NewRecord
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import (
    SCHEMAS_TOPIC,
    Noop,
    Reference,
    SchemaStored,
    UnreadableFact,
    fact_of,
    record_of,
)
from hub.schema_registry.registry.state_machine import (
    SETTINGS,
    Command,
    DeleteSubject,
    DeleteVersion,
    RegisterSchema,
    Registry,
    RequestRefused,
    SetLevel,
    SetMode,
    guid_of,
)
from hub.schema_registry.server import sql_rows
from hub.schema_registry.server.sql_tables import TABLES, Rebuilt, RegistryTables

Rows = dict[str, list[dict[str, Any]]]


class Bench:
    """A registry that writes to a log in memory, and tables in a file."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.registry = Registry()
        self.file = folder / "registry.db"
        self.tables = RegistryTables(f"sqlite:///{self.file}")

    def do(self, *commands: Command) -> None:
        for command in commands:
            for fact in self.registry.decide(command).facts:
                self.append(record_of(fact))

    def append(self, new: NewRecord) -> None:
        self.cluster.writer().append([new])
        self.registry.apply(fact_of(self.cluster.logs[SCHEMAS_TOPIC][0][-1]))

    def rebuild(self) -> Rebuilt:
        return self.tables.rebuild(self.cluster)

    def sql(self, text: str) -> list[dict[str, Any]]:
        """With sqlite3 itself, as another tool would."""
        with closing(sqlite3.connect(self.file)) as connection:
            connection.row_factory = sqlite3.Row
            found = [dict(row) for row in connection.execute(text)]
            connection.commit()
            return found

    def rows(self) -> Rows:
        return {name: self.sql(f"SELECT * FROM {name} ORDER BY 1, 2, 3") for name in TABLES}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    found = Bench(tmp_path)
    yield found
    found.tables.close()


def record(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "acme.Order", "fields": list(fields), **more})


ID = {"name": "id", "type": "long", "doc": "who it is"}
CITY = {"name": "city", "type": ["null", "string"], "default": None, "confluent:tags": ["PII"]}
PLACED = {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0}


# ---- the tables equal the state


def commands(chance: random.Random) -> Command:
    """One of any kind; many will be refused."""
    subject = chance.choice(["a", "b", "base", ":.ctx:a", ":.ctx:base"])
    place = chance.choice([None, subject, subject, ":.ctx:", names.ABOVE_CONTEXTS])
    kind = chance.randrange(12)
    if kind < 6:
        fields = chance.sample([CITY, PLACED], chance.randrange(3))
        by_reference = chance.random() < 0.2
        return RegisterSchema(
            subject,
            '{"type":"array","items":"acme.Order"}' if by_reference else record(ID, *fields),
            references=(Reference("acme.Order", "base", -1),) if by_reference else (),
            metadata=chance.choice([None, {"properties": {"owner": "shop"}, "tags": {"**.id": ["KEY"]}}]),
            schema_id=chance.choice([None, None, None, chance.randrange(1, 12)]),
        )
    if kind < 8:
        return DeleteVersion(subject, chance.choice(["latest", 1, 2, 3]), chance.random() < 0.5)
    if kind < 9:
        return DeleteSubject(subject, chance.random() < 0.5)
    if kind < 11:
        changes = {"compatibility": chance.choice([None, "NONE", "FULL"]), "normalize": chance.random() < 0.5}
        return SetLevel(place, chance.choice([changes, changes, None]))
    return SetMode(
        place, chance.choice([None, "READWRITE", "READWRITE", "IMPORT"]), force=True, recursive=False
    )


@pytest.mark.parametrize("seed", range(fast_or(4, 12)))
def test_the_tables_equal_the_state_after_any_history(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    for step in range(120):
        if chance.random() < 0.05 and bench.cluster.logs[SCHEMAS_TOPIC][0]:  # a record comes once more
            again = chance.choice(bench.cluster.logs[SCHEMAS_TOPIC][0])
            if isinstance(fact_of(again), SchemaStored):
                bench.append(NewRecord(SCHEMAS_TOPIC, again.key, again.value, partition=0))
        try:
            bench.do(commands(chance))
        except RequestRefused:
            continue
        if step == 60:
            equal_to_the_state(bench, bench.rebuild())
    equal_to_the_state(bench, bench.rebuild())
    assert bench.registry.subjects, "the history left nothing to compare"


def equal_to_the_state(bench: Bench, rebuilt: Rebuilt) -> None:
    registry, found = bench.registry, bench.rows()
    assert {
        (each["context"], each["id"]): (each["guid"], each["text"]) for each in found[sql_rows.SCHEMAS]
    } == {
        (context, schema_id): (guid_of(stored), stored.schema)
        for context, space in registry.contexts.items()
        for schema_id, stored in space.ids.items()
    }
    every = [stored for versions in registry.subjects.values() for stored in versions.values()]
    assert {
        (each["subject"], each["version"]): (
            each["context"],
            each["id"],
            bool(each["deleted"]),
            each["owner"],
        )
        for each in found[sql_rows.VERSIONS]
    } == {
        (each.subject, each.version): (
            names.context_of(each.subject),
            each.schema_id,
            each.deleted,
            "shop" if each.metadata else None,
        )
        for each in every
    }
    assert {(each["subject"], each["version"], each["path"]) for each in found[sql_rows.FIELDS]} == {
        (each.subject, each.version, field["name"])
        for each in every
        if not each.references
        for field in json.loads(each.schema)["fields"]
    }
    said = {
        (place or "", name): value
        for place, settings in registry.levels.items()
        for name, value in {"compatibilityLevel": settings.level, **settings.more}.items()
        if value is not None and name in ("compatibilityLevel", *SETTINGS)
    } | {(place or "", "mode"): mode.mode for place, mode in registry.modes.items()}
    assert {(each["place"], each["name"]): each["value"] for each in found[sql_rows.SETTINGS_]} == {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items()
    }
    (position,) = found["registry_position"]
    assert position["next_offset"] == rebuilt.position == len(bench.cluster.logs[SCHEMAS_TOPIC][0])
    counts = (rebuilt.schemas, rebuilt.versions, rebuilt.settings, rebuilt.fields)
    assert counts == tuple(len(found[name]) for name in list(TABLES)[:4])
    assert (rebuilt.unreadable, rebuilt.conflicts) == (registry.unreadable_count, registry.conflict_count)
    # A record that came once more may refer to what is gone for good.
    undescribed = [each for each in found[sql_rows.VERSIONS] if not each["described"]]
    assert rebuilt.not_described == len(undescribed)
    assert all(
        registry.version(each["subject"], each["version"], deleted=True).references for each in undescribed
    )

    bench.rebuild()
    assert bench.rows() == found


def test_what_a_row_says(bench: Bench) -> None:
    inner = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "double"}]}
    lines = {"name": "lines", "type": {"type": "array", "items": inner}, "default": []}
    metadata = {"properties": {"owner": "team-shop"}, "tags": {"**.price": ["MONEY"]}}
    bench.do(
        RegisterSchema("orders", record(ID, CITY, PLACED, lines), metadata=metadata),
        SetLevel(None, {"compatibility": "FULL", "defaultMetadata": metadata}),
        SetMode(":.ctx:", "READONLY", force=False, recursive=False),
    )
    bench.rebuild()
    found = bench.rows()
    (version,) = found[sql_rows.VERSIONS]
    assert (version["owner"], json.loads(version["tags"])) == ("team-shop", ["MONEY", "PII"])
    assert [
        (each["path"], each["type"], each["logical"], each["optional"], each["doc"], json.loads(each["tags"]))
        for each in found[sql_rows.FIELDS]
    ] == [
        ("id", "long", None, 0, "who it is", []),
        ("city", "string", None, 1, None, ["PII"]),
        ("placed_at", "timestamp", "timestamp-millis", 0, None, []),
        ("lines", "array", None, 0, None, []),
        ("lines.price", "double", None, 0, None, ["MONEY"]),
    ]
    assert {each["record"] for each in found[sql_rows.FIELDS]} == {"acme.Order", "acme.Line"}
    assert [(each["place"], each["name"], each["value"]) for each in found[sql_rows.SETTINGS_]] == [
        ("", "compatibilityLevel", "FULL"),
        ("", "defaultMetadata", json.dumps(metadata, separators=(",", ":"))),
        (":.ctx:", "mode", "READONLY"),
    ]


def test_every_format_has_fields(bench: Bench) -> None:
    bench.do(
        RegisterSchema("j", '{"type":"object","title":"J","properties":{"a":{"type":"string"}}}', "JSON"),
        RegisterSchema("p", 'syntax = "proto3"; message P { int64 a = 1; }', "PROTOBUF"),
    )
    bench.rebuild()
    assert bench.sql("SELECT subject, path, type FROM registry_fields ORDER BY 1") == [
        {"subject": "j", "path": "a", "type": "string"},
        {"subject": "p", "path": "a", "type": "long"},
    ]


def test_what_others_wrote_is_there_as_far_as_it_can_be_read(bench: Bench) -> None:
    """An invalid schema, invalid metadata, a NUL, an unreadable record, a second schema under one id."""
    odd = {"properties": ["?"], "tags": {"id": "x", "city": ["PII", 7]}}
    for fact in (
        SchemaStored("broken", 1, 1, "{nonsense"),
        SchemaStored("odd", 1, 2, record(ID, CITY, doc="nul\0"), metadata=odd),
        SchemaStored("other", 1, 3, "thrift", "THRIFT"),
        SchemaStored("claims", 1, 1, record(ID)),
    ):
        bench.append(record_of(fact))
    bench.append(NewRecord(SCHEMAS_TOPIC, b"?", b"?", partition=0))
    nul = SchemaStored(":.a\0b:s", 1, 1, "thrift", "TH\0RIFT", more={"guid": "g\0"})
    bench.append(record_of(nul))
    rebuilt = bench.rebuild()
    assert (rebuilt.versions, rebuilt.not_described, rebuilt.unreadable, rebuilt.conflicts) == (4, 3, 1, 1)
    values = [value for rows in bench.rows().values() for row in rows for value in row.values()]
    assert not [value for value in values if isinstance(value, str) and "\0" in value]
    assert bench.sql("SELECT subject, owner, tags, described FROM registry_versions ORDER BY 1") == [
        {"subject": ":.a\ufffdb:s", "owner": None, "tags": "[]", "described": 0},
        {"subject": "broken", "owner": None, "tags": "[]", "described": 0},
        {"subject": "odd", "owner": None, "tags": '["PII"]', "described": 1},
        {"subject": "other", "owner": None, "tags": "[]", "described": 0},
    ]


# ---- one transaction, and again


def test_a_failed_build_leaves_the_tables_as_they_were(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.do(RegisterSchema("a", record(ID)))
    bench.rebuild()
    before = bench.rows()
    bench.sql("ALTER TABLE registry_settings ADD COLUMN more TEXT")  # it will have been made again by then
    bench.do(RegisterSchema("b", record(ID, CITY)))
    whole = sql_rows.rows

    def breaks_off(registry: Registry) -> Iterator[sql_rows.SqlRow]:
        yield from whole(registry)
        raise PeerError("Kafka went away")

    monkeypatch.setattr(sql_rows, "rows", breaks_off)
    with pytest.raises(PeerError, match="went away"):
        bench.rebuild()
    assert bench.rows() == before
    assert bench.sql("SELECT count(*) AS n FROM pragma_table_info('registry_settings')") == [{"n": 4}]


def test_a_table_of_another_layout_is_made_again_and_others_stay(bench: Bench) -> None:
    bench.do(RegisterSchema("a", record(ID)))
    for older in (
        "CREATE TABLE registry_fields (subject TEXT, path TEXT)",
        "CREATE TABLE registry_settings (place TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL)",
        "INSERT INTO registry_fields VALUES ('gone', 'gone')",
    ):
        bench.sql(older)
    bench.rebuild()
    assert [each["path"] for each in bench.rows()[sql_rows.FIELDS]] == ["id"]
    bench.sql("CREATE INDEX of_mine ON registry_fields (type)")
    bench.rebuild()
    assert bench.sql("SELECT name FROM sqlite_master WHERE name = 'of_mine'"), "nothing changed: it must stay"


def test_more_rows_than_one_statement_takes(bench: Bench) -> None:
    wide = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(1_203)]
    bench.do(RegisterSchema("wide", record(*wide)))
    seen: list[tuple[str, int, int]] = []
    rebuilt = bench.tables.rebuild(bench.cluster, progress=lambda *each: seen.append(each))
    assert rebuilt.fields == 1_203 == bench.sql("SELECT count(*) AS n FROM registry_fields")[0]["n"]
    assert seen == [("read", 1, 1), ("write", 1, 1)]


def test_many_may_build_a_new_file_at_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.do(RegisterSchema("a", record(ID)))
    tables = [RegistryTables(f"sqlite:///{bench.file}") for _ in range(6)]
    together = threading.Barrier(len(tables))

    def build(each: RegistryTables) -> Rebuilt:
        together.wait(10.0)
        return each.rebuild(bench.cluster)

    with ThreadPoolExecutor(len(tables)) as pool:
        assert set(pool.map(build, tables)) == {bench.rebuild()}
    for each in (bench.tables, *tables):
        each.close()


def test_readers_go_on_with_the_old_state_while_one_builds(bench: Bench) -> None:
    bench.do(RegisterSchema("a", record(ID)))
    bench.rebuild()
    bench.do(RegisterSchema("b", record(CITY)))
    seen: list[list[dict[str, Any]]] = []

    def look(what: str, _done: int, _total: int) -> None:
        if what == "write":
            seen.append(bench.sql("SELECT subject FROM registry_versions"))

    bench.tables.rebuild(bench.cluster, progress=look)
    assert seen == [[{"subject": "a"}]] * 2
    assert len(bench.rows()[sql_rows.VERSIONS]) == 2


def test_a_log_without_schemas(bench: Bench) -> None:
    bench.append(record_of(Noop()))
    bench.append(record_of(UnreadableFact(0, "")))
    assert bench.rebuild() == Rebuilt(2, 0, 0, 0, 0, 0, 0, 0)


# ---- failures


def test_no_log_and_no_answer(tmp_path: Path) -> None:
    tables = RegistryTables(f"sqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(NotFound, match="_schemas"):
        tables.rebuild(MemoryCluster())
    bench = Bench(tmp_path)
    bench.do(RegisterSchema("a", record(ID)))

    class Silent(MemoryReader):
        def poll(self, limit: int, timeout_s: float) -> list[Any]:
            return []

    class Stuck(MemoryCluster):
        def reader(self) -> MemoryReader:
            return Silent(self)

    stuck: Log = Stuck(bench.cluster.logs, bench.cluster.descriptions)
    with pytest.raises(PeerError, match="read up to 0 of 1"):
        bench.tables.rebuild(stuck, timeout_s=0.05)
    for each in (tables, bench.tables):
        each.close()


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://x/y", "oracle://x/y", "nowhere://x"])
def test_a_url_that_will_not_do(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        RegistryTables(url)


def test_a_database_that_is_not_there(tmp_path: Path) -> None:
    tables = RegistryTables(f"sqlite:///{tmp_path / 'missing' / 'x.db'}")
    with pytest.raises(PeerError, match="store"):
        tables.rebuild(MemoryCluster())
    tables.close()
    secret = RegistryTables("postgresql+psycopg://hub:secret@127.0.0.1:1/x")
    with pytest.raises(PeerError) as failed:
        secret.rebuild(MemoryCluster())
    assert "secret" not in str(failed.value)
