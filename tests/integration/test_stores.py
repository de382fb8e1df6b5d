"""One view into SQLite, Postgres, DuckDB and an Iceberg table by one applier that is killed again and again:
equal in all."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from patience import patient
from pipeline import wait_until
from postgres import Postgres
from processes import HubProcess, run_hub
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from hub.config import Settings
from hub.iceberg.catalog import open_catalog
from hub.kafka import KafkaCluster
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.stores.open_store import open_store
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

VIEW, CHANGELOG = "four_stores", "views.four_stores"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": VIEW,
    "namespace": "views",
    "fields": [
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "points", "type": ["null", "long"], "default": None},
        {"name": "share", "type": ["null", "double"], "default": None},
        {"name": "words", "type": ["null", {"type": "array", "items": "string"}], "default": None},
        {"name": "_version", "type": "long"},
    ],
}
FILE = """
view: four_stores
sources: {s: {topic: four.in, key: k}}
fields: {city: s.city, points: s.points, share: s.share, words: s.words}
stores: [serving, warehouse, duck, lake]
"""


class Hub(HubProcess):
    """An applier process, and the command line."""

    def run(self, *arguments: str) -> tuple[int, Any]:
        done = run_hub(self.settings, *arguments)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"{done.stdout}\n{done.stderr}\n{self.last_words()}") from None


@pytest.fixture
def hub(settings: Settings, hub_server: str, postgres: Postgres, tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / f"{VIEW}.yaml").write_text(FILE)
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path,
            "registry_url": hub_server,
            "stores": {"warehouse": postgres.database("four"), "duck": "duckdb", "lake": "iceberg"},
            "lake_commit_s": 1.0,
        }
    )
    made = Hub(own, "apply-changelogs")
    yield made
    made.stop()


def write(cluster: KafkaCluster, schema_id: int, chance: random.Random, versions: range) -> None:
    schema = parsed(SCHEMA)
    records = []
    for version in versions:
        key = f"k{chance.randrange(3_000)}"
        row = {
            "city": chance.choice(["Oslo", "Ærø", "n\0l", None]),
            "points": version,
            "share": version / 7,
            "words": ["a", 'b"\\'] if version % 2 else None,
            "_version": version,
        }
        # Now and then something old again, as a zombie writes it.
        at = max(1, version - 2_000) if chance.random() < 0.05 else version
        value = None if chance.random() < 0.1 else encode(schema_id, schema, row)
        headers = (("hub.version", str(at).encode()),)
        records.append(NewRecord(CHANGELOG, key.encode(), value, headers))
    writer = cluster.writer()
    writer.append(records)
    writer.close()


def test_all_four_are_equal_however_often_the_applier_is_killed(
    settings: Settings, hub: Hub, hub_server: str
) -> None:
    cluster = KafkaCluster(settings.bootstrap, settings.kafka_timeout_s)
    cluster.create_topic(CHANGELOG, partitions=2, config={"cleanup.policy": "compact"}, replication_factor=1)
    if PROGRESS_TOPIC not in cluster.topics():
        cluster.create_topic(
            PROGRESS_TOPIC, partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1
        )
    schema_id = RegistryClient(hub_server).register(f"{CHANGELOG}-value", json.dumps(SCHEMA))
    chance = random.Random(3)
    for part in range(5):
        write(cluster, schema_id, chance, range(part * 8_000 + 1, (part + 1) * 8_000 + 1))
        if part == 4:
            hub.start()
        else:
            with moved(hub):
                hub.start()
            time.sleep(chance.uniform(0.0, 1.5))
            hub.kill()
    code, verdicts = hub.run("view", "verify", VIEW, "--timeout", "120", "-o", "json")
    assert code == 0, verdicts
    assert [each["store"] for each in verdicts] == ["serving", "warehouse", "duck", "lake"]
    assert len({(each["store_rows"], each["store_hash"], each["positions"]) for each in verdicts}) == 1
    assert verdicts[0]["store_rows"] > 1_000
    told = await_told(hub)
    assert {each["state"] for each in told.values()} == {"live"}
    assert told["store:warehouse"]["views"][VIEW]["lag"] == 0 and "hub@" in told["store:warehouse"]["url"]
    # An unreachable store stops alone, with the reason; a wrong row is found, with exit code 1.
    hub.kill()
    with open_catalog(hub.settings) as catalog:
        table = catalog.load_table(("lake", VIEW))
        duck = table.scan().to_duckdb(VIEW)
        equal_in_other_engines(hub, table, duck)
    newest = max(files_of(hub), key=lambda path: path.stat().st_size)
    kept = newest.read_bytes()
    newest.write_bytes(b"")
    code, (verdict,) = hub.run("view", "verify", VIEW, "--store", "duck", "-o", "json")
    assert code == 0 and verdict["equal"]
    newest.write_bytes(kept)
    table.delete(f"key == '{table.scan(limit=1).to_arrow()['key'][0]}'")
    code, (verdict,) = hub.run("view", "verify", VIEW, "--store", "lake", "-o", "json")
    assert code == 1 and not verdict["equal"] and verdict["differing"]
    cluster.delete_topic(CHANGELOG)


@contextlib.contextmanager
def moved(hub: Hub) -> Iterator[None]:
    """Ends when the process that begins within has applied something: a kill before is a kill of nothing."""
    before = snapshot_of(hub)
    yield
    wait_until(lambda: snapshot_of(hub) != before, 60.0, hub.last_words)


def snapshot_of(hub: Hub) -> int | None:
    with open_catalog(hub.settings) as catalog:
        try:
            return catalog.load_table(("lake", VIEW)).metadata.current_snapshot_id
        except NoSuchTableError:
            return None


def files_of(hub: Hub) -> list[Path]:
    with open_catalog(hub.settings) as catalog:
        scan = catalog.load_table(("lake", VIEW)).scan()
        return [Path(task.file.file_path.removeprefix("file://")) for task in scan.plan_files()]


def equal_in_other_engines(hub: Hub, table: Table, duck: duckdb.DuckDBPyConnection) -> None:
    """The table as pyiceberg and DuckDB read it has the rows of the serving store."""
    with sqlite3.connect(hub.settings.store.removeprefix("sqlite:///")) as serving:
        query = f"SELECT key, city, points, share, _version FROM view_{VIEW} WHERE NOT _deleted ORDER BY key"
        rows = serving.execute(query).fetchall()
    columns = ("key", "city", "points", "share", "_version")
    assert duck.sql(f"SELECT {', '.join(columns)} FROM {VIEW} ORDER BY key").fetchall() == rows
    found = table.scan(selected_fields=columns).to_arrow().select(columns).sort_by("key").to_pylist()
    assert [tuple(each.values()) for each in found] == rows and len(rows) > 1_000


def await_told(hub: Hub) -> dict[str, Any]:
    """The serving store's word on all of them, once all say they are live."""
    deadline = time.monotonic() + patient(60)
    store = open_store(hub.settings.store)
    while True:
        told = {key: value for key, value in store.progress().items() if key.startswith("store:")}
        if len(told) == 4 and all(
            each["state"] == "live" and each["views"].get(VIEW, {}).get("lag") == 0 for each in told.values()
        ):
            store.close()
            return told
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
