"""One applier and one Spark for the whole run, in addition to the shared Kafka and server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_nodes import own_node
from pipeline import Pipeline
from postgres import BINARIES, Postgres
from spark_session import spark_session

from hub.config import Settings
from hub.embedded import ensure_jars

__all__ = ["spark_session"]


@pytest.fixture(scope="session")
def pipeline(settings: Settings, hub_server: str) -> Iterator[Pipeline]:
    """A hub with its applier and materializer: put views into ``settings.project / "views"``."""
    ensure_jars(settings)
    # Results of verification are stored by the store's name: two hubs on one Kafka would overwrite each
    # other, and test_proof.py
    # has one of its own.
    running = Pipeline(settings.model_copy(update={"proof_core_share": 0.0}), hub_server)
    running.views.mkdir(parents=True, exist_ok=True)
    for command in ("apply-changelogs", "materialize"):
        running.start(command)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a cluster to mirror from, shared by a file's tests."""
    with own_node(tmp_path_factory.mktemp("nyc")) as made:
        yield made.bootstrap


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Topics of the cluster that it is mirrored to."""
    with own_node(tmp_path_factory.mktemp("lon")) as made:
        yield made.bootstrap


@pytest.fixture(autouse=True)
def _views_go_with_their_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test puts into the shared project;
    what a fixture of its module put there, that fixture takes away."""
    if "pipeline" not in request.fixturenames:
        yield
        return
    pipeline: Pipeline = request.getfixturevalue("pipeline")
    with pipeline.own_views():
        yield


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A real Postgres, one a module: some tests kill it."""
    if not BINARIES:
        pytest.skip("no postgresql on this machine: ./run test installs it where it may")
    running = Postgres()
    running.start()
    yield running
    running.stop()
