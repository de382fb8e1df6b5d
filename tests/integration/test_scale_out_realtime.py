"""Real-time mode on the executors of a Spark cluster:
its slots are counted, one of its workers dies, and every event counts once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pipeline import plain
from realtime_hub import Hub, running_hub
from spark_cluster import SparkCluster, spark_cluster

from hub.record import NewRecord
from hub.schema_registry.codecs.wire_format import encode, parsed

pytestmark = pytest.mark.timeout(600)

READING: dict[str, Any] = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "sensor", "type": "string"}, {"name": "celsius", "type": "long"}],
}
SENSORS = 11
VIEW = """view: hot
mode: realtime
sources: {r: {topic: plant.hot, key: sensor}}
fields: {celsius: r.celsius, readings: count(r.sensor), total: sum(r.celsius)}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    # The view wants four slots, and two stay for micro-batches: one worker has enough, when the other is
    # dead.
    with spark_cluster(tmp_path_factory.mktemp("spark"), workers=2, cores=6) as running:
        yield running


@pytest.fixture(scope="module")
def hub(cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    more = {
        "spark_master": cluster.url,
        "spark_driver_host": "127.0.0.1",
        "spark_conf": {"spark.executor.memory": "500m"},
    }
    with running_hub(tmp_path_factory.mktemp("hub"), **more) as running:
        yield running


class Readings:
    def __init__(self, hub: Hub) -> None:
        self.hub, self.written = hub, 0
        hub.pipeline.cluster.create_topic("plant.hot", partitions=2, config={}, replication_factor=1)
        self.schema_id = hub.pipeline.registry.register("plant.hot-value", json.dumps(READING))

    def write(self, count: int) -> None:
        records = []
        for number in range(self.written, self.written + count):
            sensor = f"s{number % SENSORS}"
            body = {"sensor": sensor, "celsius": number}
            records.append(
                NewRecord("plant.hot", sensor.encode(), encode(self.schema_id, parsed(READING), body))
            )
        self.written += count
        self.hub.pipeline.writer.append(records)

    def rows(self) -> dict[str, dict[str, int]]:
        own = {f"s{n}": range(n, self.written, SENSORS) for n in range(SENSORS)}
        return {
            key: {"celsius": max(each), "readings": len(each), "total": sum(each)}
            for key, each in own.items()
        }


def test_a_real_time_view_runs_on_the_workers_and_outlives_one_of_them(
    cluster: SparkCluster, hub: Hub
) -> None:
    readings = Readings(hub)
    readings.write(200)
    hub.write_view("hot", VIEW)
    hub.reaches("hot", "realtime")
    assert all(cluster.executors(name) for name in ("worker-0", "worker-1"))

    def says() -> str:
        return f"{hub.pipeline.state('hot')} {list(hub.pipeline.rows('hot').items())[:3]} {readings.rows()}"

    def settled() -> None:
        readings.write(100)
        hub.until(
            lambda: {key: plain(row) for key, row in hub.pipeline.rows("hot").items()} == readings.rows(),
            180.0,
            says,
        )

    settled()
    readings.write(50)
    cluster.kill("worker-0")
    readings.write(100)
    hub.reaches("hot", "realtime")
    settled()
    hub.pipeline.covers("hot", ["plant.hot"])
    assert hub.pipeline.state("hot")["last_batch"]["generation"] == 1
    assert hub.pipeline.state("hot")["last_batch"]["mode"] == "realtime"

    # Seven slots and the two for micro-batches exceed the remaining worker: this is reported, not waited for.
    hub.write_view("wide", VIEW.replace("view: hot", "view: wide\npartitions: 5"))
    hub.until(
        lambda: "give the cluster more cores" in (hub.pipeline.state("wide").get("reason") or ""),
        120.0,
        lambda: str(hub.pipeline.state("wide")),
    )
