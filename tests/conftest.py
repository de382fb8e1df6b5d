"""What tests share: one real Kafka and one real server for the whole run, on free ports, in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from kafka_nodes import running_node
from processes import own_settings, running_server

from hub.config import Settings
from hub.embedded import KafkaNode

MARK_OF_FOLDER = {"integration": "integration", "browser": "browser", "faults": "faults"}

# The files that take longest, in seconds alone: `./run test --durations=0` tells them anew. They begin first, or one side
# of a run would end with one of them while the other has nothing left.
SECONDS = {
    "integration/test_realtime_sql.py": 260,
    "integration/test_realtime.py": 217,
    "integration/test_mirror_cli.py": 182,
    "integration/test_damaged_checkpoints.py": 170,
    "integration/test_mirror_import.py": 129,
    "integration/test_mirror_secured.py": 123,
    "integration/test_secured_kafka.py": 120,
    "integration/test_delta_views.py": 116,
    "integration/test_mirror_rules.py": 135,
    "integration/test_view_versions.py": 107,
    "integration/test_scale_out.py": 100,
    "integration/test_scale_out_realtime.py": 100,
    "integration/test_expiry.py": 98,
    "faults/test_kill_anything.py": 84,
    "integration/test_sql_views.py": 79,
    "integration/test_dead_letters.py": 77,
    "integration/test_full_disk.py": 74,
    "integration/test_lag.py": 73,
    "integration/test_mirror_alerts.py": 70,
    "faults/mirror/test_mirror_faults.py": 55,
    "integration/test_traces.py": 53,
    "integration/test_prometheus.py": 51,
    "integration/test_views.py": 49,
    "integration/test_golden.py": 49,
    "integration/test_mirror_first_commit.py": 48,
    "faults/test_registry_nodes.py": 44,
    "integration/test_alerts.py": 44,
    "integration/test_delta.py": 40,
    "integration/test_client.py": 38,
    "integration/test_stores.py": 38,
    "integration/test_mirror_file.py": 37,
    "integration/test_mirror_old_broker.py": 36,
    "integration/test_formats.py": 31,
}

# A JVM lives for seconds or minutes here: the optimising compiler would take more from the cores than it gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Where the environment keeps no bytecode, each of the hundred processes that tests start would compile all that it imports.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".cache" / "bytecode"))

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


def pytest_configure(config: pytest.Config) -> None:
    gone = [name for name in SECONDS if not (Path(__file__).parent / name).exists()]
    assert not gone, f"tests/conftest.py names files that are not there: {gone}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast nothing but tests/unit is even imported."""
    if config.getoption("--fast") and collection_path.name in MARK_OF_FOLDER:
        return True
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder; and the pure tests first: they tell soonest, and are alone in their process then."""
    root = Path(__file__).parent

    def place(item: pytest.Item) -> tuple[bool, int]:
        path = item.path.relative_to(root)
        return path.parts[0] != "unit", -SECONDS.get(str(path), 0)

    items.sort(key=place)
    for item in items:
        for folder, mark in MARK_OF_FOLDER.items():
            if folder in item.path.relative_to(root).parts:
                item.add_marker(mark)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of the shared Kafka and server: free ports, a home of their own, the user's cache of jars."""
    return own_settings(tmp_path_factory.mktemp("hub-home"))


@pytest.fixture(scope="session")
def kafka(settings: Settings) -> Iterator[str]:
    """Bootstrap servers of a real Kafka, shared by the whole run: use topic names of your own."""
    with running_node(KafkaNode(settings)):
        yield settings.bootstrap


@pytest.fixture(scope="session")
def hub_server(settings: Settings, kafka: str) -> Iterator[str]:
    """Base URL of a real server process (registry, topics, views, dashboard) on the shared Kafka."""
    with running_server(settings) as url:
        yield url
