"""One applier and one Spark for the whole run, beside the shared Kafka and server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pipeline import Pipeline
from spark_session import spark_session

from hub.cli.context import environment_of
from hub.config import Settings
from hub.embedded import ensure_jars
from hub.runtime import die_with_parent, end

__all__ = ["spark_session"]


@pytest.fixture(scope="session")
def pipeline(settings: Settings, hub_server: str) -> Iterator[Pipeline]:
    """A hub with its applier and materializer: put views into ``settings.project / "views"``."""
    ensure_jars(settings)
    (settings.project / "views").mkdir(parents=True, exist_ok=True)
    settings.logs.mkdir(exist_ok=True)
    processes = []
    for command in ("apply-changelogs", "materialize"):
        with (settings.logs / f"{command}.log").open("ab") as output:
            processes.append(
                subprocess.Popen(
                    die_with_parent([sys.executable, "-m", "hub.cli", command]),
                    env={**os.environ, **environment_of(settings)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    running = Pipeline(settings, hub_server)
    try:
        yield running
    finally:
        running.close()
        for process in reversed(processes):
            end(process, 20.0)
