"""A full disk under the embedded Kafka: writers get errors in time, no acknowledged event is lost, and
everything resumes after a restart."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kafka_nodes import running_node
from patience import patient
from pipeline import records_of, wait_until
from ports import free_pair, free_ports
from processes import Server
from small_disk import SmallDisk, small_disk

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster

TOPIC = "full.in"


class OnSmallDisk(KafkaNode):
    """A Kafka with its log on a disk of its own, formatted once."""

    disk: SmallDisk

    def prepare(self) -> list[str]:
        return [*self.disk.within, *super().prepare()]

    def sh(self, command: str) -> None:
        subprocess.run(
            [*self.disk.within, "sh", "-c", f"cd '{self.disk.folder}' && {command}"],
            check=False,
            capture_output=True,
            timeout=60,
        )


@pytest.fixture
def node(settings: Settings, tmp_path: Path) -> Iterator[OnSmallDisk]:
    port = free_pair()
    own = settings.model_copy(
        update={
            "home": tmp_path / "home",
            "project": tmp_path / "project",
            "kafka_port": port,
            "bootstrap": f"127.0.0.1:{port}",
            "http_port": free_ports(1)[0],
            "registry_url": None,
            "kafka_timeout_s": 10.0,
        }
    )
    with running_node(KafkaNode(own)) as plain:  # formats its folder
        data = plain.folder / "data"
    shutil.move(data, plain.folder / "formatted")
    with small_disk(data, 64) as disk:
        made = OnSmallDisk(own)
        made.disk = disk
        made.sh("cp -r ../formatted/. .")
        try:
            # Of a folder that only it sees the hub must not think that it was never formatted.
            (made.folder / "data" / "meta.properties").touch()
            made.start()
            made.wait_ready()
            yield made
        finally:
            made.stop()


@pytest.mark.timeout(420)
def test_a_full_log_is_said_to_writers_and_all_goes_on_when_there_is_room(node: OnSmallDisk) -> None:
    cluster = KafkaCluster(node.settings.bootstrap, 10.0)
    cluster.create_topic(TOPIC, partitions=1, config={}, replication_factor=1)
    server = Server(node.settings)
    server.start()
    address = f"{server.url}/v3/clusters/-/topics/{TOPIC}/records"

    def post(number: int) -> httpx2.Response:
        body: dict[str, Any] = {"key": {"type": "STRING", "data": f"k{number}"}}
        body["value"] = {"type": "STRING", "data": f"{number} " + "x" * 200_000}
        return httpx2.post(address, json=body, timeout=120.0)

    acknowledged = []
    for number in range(10):
        answer = post(number)
        assert answer.status_code == 200, answer.text
        acknowledged.append(number)
    node.sh("head -c 100000000 /dev/zero > filler")
    refused: httpx2.Response | None = None
    deadline, number = time.monotonic() + patient(120.0), 10
    while refused is None and time.monotonic() < deadline:
        answer = post(number)
        if answer.status_code == 200 and answer.json().get("error_code", 200) == 200:
            acknowledged.append(number)
            number += 1
        else:
            refused = answer
    assert refused is not None
    print(refused.status_code, refused.text[:500], node.process.poll() if node.process else None)
    said = refused.json()
    assert refused.status_code >= 500 and said["error_code"] and said["message"]
    assert server.process.poll() is None

    node.sh("rm filler")
    node.stop()
    node.start()
    node.wait_ready()

    def again() -> bool:
        answer = post(100_000)
        return answer.status_code == 200 and answer.json().get("error_code", 200) == 200

    wait_until(again, 90.0, server.last_words)
    there = [int((each.value or b"").split(b" ")[0]) for each in records_of(cluster, TOPIC)]
    assert set(acknowledged) <= set(there)
    assert [each for each in there if each < 10] == list(range(10))
    server.stop()
