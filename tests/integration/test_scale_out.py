"""Views computed by the executors of a Spark cluster, one of which dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline import Pipeline, iso, plain, wait_until
from processes import own_settings, run_hub
from spark_cluster import SparkCluster, spark_cluster

from hub.cli.platform.up import children
from hub.demo import customers
from hub.embedded import ensure_jars
from hub.supervisor import Supervisor

SEED, CUSTOMERS = 31, 150


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def hub(
    cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Supervisor, Pipeline]]:
    """A supervised hub of its own whose settings name the cluster."""
    folder = tmp_path_factory.mktemp("hub")
    settings = own_settings(
        folder / "home",
        folder / "project",
        spark_master=cluster.url,
        spark_driver_host="127.0.0.1",
        spark_conf={"spark.executor.memory": "500m"},
    )
    (settings.project / "views").mkdir(parents=True)
    ensure_jars(settings)
    supervisor = Supervisor(settings.home, print)
    try:
        for child in children(settings):
            supervisor.start(child)
        pipeline = Pipeline(settings, settings.url)
        yield supervisor, pipeline
        pipeline.close()
    finally:
        supervisor.stop()


@pytest.mark.timeout(720)
def test_a_view_is_computed_by_the_workers_and_outlives_one_of_them(
    cluster: SparkCluster, hub: tuple[Supervisor, Pipeline]
) -> None:
    supervisor, pipeline = hub
    pipeline.install("customer-360")
    first, second = 4_000, 8_000
    pipeline.feed(customers.TOPICS, customers.generate(SEED, CUSTOMERS, first))
    covers(supervisor, pipeline)
    assert all(cluster.executors(name) for name in ("worker-0", "worker-1")), "no executor had work"
    materializer = supervisor.pids()["materializer"]

    cluster.kill("worker-0")
    pipeline.feed(customers.TOPICS, customers.generate(SEED, CUSTOMERS, second))
    covers(supervisor, pipeline)

    expected = {
        key: {**row, "last_seen": iso(row["last_seen"])}
        for key, row in customers.fold(customers.generate(SEED, CUSTOMERS, second)).items()
    }
    assert {key: plain(row) for key, row in pipeline.rows("customer_360").items()} == expected
    assert supervisor.pids()["materializer"] == materializer, "the loss of a worker is Spark's to mend"


def test_a_cluster_without_workers_is_told_of_and_not_waited_for_without_end(
    hub: tuple[Supervisor, Pipeline], tmp_path: Path
) -> None:
    _, pipeline = hub
    with spark_cluster(tmp_path, workers=0) as empty:
        changes = {"home": tmp_path / "home", "spark_master": empty.url, "spark_executors_wait_s": 2.0}
        settings = pipeline.settings.model_copy(update=changes)
        ended = run_hub(settings, "materialize", timeout_s=120.0)
    assert ended.returncode == 1
    assert "HUB-3058" in ended.stderr
    assert f"{empty.url} gave no executor within 2 s" in ended.stderr


def covers(supervisor: Supervisor, pipeline: Pipeline) -> None:
    """Wait until the view serves all events; its processes are supervised meanwhile."""
    end = pipeline.cluster.end_offsets(list(customers.TOPICS))

    def done() -> bool:
        supervisor.step()
        try:
            pipeline.covers("customer_360", customers.TOPICS, 0.5)
        except AssertionError:
            return False
        return True

    wait_until(done, 300.0, lambda: f"not at {end}: {pipeline.state('customer_360')}")
