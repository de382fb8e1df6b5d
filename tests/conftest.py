"""Fixtures that tests share: one real Kafka and one real server for the whole run, on free ports, in a folder
of their own.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from kafka_nodes import running_node
from patience import patient
from processes import own_settings, running_server
from samples import FAST

from hub.config import Settings
from hub.embedded import KafkaNode

MARK_OF_FOLDER = {"integration": "integration", "browser": "browser", "faults": "faults"}

# The slowest files, in seconds when run alone: `./run test --durations=0` prints new figures. The longest
# remaining file begins first; otherwise one side of a run would end with it while the others are idle.
SECONDS = {
    "integration/test_realtime_sql.py": 260,
    "integration/test_realtime.py": 217,
    "integration/test_rolling_restart.py": 240,
    "integration/test_connectors.py": 100,
    "integration/test_statements.py": 45,
    "integration/test_field_encryption.py": 45,
    "integration/test_ksql_import.py": 75,
    "integration/test_cdc_end_to_end.py": 90,
    "integration/test_mirror_cli.py": 190,
    "integration/test_tutorials.py": 150,
    "integration/test_mirror_rehearsals.py": 60,
    "integration/test_mirror_closed.py": 80,
    "integration/test_mirror_deletions.py": 110,
    "integration/test_mirror_renamed.py": 110,
    "integration/test_damaged_checkpoints.py": 170,
    "integration/test_mirror_engine.py": 150,
    "integration/test_interrupted_transactions.py": 45,
    "integration/test_isolation.py": 140,
    "integration/test_mirror_import.py": 129,
    "integration/test_mirror_rollout.py": 100,
    "integration/test_mirror_secured.py": 120,
    "integration/test_secured_kafka.py": 130,
    "integration/test_standby.py": 90,
    "integration/test_kafka_controller.py": 34,
    "integration/test_mirror_settled.py": 150,
    "integration/test_repairs.py": 67,
    "integration/test_assembling.py": 80,
    "integration/test_transaction_views.py": 90,
    "integration/test_identity.py": 75,
    "integration/test_upgrade.py": 75,
    "integration/test_delta_views.py": 116,
    "integration/test_mirror_rules.py": 135,
    "integration/test_silence.py": 110,
    "integration/test_view_versions.py": 107,
    "integration/test_wheel.py": 110,
    "integration/test_scale_out.py": 100,
    "integration/test_scale_out_realtime.py": 100,
    "integration/test_expiry.py": 98,
    "faults/test_kill_anything.py": 84,
    "integration/test_sql_views.py": 79,
    "integration/test_mirror_cut_short.py": 80,
    "integration/test_dead_letters.py": 77,
    "integration/test_cut.py": 75,
    "integration/test_backup.py": 40,
    "integration/test_lake.py": 45,
    "integration/test_sinks.py": 45,
    "integration/test_full_disk.py": 74,
    "integration/test_mirror_failover.py": 80,
    "integration/test_mirror_registries.py": 75,
    "integration/test_lag.py": 73,
    "integration/test_mirror_alerts.py": 70,
    "faults/mirror/test_mirror_faults.py": 55,
    "integration/test_traces.py": 53,
    "integration/test_prometheus.py": 51,
    "integration/test_schema_evolution.py": 60,
    "integration/test_views.py": 58,
    "integration/test_topics.py": 55,
    "integration/test_golden.py": 49,
    "integration/test_mirror_first_commit.py": 48,
    "integration/test_pgwire.py": 45,
    "integration/test_masking.py": 50,
    "integration/test_access_log.py": 40,
    "faults/test_registry_nodes.py": 44,
    "integration/test_alerts.py": 44,
    "integration/test_large_batches.py": 80,
    "integration/test_cut_off.py": 60,
    "integration/test_delta.py": 40,
    "integration/test_client.py": 39,
    "integration/test_stores.py": 38,
    "integration/test_mirror_file.py": 37,
    "integration/test_mirror_old_broker.py": 36,
    "integration/test_formats.py": 31,
}

# Files from LONG_S on are ``long``. A run of everything takes a sample of them, in an order that follows from
# the commit (or from HUB_TEST_SEED): the first ones always and at once, the others last, as long as the run
# is younger than SAMPLE_MIN. So each is run by every few commits, and a slow machine ends too. With --all, or
# when asked for by name, all of them run.
LONG_S, ALWAYS, SAMPLE_MIN = 35, 4, 9
_SEED, _UNTIL = "HUB_TEST_SEED", "HUB_TEST_SAMPLE_UNTIL"

# A JVM lives for seconds or minutes here: the optimising compiler would take more from the cores than it
# gives back.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Where the environment keeps no bytecode, each of the hundred processes that tests start would compile all
# that it imports.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".cache" / "bytecode"))

# The same examples in every run: what passes once passes again. With HUB_FAULT_SEEDS others are tried. How
# long one takes is a matter of the machine.
hypothesis.settings.register_profile(
    "hub",
    derandomize="HUB_FAULT_SEEDS" not in os.environ,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.register_profile("fast", hypothesis.settings.get_profile("hub"), max_examples=25)
hypothesis.settings.load_profile("hub")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help="only tests/unit: no JVM, no processes, and a part of the examples of expensive claims",
    )
    parser.addoption("--faults", action="store_true", help="only the fault suite, with --seed and --minutes")
    parser.addoption(
        "--sample",
        action="store_true",
        help="with --faults: the small part of it that kills each process once",
    )
    parser.addoption("--seed", type=int, default=None, help="of the fault suite; by default the commit's")
    parser.addoption("--minutes", type=float, default=6.0, help="for which the fault suite hurts the hub")
    parser.addoption("--all", action="store_true", help="every long file too, not a sample of them")


def pytest_configure(config: pytest.Config) -> None:
    gone = [name for name in SECONDS if not (Path(__file__).parent / name).exists()]
    assert not gone, f"tests/conftest.py names files that are not there: {gone}"
    if config.getoption("--fast") and "HUB_FAULT_SEEDS" not in os.environ:
        os.environ[FAST] = "1"
        hypothesis.settings.load_profile("fast")
    else:
        os.environ.pop(FAST, None)
    if hasattr(config, "workerinput"):
        return  # one side of a run: it has the environment of the whole, where this stands
    os.environ.setdefault(_SEED, _commit())
    os.environ.pop(_UNTIL, None)
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.getoption("--all"):
        os.environ[_UNTIL] = str(time.time() + 60 * SAMPLE_MIN)


def _commit() -> str:
    """Return the commit under test; "" outside a repository."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(asked, check=False, capture_output=True, text=True, timeout=10.0).stdout.strip()
    except OSError:
        return ""


def sampled(seed: str) -> list[str]:
    """The long files, in the order in which a run of this seed takes them."""
    files = sorted(name for name, seconds in SECONDS.items() if seconds >= LONG_S)
    random.Random(seed).shuffle(files)
    return files


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --fast nothing but tests/unit is even imported;
    with --faults the fault suite alone, which runs only then."""
    if config.getoption("--fast") and collection_path.name in MARK_OF_FOLDER:
        return True
    if collection_path.suffix == ".py" and collection_path.name != "conftest.py":
        is_suite = collection_path.name == "test_fault_suite.py"
        return True if is_suite != config.getoption("--faults") else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Set marks by folder and by length, and time limits by patience. Unit tests run first: they are fast,
    and are then alone in their process. With --fast, tests that start processes do not run.
    """
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[each for each in items if _starts_processes(each)])
        items[:] = [each for each in items if not _starts_processes(each)]
    root = Path(__file__).parent
    turns = {name: turn for turn, name in enumerate(sampled(os.environ[_SEED]))}

    def place(item: pytest.Item) -> tuple[int, int]:
        path = item.path.relative_to(root)
        if path.parts[0] == "unit":
            return 0, 0
        if (turn := turns.get(str(path))) is not None:
            return (1 if turn < ALWAYS else 3), turn
        return 2, -SECONDS.get(str(path), 0)

    items.sort(key=place)
    for item in items:
        path = item.path.relative_to(root)
        if str(path) in turns:
            item.add_marker("long")
        for folder, mark in MARK_OF_FOLDER.items():
            if folder in path.parts:
                item.add_marker(mark)
        limit = item.get_closest_marker("timeout")
        seconds = limit.args[0] if limit is not None else float(item.config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patient(seconds)), append=False)


def _starts_processes(item: pytest.Item) -> bool:
    return item.get_closest_marker("processes") is not None


_begun: set[Path] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a file of the sample that would begin too late, with the reason."""
    if _UNTIL not in os.environ or item.path in _begun or item.get_closest_marker("long") is None:
        return
    name = str(item.path.relative_to(Path(__file__).parent))
    if name not in sampled(os.environ[_SEED])[:ALWAYS] and time.time() > float(os.environ[_UNTIL]):
        pytest.skip(f"{name} is not of this run's sample, whose {SAMPLE_MIN} minutes are over: --all runs it")
    _begun.add(item.path)


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
    """Base URL of a real server process (registry, topics, views, dashboard) on the shared Kafka. It
    evaluates no alerts: of all servers of a Kafka one does, and tests of alerts start their own.
    """
    with running_server(settings.model_copy(update={"alerts": False})) as url:
        yield url
