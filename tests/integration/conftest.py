"""One applier and one Spark for the whole run, beside the shared Kafka and server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pipeline import Pipeline
from spark_session import spark_session

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.runtime import end

__all__ = ["spark_session"]


@pytest.fixture(scope="session")
def pipeline(settings: Settings, hub_server: str) -> Iterator[Pipeline]:
    """A hub with its applier and materializer: put views into ``settings.project / "views"``."""
    ensure_jars(settings)
    (settings.project / "views").mkdir(parents=True, exist_ok=True)
    settings.logs.mkdir(exist_ok=True)
    running = Pipeline(settings, hub_server)
    for command in ("apply-changelogs", "materialize"):
        running.start(command)
    try:
        yield running
    finally:
        running.close()
        for process in reversed(running.processes.values()):
            end(process, 20.0)
