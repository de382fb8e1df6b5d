"""The store on a real Postgres: the same tables, positions and answers as on SQLite,
through the server's death too."""

from __future__ import annotations

import json
import random
import string
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import history_contract
import prepared_contract
import pytest
import store_contract
from changelog import Bench, schema
from cut_world import World
from postgres import Postgres
from sqlalchemy import create_engine, text

from hub.errors import HubError, PeerError
from hub.log import MemoryCluster
from hub.materializers.stores.open_store import open_store
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import Rhythm, RowVersion, StoreRefused, ViewBatch
from hub.record import Positions
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, LevelSet, SchemaStored, record_of
from hub.schema_registry.server.sql_tables import Rebuilt, RegistryTables


@pytest.fixture
def url(postgres: Postgres, request: pytest.FixtureRequest) -> str:
    return postgres.database(f"{request.node.name[:40]}-{random.randrange(10**6)}")


@pytest.mark.parametrize("seed", range(8))
def test_splits_replays_duplicates_and_restarts_give_the_same_table(url: str, seed: int) -> None:
    chance = random.Random(seed)
    bench = Bench(url)
    expected: dict[str, int] = {}
    written: list[tuple[str, int, dict[str, Any] | None]] = []
    for version in range(1, 40):
        key, deleted = chance.choice("abcdé"), chance.random() < 0.3
        row = None if deleted else {"points": version}
        written.append((key, version, row))
        bench.write(key, version, row)
        expected.pop(key, None)
        if not deleted:
            expected[key] = version
        if chance.random() < 0.4:  # a zombie writes something old again
            bench.write(*chance.choice(written))
        if chance.random() < 0.5:
            bench.applier.step(0)
        if chance.random() < 0.1:
            bench.applier = bench.restarted()
    bench.drain()
    assert bench.rows() == expected
    assert bench.restarted().step(0) == 0  # from the positions in the same transactions
    bench.store.close()


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_killed_a_cut_that_is_said_is_one(url: str, seed: int) -> None:
    world = World(url, seed, most_waiting=15)
    world.rampage(100)
    world.close()


def test_what_sqlite_takes_postgres_takes(url: str) -> None:
    """A NUL cannot be in its texts, a long name is cut off by it, and its integers have 64 bits."""
    bench = Bench(url)
    name = "a_view_whose_name_with_its_prefix_exceeds_what_postgres_keeps"
    kinds = {"n": "long", "words": {"type": "array", "items": "string"}, "t": "string"}
    fields = [{"name": each, "type": ["null", kind]} for each, kind in kinds.items()]
    types = {"type": "record", "name": "row", "fields": fields}
    assert bench.store.ensure_view(name, types, ["n", "t"], "topic-1")
    assert bench.store.ensure_view(f"{name}_2", types, ["n", "t"], "topic-1")
    row = {"n": 2**62, "words": ["ü", "x\x00y"], "t": "nul\x00l"}
    batch = ViewBatch(name, [RowVersion("k\x00", 1, 0, 0, row)], Positions.of([(f"views.{name}", 0, 1)]))
    bench.store.apply([batch])
    found = bench.store.get(name, "k\x00")
    assert found is not None and found.values is not None
    assert found.values["n"] == 2**62
    assert found.values["t"] == "nul\ufffdl" and found.values["words"][0] == "ü"
    assert bench.store.select(name, [("n", "gte", 2**62)], 10, None)
    assert not bench.store.select(f"{name}_2", [], 10, None)
    bench.store.close()


def test_what_it_refuses_stops_the_view_and_leaves_nothing(url: str) -> None:
    bench = Bench(url)
    batch = ViewBatch("v", [RowVersion("a", 1, 0, 0, {"points": 2**80})], Positions.of([("views.v", 0, 9)]))
    with pytest.raises(StoreRefused):
        bench.store.apply([batch])
    assert bench.rows() == {} and not bench.store.positions("v", "changelog")
    bench.store.close()


@pytest.mark.parametrize("rows", [1, 1_000])  # a few by INSERT, many by COPY
def test_a_key_that_no_index_takes_is_refused_and_the_server_is_not_away(url: str, rows: int) -> None:
    bench = Bench(url)
    too_long = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=9_000))
    keys = [*(f"k{n}" for n in range(rows - 1)), too_long]
    changes = [RowVersion(key, 1, 0, n, {"points": n}) for n, key in enumerate(keys)]
    with pytest.raises(StoreRefused, match="index row"):
        bench.store.apply([ViewBatch("v", changes, Positions.of([("views.v", 0, 9)]))])
    assert bench.rows() == {} and not bench.store.positions("v", "changelog")
    bench.store.close()


@pytest.mark.parametrize("seed", range(6))
def test_any_history_gives_the_rows_of_the_highest_versions(url: str, seed: int) -> None:
    """With batches of hundreds, which go by COPY, and of a few, which do not."""
    store_contract.any_history(lambda: open_store(url), seed)


def test_refusals_tables_made_anew_and_progress(url: str) -> None:
    store_contract.the_rest(lambda: open_store(url))


def test_a_prepared_read_says_what_the_store_says(url: str) -> None:
    prepared_contract.reads_like_the_store(url)


def test_prepared_reads_outlive_the_server(postgres: Postgres, url: str) -> None:
    bench = Bench(url)
    bench.write("k1", 1, {"points": 1})
    bench.drain()
    reads = prepared_contract.Reads(bench.store)
    prepared_contract.same(bench, reads)
    postgres.kill()
    assert reads.find("v", ["k1"]) is None
    postgres.start()
    assert bench.store.get("v", "k1") is not None
    while reads.find("v", ["k1"]) is None:  # each connection of the pool that died fails once
        pass
    prepared_contract.same(bench, reads)
    reads.close()
    bench.store.close()


def test_a_large_batch_that_is_refused_leaves_nothing(url: str) -> None:
    bench = Bench(url)
    rows = [RowVersion(f"k{n}", 1, 0, n, {"points": 2**80 if n == 700 else n}) for n in range(1000)]
    with pytest.raises(StoreRefused):
        bench.store.apply([ViewBatch("v", rows, Positions.of([("views.v", 0, 9)]))])
    assert bench.rows() == {} and not bench.store.positions("v", "changelog")
    bench.store.apply([ViewBatch("v", rows[:700], Positions.of([("views.v", 0, 9)]))])
    assert len(bench.rows()) == 700
    bench.store.close()


def test_there_is_time_for_the_next_step_while_the_server_works(url: str) -> None:
    bench, turns = Bench(url), list[int]()
    assert bench.store.ensure_view("w", schema(), ["city"], "topic-1")

    def batches(first: int, most: int) -> list[ViewBatch]:
        rows = [
            RowVersion(f"k{n}", first + n, 0, n, {"points": most if n == 700 else n}) for n in range(1000)
        ]
        return [ViewBatch(view, rows, Positions.of([(f"views.{view}", 0, 9)])) for view in "vw"]

    bench.store.apply(batches(1, 1), {"told": {"a": 1}}, lambda: turns.append(1))
    assert turns == [1]  # once, however many views there are
    assert len(bench.rows()) == 1000 and bench.store.count("w") == 1000
    with pytest.raises(StoreRefused):
        bench.store.apply(batches(2000, 2**80), None, lambda: turns.append(2))
    assert bench.store.newest_version("v") == 1000
    bench.store.apply([ViewBatch("v", [], Positions.of([("views.v", 0, 10)]))], None, lambda: turns.append(3))
    assert 3 not in turns  # a small batch is done before it would have begun
    # The same through the applier, whose steps are of several polls.
    bench.store.rhythm = Rhythm(600)
    bench.applier.many = 1
    for version in range(3000, 6000):
        bench.write(f"k{version % 997}", version, {"points": version})
    bench.drain()
    assert bench.rows() == {
        **{f"k{n}": n for n in range(997, 1000)},
        **{f"k{version % 997}": version for version in range(3000, 6000)},
    }
    bench.store.close()


def test_many_processes_may_open_a_new_store_at_once(url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        for store in pool.map(lambda _: Store(url), range(6)):
            store.close()


def test_killed_in_the_middle_it_goes_on_where_it_was(postgres: Postgres, url: str) -> None:
    bench = Bench(url)
    for version in range(1, 301):
        bench.write(f"k{version % 7}", version, {"points": version})
    bench.applier.step(0)
    postgres.kill()
    with pytest.raises(PeerError, match="store"):
        bench.store.get("v", "k1")
    bench.write("k1", 301, {"points": 301})
    with pytest.raises(HubError):
        bench.applier.step(0)
    postgres.start()
    bench.applier = bench.restarted()
    bench.drain()
    assert bench.rows() == {f"k{n % 7}": n for n in range(294, 301)} | {"k1": 301}
    bench.store.close()


# ---- the registry's tables


def test_the_registrys_tables_on_postgres(url: str) -> None:
    """Same as on SQLite: objects that others built on a table stay, a table of another layout is replaced,
    builds take turns."""
    cluster = MemoryCluster()
    cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    fields = [{"name": "id", "type": "long", "doc": "nul\0", "confluent:tags": ["KEY"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    for number in range(1, 4):
        stored = SchemaStored(f"s{number}", 1, number, schema.replace("R", f"R{number}"), deleted=number == 2)
        cluster.writer().append([record_of(stored), record_of(LevelSet(f"s{number}", "FULL"))])
    engine = create_engine(url)

    def ask(sql: str) -> list[tuple[Any, ...]]:
        with engine.begin() as connection:
            found = connection.execute(text(sql))
            return [tuple(row) for row in found] if found.returns_rows else []

    ask("CREATE TABLE registry_fields (subject text)")
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: RegistryTables(url), range(4)))
        rebuilt = list(pool.map(lambda each: each.rebuild(cluster), tables))
    assert set(rebuilt) == {Rebuilt(6, 3, 3, 3, 3, 0, 0, 0)}
    ask(
        "CREATE VIEW of_mine AS SELECT path, doc, f.tags FROM registry_fields f JOIN registry_versions v "
        "USING (subject, version) WHERE NOT v.deleted"
    )
    assert tables[0].rebuild(cluster) == rebuilt[0]
    assert ask("SELECT * FROM of_mine") == [("id", "nul\ufffd", ["KEY"])] * 2
    assert ask("SELECT next_offset FROM registry_position") == [(6,)]
    for each in tables:
        each.close()
    engine.dispose()


@pytest.mark.parametrize("seed", range(2))
def test_the_history_of_rows_is_that_of_sqlite(url: str, seed: int) -> None:
    history_contract.any_history(lambda: Store(url), random.Random(seed))


def test_a_large_step_is_in_the_history_once(url: str) -> None:
    """More rows than go without COPY, applied twice."""
    store = Store(url)
    history_contract.declare(store)
    begins = store.history.periods("v")[0].from_ms
    rows = [(f"k{n % 150}", n, {"city": "Oslo", "n": n}, begins + n) for n in range(1, 601)]
    for _ in range(2):
        history_contract.batch(store, "v", rows)
    (size,) = store.history.sizes()
    assert size.versions == 600 and size.size_bytes
    row = store.history.row_at("v", "k7", begins + 310, begins + 10**6)
    assert row is not None and row.version == 307
    store.close()
