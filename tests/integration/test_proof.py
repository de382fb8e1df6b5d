"""View = log, proved all the time: rows planted by hand in real SQLite and real Postgres are found
without anybody asking."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kafka_nodes import often_cleaned
from pipeline import Pipeline, records_of, wait_until
from plant import Plant
from ports import free_ports
from postgres import Postgres
from processes import HubProcess, Server, run_hub
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.progress.records import PROGRESS_TOPIC, ViewState
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

VIEW, CHANGELOG = "proved", "views.proved"
ROWS = 3_000
COLUMNS = "key, city, points, _version, _partition, _offset, _deleted, _applied_at_ms"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": VIEW,
    "namespace": "views",
    "fields": [
        {"name": "city", "type": ["null", "string"]},
        {"name": "points", "type": "long"},
        {"name": "_version", "type": "long"},
    ],
}
FILE = f"""
view: {VIEW}
owner: crm
sources: {{s: {{topic: proved.in, key: k}}}}
fields: {{city: s.city, points: s.points}}
stores: [serving, warehouse]
"""


@dataclass
class Proved:
    """An applier and a server; the stores as their databases have them; a writer of the changelog."""

    applier: HubProcess
    server: Server
    cluster: KafkaCluster
    schema_id: int
    by_hand: dict[str, Callable[[str], object]] = field(default_factory=dict)

    def write(self, versions: range, keys: int = ROWS, *, deleted: bool = False, wide: int = 0) -> None:
        writer, form = self.cluster.writer(), parsed(SCHEMA)
        records = []
        for version in versions:
            row = {
                "city": random.randbytes(wide).hex() if wide else "Oslo",
                "points": version,
                "_version": version,
            }
            value = None if deleted else encode(self.schema_id, form, row)
            headers = (("hub.version", str(version).encode()),)
            records.append(NewRecord(CHANGELOG, f"k{version % keys:04}".encode(), value, headers))
        writer.append(records)
        writer.close()

    def audits(self) -> dict[str, dict[str, Any]]:
        rows = httpx2.get(f"{self.server.url}/api/audit/views", timeout=30.0).json()["views"]
        return {each["store"]: each for each in rows if each["view"] == VIEW}

    def until(
        self, store: str, so: Callable[[dict[str, Any]], bool], timeout_s: float = 90.0
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def seen() -> bool:
            nonlocal found
            found = self.audits().get(store, {})
            return bool(found) and so(found)

        wait_until(seen, timeout_s, lambda: f"{self.audits()}\n{self.applier.last_words()}")
        return found

    def matching(self, rows: int, *stores: str) -> None:
        for store in stores or ("serving", "warehouse"):
            self.until(store, lambda each: (each["state"], each["rows"]) == ("MATCHES", rows))


@pytest.fixture
def proved(settings: Settings, hub_server: str, postgres: Postgres, tmp_path: Path) -> Iterator[Proved]:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / f"{VIEW}.yaml").write_text(FILE)
    warehouse = postgres.database(f"proved_{free_ports(1)[0]}")
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path,
            "registry_url": hub_server,
            "http_port": free_ports(1)[0],
            "store_url": f"sqlite:///{tmp_path}/serving.db",
            "stores": {"warehouse": warehouse},
            "proof_every_s": 0.5,
            "proof_core_share": 0.5,
        }
    )
    cluster = KafkaCluster(settings.bootstrap, settings.kafka_timeout_s)
    compacted = {"cleanup.policy": "compact"}
    small = {"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.001"}
    cluster.create_topic(CHANGELOG, partitions=2, config={**compacted, **small}, replication_factor=1)
    if PROGRESS_TOPIC not in cluster.topics():
        cluster.create_topic(PROGRESS_TOPIC, partitions=1, config=compacted, replication_factor=1)
    schema_id = RegistryClient(hub_server).register(f"{CHANGELOG}-value", json.dumps(SCHEMA))
    made = Proved(HubProcess(own, "apply-changelogs"), Server(own), cluster, schema_id)
    engine = create_engine(warehouse, poolclass=NullPool)

    def in_sqlite(statement: str) -> None:
        with sqlite3.connect(tmp_path / "serving.db", timeout=30.0) as connection:
            assert connection.execute(statement).rowcount > 0

    def in_postgres(statement: str) -> None:
        with engine.begin() as connection:
            assert connection.execute(text(statement)).rowcount > 0

    made.by_hand = {"serving": in_sqlite, "warehouse": in_postgres}
    try:
        yield made
    finally:
        made.server.stop()
        made.applier.stop()
        engine.dispose()
        cluster.delete_topic(CHANGELOG)


@pytest.mark.timeout(420)
def test_rows_that_somebody_edited_lost_added_or_set_back_are_found_in_real_databases(proved: Proved) -> None:
    proved.write(range(1, 2 * ROWS + 1))
    proved.applier.start()
    proved.server.start()
    proved.matching(ROWS)

    planted = {
        "an edited row": (
            "UPDATE view_proved SET points = points + 1 WHERE key = 'k0007'",
            "UPDATE view_proved SET points = points - 1 WHERE key = 'k0007'",
            {"k0007": f"another row of version {ROWS + 7}"},
        ),
        "a stale row": (
            "UPDATE view_proved SET points = 8, _version = 8 WHERE key = 'k0008'",
            f"UPDATE view_proved SET points = {ROWS + 8}, _version = {ROWS + 8} WHERE key = 'k0008'",
            {"k0008": f"version {ROWS + 8}, the store has version 8"},
        ),
        "a lost row": (
            "DELETE FROM view_proved WHERE key = 'k0009'",
            None,
            {"k0009": f"the store has not version {ROWS + 9}"},
        ),
        "a row too many": (
            f"INSERT INTO view_proved ({COLUMNS}) VALUES ('ghost', 'Rome', 1, 5, 0, 0, FALSE, 0)",
            "DELETE FROM view_proved WHERE key = 'ghost'",
            {"ghost": "the changelog has no such key, the store version 5"},
        ),
    }
    for store, other in (("serving", "warehouse"), ("warehouse", "serving")):
        for what, (statement, undone, keys) in planted.items():
            proved.by_hand[store](statement)
            found = proved.until(store, lambda each: each["state"] == "DIFFERS")
            assert {each["key"]: each["why"] for each in found["differing"]} == keys, what
            assert found["regions"] == 1 and proved.audits()[other]["state"] == "MATCHES", what
            if undone is not None:
                proved.by_hand[store](undone)
            else:  # the changelog's next row for that key mends it
                proved.write(range(8 * ROWS + 9, 8 * ROWS + 10))
                planted["a lost row"][2]["k0009"] = f"the store has not version {8 * ROWS + 9}"
            proved.until(store, lambda each: each["state"] == "MATCHES")
    line = f'hub_view_state_match{{store="warehouse",view="{VIEW}"}} 1.0'

    def metrics() -> str:
        return httpx2.get(f"{proved.server.url}/metrics", timeout=30.0).text

    wait_until(lambda: line in metrics(), 30.0, lambda: metrics()[-4_000:])
    (view,) = [
        each
        for each in httpx2.get(f"{proved.server.url}/views", timeout=30.0).json()["views"]
        if each["view"] == VIEW
    ]
    assert {each["store"]: each["proof"]["state"] for each in view["stores"]} == {
        "serving": "MATCHES",
        "warehouse": "MATCHES",
    }


@pytest.mark.timeout(420)
def test_an_alert_fires_for_it_and_a_store_that_is_away_is_never_said_to_match(
    proved: Proved, postgres: Postgres
) -> None:
    proved.write(range(1, ROWS + 1))
    proved.applier.start()
    proved.server.start()
    proved.matching(ROWS)
    # What its engine would say: without one the pages know no such view.
    state = ViewState(VIEW, "live", 1, None, "", "crm", {"s": "proved.in"})
    proved.cluster.writer().append([state.record()])
    proved.by_hand["serving"]("UPDATE view_proved SET city = 'Rome' WHERE key = 'k0001'")
    proved.until("serving", lambda each: each["state"] == "DIFFERS")

    def firing() -> bool:
        alerts = httpx2.get(f"{proved.server.url}/api/alerts", timeout=30.0).json()["alerts"]
        return any(
            (each["alert"], each["state"], each["labels"].get("store"))
            == ("view-differs", "firing", "serving")
            for each in alerts
        )

    wait_until(firing, 60.0, lambda: httpx2.get(f"{proved.server.url}/api/alerts", timeout=30.0).text[:2000])

    def page() -> str:
        wanted = {"Accept": "text/html"}
        return httpx2.get(f"{proved.server.url}/views/{VIEW}", headers=wanted, timeout=30.0).text

    wait_until(lambda: 'data-testid="differing-serving"' in page(), 30.0, page)
    assert "another row of version" in page()
    proved.by_hand["serving"]("UPDATE view_proved SET city = 'Oslo' WHERE key = 'k0001'")

    postgres.kill()
    found = proved.until("warehouse", lambda each: each["state"] == "UNKNOWN")
    assert found["reason"] and found["matched_ms"] is not None
    proved.write(range(ROWS + 1, 2 * ROWS + 1))
    proved.matching(ROWS, "serving")
    assert proved.audits()["warehouse"]["state"] != "MATCHES"
    postgres.start()
    proved.matching(ROWS)

    # A restart continues from the files; deleted and restored rows are followed.
    proved.applier.kill()
    proved.write(range(2 * ROWS + 1, 2 * ROWS + 101), deleted=True)
    proved.applier.start()
    proved.matching(ROWS - 100)


@pytest.mark.timeout(420)
def test_a_compacted_changelog_is_no_difference_also_for_a_fold_that_is_made_from_it(proved: Proved) -> None:
    proved.write(range(1, 2 * ROWS + 1), wide=400)
    proved.write(range(2 * ROWS + 1, 2 * ROWS + 101), deleted=True)
    proved.applier.start()
    proved.server.start()
    proved.matching(ROWS - 100)
    proved.write(range(3 * ROWS + 1000, 4 * ROWS), wide=400)
    with often_cleaned(proved.cluster.bootstrap):
        wait_until(lambda: len(records_of(proved.cluster, CHANGELOG)) < 2 * ROWS, 90.0)
    proved.matching(ROWS - 100)
    proved.applier.kill()
    shutil.rmtree(proved.applier.settings.home / "proof")
    proved.applier.start()
    proved.write(range(4 * ROWS + 200, 4 * ROWS + 201))
    end = str(proved.cluster.end_offsets([CHANGELOG]))
    for store in ("serving", "warehouse"):
        proved.until(store, lambda each: (each["state"], each["positions"]) == ("MATCHES", end))
    assert "differs from its changelog" not in proved.applier.log.read_text()


@pytest.mark.timeout(600)
def test_a_view_computed_again_from_its_sources_is_compared_told_and_never_served(pipeline: Pipeline) -> None:
    plant = Plant(pipeline, "second_opinion")
    for number in range(40):
        last = plant.write(f"k{number % 20}", plant.reading(f"k{number % 20}", float(number)))
    plant.declare({"celsius": "r.celsius", "readings": "count(r.celsius)"})
    plant.running()
    plant.covered("k19", last)
    pipeline.covers(plant.view, [plant.topic])

    def asked(state: str) -> dict[str, Any]:
        before = pipeline.state(plant.view).get("recomputed") or {"at_ms": 0}
        path = f"{pipeline.url}/view-versions/{plant.view}"
        httpx2.post(path, json={"action": "recompute"}, timeout=30.0).raise_for_status()
        found: dict[str, Any] = {}

        def told() -> bool:
            nonlocal found
            found = pipeline.state(plant.view).get("recomputed") or {}
            return found.get("at_ms", 0) > before["at_ms"]

        wait_until(told, 240.0, lambda: str(pipeline.state(plant.view)))
        assert (found["state"], found["report"]["rows_before"]) == (state, 20), found
        return found

    assert asked("MATCHES")["report"]["rows_after"] == 20
    with sqlite3.connect(pipeline.settings.home / "store.db", timeout=30.0) as connection:
        edited = connection.execute(f"UPDATE view_{plant.view} SET celsius = -1 WHERE key = 'k7'")
        assert edited.rowcount == 1
    found = asked("DIFFERS")
    assert found["report"]["differing"] == 1
    assert [each["key"] for each in found["report"]["samples"]] == ["k7"]
    versions = httpx2.get(f"{pipeline.url}/view-versions/{plant.view}", timeout=30.0).json()
    assert versions["served"] == 1 and [each["state"] for each in versions["versions"]] == ["served"]
    told = run_hub(pipeline.settings, "view", "show", plant.view)
    assert "DIFFERS" in told.stdout and "computed again from the sources" in told.stdout
