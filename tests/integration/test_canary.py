"""Canaries on real Kafka: every path in time, an unreachable path, and the server's report."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mirror_world import own_world
from pipeline import Pipeline, wait_until
from prometheus_client import CollectorRegistry, generate_latest
from typer.testing import CliRunner

from hub.api.app import add_canaries
from hub.cli import app
from hub.cli.context import environment_of
from hub.completeness.canary.probes import CanaryRouteRow, CanaryState, view_file
from hub.completeness.canary.routes import families
from hub.completeness.canary.runner import Canaries, mirrored
from hub.config import Settings
from hub.errors import NotFound
from hub.kafka import KafkaCluster
from hub.materializers.stores.sql_store import Store
from hub.schema_registry.client.registry_client import RegistryClient

PATIENCE_S = 240.0


def by_way(canaries: Canaries) -> dict[str, CanaryRouteRow]:
    return {row.way: row for row in canaries.rows()}


def test_canaries_come_on_every_way_that_is_read(kafka: str, hub_server: str) -> None:
    cluster, registry = KafkaCluster(kafka, 15.0), RegistryClient(hub_server)
    topic = f"canary.{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
    mirrors = {"near": cluster, "away": KafkaCluster("127.0.0.1:1", 0.5)}
    canaries = Canaries(cluster, registry, topic, mirrors, every_s=0.1)
    with canaries.running():

        def enough() -> bool:
            ways.update(by_way(canaries))
            read = [ways[name] for name in ("ack", "read", "mirror:near")]
            return min(each.read for each in read) >= 10 and {each.state for each in read} == {CanaryState.OK}

        ways: dict[str, CanaryRouteRow] = {}
        wait_until(enough, PATIENCE_S, lambda: str(canaries.rows()))
        assert (ways["read"].lost, ways["read"].repeated, ways["read"].reordered) == (0, 0, 0)
        away = ways["mirror:away"]
        assert (away.state, away.expected, away.lost) == (CanaryState.UNKNOWN, 0, 0)
        assert "does not answer" in away.cause
        wait_until(lambda: canaries.state()[0] is CanaryState.OK, PATIENCE_S, lambda: str(canaries.state()))
        assert canaries.partitions == 2

        class Families:
            def collect(self) -> Any:
                return families(canaries)

        registry_ = CollectorRegistry()
        registry_.register(Families())
        text = generate_latest(registry_).decode()
        assert 'hub_canary_state{state="OK",way="read"} 1.0' in text
        assert 'hub_canary_lost{way="read"} 0.0' in text
        assert 'hub_canary_seconds_bucket{le="+Inf",way="read"}' in text
    registry.close()


@pytest.mark.timeout(300)
def test_canaries_go_over_a_running_mirror_through_its_filter_and_tell_when_it_stands(
    kafka: str, hub_server: str, away: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hub.completeness.canary.probes.LATE_S", 3.0)
    cluster, registry = KafkaCluster(kafka, 15.0), RegistryClient(hub_server)
    with own_world(tmp_path / "project", kafka, away) as world:
        topic = f"{world.label}.canary"
        cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
        wanted = {"topics": [topic], "where": {"header": "region", "in": ["emea"]}}
        world.declare([f"{world.label}.**"], only=[wanted])
        worker = world.start_worker()
        over = mirrored(world.folder, cluster, topic, 15.0)
        canaries = Canaries(
            cluster, registry, topic, over.clusters, every_s=0.1, headers=over.headers, closed=over.closed
        )

        def way() -> CanaryRouteRow:
            return by_way(canaries)[f"mirror:{world.name}"]

        def said() -> str:
            return f"{canaries.rows()}\n{world.logs()}"

        with canaries.running():
            wait_until(lambda: way().read >= 10 and way().state is CanaryState.OK, PATIENCE_S, said)
            worker.kill()
            wait_until(lambda: way().state is CanaryState.LOSING, PATIENCE_S, said)
            assert by_way(canaries)["read"].state is CanaryState.OK
            world.start_worker()
            # They are all there after all: late, and none of them lost or twice.
            wait_until(lambda: way().state is CanaryState.LATE, PATIENCE_S, said)
            assert (way().lost, way().repeated, way().reordered) == (0, 0, 0)
    registry.close()


def test_a_registry_that_is_away_is_said_and_nothing_is_lost(kafka: str) -> None:
    registry = RegistryClient("http://127.0.0.1:1")
    canaries = Canaries(KafkaCluster(kafka, 15.0), registry, f"canary.{uuid.uuid4().hex[:8]}", every_s=0.1)
    with canaries.running():
        wait_until(lambda: canaries.state()[1] not in ("starting", ""), PATIENCE_S)
        state, cause = canaries.state()
    assert state is CanaryState.UNKNOWN
    assert "127.0.0.1:1" in cause
    registry.close()


def test_the_server_sends_them_when_the_settings_say_so(
    settings: Settings, kafka: str, hub_server: str, tmp_path: Path
) -> None:
    on = settings.model_copy(update={"canary": True, "canary_topic": f"canary.{uuid.uuid4().hex[:8]}"})
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    registry = RegistryClient(hub_server)

    async def serve() -> dict[str, Any]:
        served = FastAPI()
        async with AsyncExitStack() as opened:
            add_canaries(served, on, KafkaCluster(kafka, 15.0), registry, store, opened)
            client = TestClient(served)
            body: dict[str, Any] = {}

            def told() -> bool:
                body.update(client.get("/api/canary").json())
                return bool(
                    {row["way"] for row in body["ways"] if row["state"] == "OK"} == {"ack", "read"}
                    and all(row["cause"] != "no reader yet" for row in body["ways"])
                )

            await anyio.to_thread.run_sync(lambda: wait_until(told, PATIENCE_S, lambda: str(body)))
            return body

    body = anyio.run(serve)
    ways = {row["way"]: row for row in body["ways"]}
    assert body["enabled"]
    assert ways["read"]["state"] == "OK"
    assert "hub canary view" in ways["view"]["cause"]
    registry.close()
    store.close()


def test_the_command_says_that_they_are_off(settings: Settings, hub_server: str) -> None:
    shown = CliRunner().invoke(app, ["canary"], env=environment_of(settings))
    assert shown.exit_code == 0, shown.output
    assert "canary: true in hub.yaml" in shown.stderr
    printed = CliRunner().invoke(app, ["canary", "view"], env=environment_of(settings))
    assert printed.stdout == view_file(settings.canary_topic)


def test_canaries_go_through_spark_and_the_store(pipeline: Pipeline) -> None:
    topic = f"canary.{uuid.uuid4().hex[:8]}"
    pipeline.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)

    def row(key: str) -> Mapping[str, Any] | None:
        answer = httpx2.get(f"{pipeline.url}/views/hub_canary/{key}", timeout=60.0)
        if answer.status_code == 404:
            if answer.json()["error_code"] == "HUB-1410":
                raise NotFound("no view")
            return None
        return answer.raise_for_status().json()["row"] if "row" in answer.json() else answer.json()

    canaries = Canaries(pipeline.cluster, pipeline.registry, topic, row=row, every_s=0.2)
    with canaries.running():
        wait_until(lambda: by_way(canaries)["read"].read > 0, PATIENCE_S, lambda: str(canaries.rows()))
        (pipeline.settings.project / "views" / "hub_canary.yaml").write_text(view_file(topic))
        wait_until(
            lambda: by_way(canaries)["view"].read >= 5,
            PATIENCE_S,
            lambda: f"{canaries.rows()} {pipeline.state('hub_canary')}",
        )
        view = by_way(canaries)["view"]
        assert view.lost == 0
        assert view.p50_s is not None
    (pipeline.settings.project / "views" / "hub_canary.yaml").unlink()
