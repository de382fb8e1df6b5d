"""A full disk: its stores stop with the reason, lose nothing, and resume by themselves when there is
space."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pipeline import wait_until
from ports import free_ports
from postgres import Postgres
from processes import HubProcess, Server
from small_disk import SmallDisk, small_disk

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed

VIEW, CHANGELOG = "on_a_small_disk", "views.on_a_small_disk"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": VIEW,
    "namespace": "views",
    "fields": [{"name": "text", "type": "string"}, {"name": "_version", "type": "long"}],
}
FILE = f"""
view: {VIEW}
sources: {{s: {{topic: small.in, key: k}}}}
fields: {{text: s.text}}
stores: [serving, duck, lake, warehouse]
"""


@dataclass
class Hub:
    """An applier and a server, both with the stores on the disk but for one."""

    disk: SmallDisk
    applier: HubProcess
    server: Server

    def stores(self) -> dict[str, dict[str, Any]]:
        """Return the views as ``hub view ls`` and the pages get them."""
        views = httpx2.get(f"{self.server.url}/views", timeout=30.0).json()["views"]
        return {each["store"]: each for view in views if view["view"] == VIEW for each in view["stores"]}

    def until(self, store: str, state: str, timeout_s: float = 120.0) -> dict[str, Any]:
        told: dict[str, Any] = {}

        def so() -> bool:
            nonlocal told  # the observed state: a moment later it may retry
            told = self.stores().get(store, {})
            return told.get("state") == state and (state != "live" or told.get("lag") == 0)

        wait_until(so, timeout_s, lambda: f"{self.stores()}\n{self.applier.last_words()}")
        return told


@pytest.fixture
def hub(settings: Settings, hub_server: str, postgres: Postgres, tmp_path: Path) -> Iterator[Hub]:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / f"{VIEW}.yaml").write_text(FILE)
    with small_disk(tmp_path / "disk", 16) as disk:
        own = settings.model_copy(
            update={
                "home": tmp_path / "home",
                "project": tmp_path,
                "registry_url": hub_server,
                "http_port": free_ports(1)[0],
                "store_url": f"sqlite:///{disk.folder}/serving.db",
                "lake_uri": f"sqlite:///{disk.folder}/catalog.db",
                "lake_warehouse": f"{disk.folder}/lake",
                "lake_commit_s": 1.0,
                "stores": {
                    "duck": f"duckdb:///{disk.folder}/duck.duckdb",
                    "lake": "iceberg",
                    "warehouse": postgres.database("roomy"),
                },
            }
        )
        made = Hub(disk, HubProcess(own, "apply-changelogs"), Server(own))
        for each in (made.applier, made.server):
            each.within = disk.within
        try:
            yield made
        finally:
            made.server.stop()
            made.applier.stop()


@pytest.mark.timeout(420)
def test_stores_on_a_full_disk_say_so_and_go_on_when_there_is_room(
    settings: Settings, hub: Hub, hub_server: str
) -> None:
    cluster = KafkaCluster(settings.bootstrap, settings.kafka_timeout_s)
    compacted = {"cleanup.policy": "compact"}
    cluster.create_topic(CHANGELOG, partitions=2, config=compacted, replication_factor=1)
    if PROGRESS_TOPIC not in cluster.topics():
        cluster.create_topic(PROGRESS_TOPIC, partitions=1, config=compacted, replication_factor=1)
    schema_id = RegistryClient(hub_server).register(f"{CHANGELOG}-value", json.dumps(SCHEMA))
    chance, form = random.Random(3), parsed(SCHEMA)
    writer = cluster.writer()

    def write(versions: range) -> None:
        """Two kilobytes each that no store can make smaller than one."""
        records = []
        for version in versions:
            row = {"text": f"{version} {chance.randbytes(1_000).hex()}", "_version": version}
            headers = (("hub.version", str(version).encode()),)
            records.append(
                NewRecord(CHANGELOG, f"k{version}".encode(), encode(schema_id, form, row), headers)
            )
        writer.append(records)

    def text_of(key: str) -> str:
        row = httpx2.get(f"{hub.server.url}/views/{VIEW}/{key}", timeout=30.0).json()
        return str(row["text"]).partition(" ")[0]

    write(range(1, 301))
    hub.applier.start()
    hub.server.start()
    for store in ("serving", "duck", "lake", "warehouse"):
        hub.until(store, "live")

    write(range(301, 15_001))
    # The store that serves is one of those that are full: its own words are the last ones that it could keep.
    told = hub.until("serving", "down")
    assert "full" in told["reason"], told
    hub.until("warehouse", "live")
    assert (
        hub.until("serving", "down")["lag"] > 0
    )  # each time that it tries again it is filling, for a moment
    assert text_of("k300") == "300"  # readers get what there is
    assert hub.applier.process.poll() is None and hub.server.process.poll() is None

    hub.disk.resize(400)
    for store in ("serving", "duck", "lake", "warehouse"):
        hub.until(store, "live")
    assert text_of("k15000") == "15000"
    verify = [sys.executable, "-m", "hub.cli", "view", "verify", VIEW, "--timeout", "120", "-o", "json"]
    done = subprocess.run(
        [*hub.disk.within, *verify],
        env=hub.applier.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(each["store"], each["equal"], each["store_rows"]) for each in json.loads(done.stdout)] == [
        (store, True, 15_000) for store in ("serving", "duck", "lake", "warehouse")
    ]
    writer.close()
    cluster.delete_topic(CHANGELOG)
