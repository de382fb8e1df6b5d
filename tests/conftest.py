"""What tests share: one real Kafka and one real server for the whole run, on free ports, in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from processes import own_settings, running_server

from hub.config import Settings
from hub.embedded import KafkaNode

MARK_OF_FOLDER = {"integration": "integration", "browser": "browser", "faults": "faults"}

# A JVM lives for seconds or minutes here: the optimising compiler would take more from the cores than it gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# The same examples in every run: what passes once passes again. With HUB_FAULT_SEEDS others are tried. How long one takes
# is a matter of the machine.
hypothesis.settings.register_profile(
    "hub",
    derandomize="HUB_FAULT_SEEDS" not in os.environ,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("hub")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests/unit: seconds, no JVM, no sockets")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast nothing but tests/unit is even imported."""
    if config.getoption("--fast") and collection_path.name in MARK_OF_FOLDER:
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder; and the pure tests first: they tell soonest, and are alone in their process then."""
    unit = Path(__file__).parent / "unit"
    items.sort(key=lambda item: not item.path.is_relative_to(unit))
    for item in items:
        for folder, mark in MARK_OF_FOLDER.items():
            if folder in item.path.relative_to(Path(__file__).parent).parts:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the shared Kafka and server: free ports, a home of their own, the user's cache of jars."""
    return own_settings(tmp_path_factory.mktemp("hub-home"))


@pytest.fixture(scope="session")
def kafka(settings: Settings) -> Iterator[str]:
    """Bootstrap servers of a real Kafka, shared by the whole run: use topic names of your own."""
    node = KafkaNode(settings)
    node.start()
    try:
        node.wait_ready()
        yield settings.bootstrap
    finally:
        node.stop()


@pytest.fixture(scope="session")
def hub_server(settings: Settings, kafka: str) -> Iterator[str]:
    """Base URL of a real server process (registry, topics, views, dashboard) on the shared Kafka."""
    with running_server(settings) as url:
        yield url
