"""The local platform, for real: Kafka as a JVM, the server as a process,
the supervisor over children of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from patience import patient, wait_until
from ports import free_pair, free_ports
from processes import call_hub, run_hub, running_server

from hub.cli.platform.doctor import CheckResult, examine
from hub.config import Settings
from hub.embedded import KafkaNode
from hub.errors import ConfigError, Conflict
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions
from hub.supervisor import Child, Supervisor, end, running_hub, stop_hub

SLEEPER = "import time; time.sleep(600)"


def eventually(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for it, at most ``timeout_s``; then it is a failure."""
    wait_until(holds, timeout_s, lambda: "did not come true in time")


@pytest.fixture
def own_settings(tmp_path: Path) -> Settings:
    """Settings of a hub that a test may break."""
    port = free_pair()
    return Settings(
        home=tmp_path / "home", kafka_port=port, bootstrap=f"127.0.0.1:{port}", http_port=free_ports(1)[0]
    )


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Supervisor]:
    """A supervisor over two processes that do nothing."""
    supervisor = Supervisor(tmp_path)
    for name in ("first", "second"):
        supervisor.start(Child(name, lambda: [sys.executable, "-c", SLEEPER]))
    yield supervisor
    supervisor.stop()


def test_server_is_healthy(hub_server: str) -> None:
    with urllib.request.urlopen(f"{hub_server}/health", timeout=60) as answer:
        assert json.load(answer)["status"] == "up"


def test_a_server_on_an_ipv6_address_is_found_by_its_own(kafka: str, tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path / "home",
        project=tmp_path / "project",
        bootstrap=kafka,
        http_host="::1",
        http_port=free_ports(1)[0],
    )
    with running_server(settings) as url, SchemaRegistryClient({"url": settings.registry}) as client:
        assert url.startswith("http://[::1]:")
        assert client.get_subjects() is not None
        listed = call_hub(settings, "view", "ls")  # asks the server
        assert listed.returncode == 0, listed.stderr


def test_kafka_keeps_what_was_acknowledged_over_kill_9(own_settings: Settings) -> None:
    node = KafkaNode(own_settings)
    node.start()
    try:
        node.wait_ready()
        cluster = KafkaCluster(own_settings.bootstrap, 30.0)
        cluster.create_topic("kept", partitions=1, config={}, replication_factor=1)
        cluster.writer().append([NewRecord("kept", b"k", str(n).encode(), partition=0) for n in range(500)])
        # The coordinator of groups is made by this very request, and has to load.
        cluster.publish_group("first", Positions.of([("kept", 0, 7)]))
        assert cluster.group_positions("first") == Positions.of([("kept", 0, 7)])
        assert node.process is not None
        node.process.kill()
        node.process.wait()
        node.start()
        node.wait_ready()
        reader = cluster.reader()
        reader.assign(Positions.of([("kept", 0, 0)]))
        values: list[bytes | None] = []
        deadline = time.monotonic() + patient(60)
        while len(values) < 500 and time.monotonic() < deadline:
            values += [record.value for record in reader.poll(1_000, 1.0)]
        assert values == [str(n).encode() for n in range(500)]
        reader.close()
    finally:
        node.stop()
    assert not node.ready()


def test_a_taken_port_is_said_with_its_holder(own_settings: Settings, kafka: str) -> None:
    taken = int(kafka.rpartition(":")[2])
    node = KafkaNode(own_settings.model_copy(update={"kafka_port": taken}))
    with pytest.raises(
        ConfigError, match=rf"port {taken} \(Kafka\) is in use by pid \d+ \(java\)"
    ) as refusal:
        node.start()
    assert "HUB_KAFKA_PORT" in str(refusal.value.hint)


def test_a_child_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(tmp_path, said.append)
    words = "import sys; print('more'); sys.exit('its port is taken')"
    supervisor.start(Child("talker", lambda: [sys.executable, "-c", words]))

    def told() -> bool:
        supervisor.step()
        return "talker ended with exit code 1 (its port is taken); starting it again in 0.5 s" in said

    try:
        eventually(told)
    finally:
        supervisor.stop()


def test_a_child_that_dies_is_started_again(sleepers: Supervisor) -> None:
    before = sleepers.pids()
    os.kill(before["first"], signal.SIGKILL)

    def restarted() -> bool:
        sleepers.step()
        return sleepers.pids().get("first", before["first"]) != before["first"]

    eventually(restarted)
    assert sleepers.pids()["second"] == before["second"]
    hub = running_hub(sleepers.pid_file.parent)
    assert hub is not None
    assert hub.processes["first"].pid == sleepers.pids()["first"]


def test_one_home_has_one_supervisor(sleepers: Supervisor) -> None:
    with pytest.raises(Conflict, match=f"a hub runs on it already \\(pid {os.getpid()}\\)"):
        Supervisor(sleepers.pid_file.parent)


def test_a_stop_during_the_start_ends_it(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    stop = threading.Event()
    stop.set()
    never_ready = Child("slow", lambda: [sys.executable, "-c", SLEEPER], ready=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        supervisor.start(never_ready, stop)
    pid = supervisor.pids()["slow"]
    supervisor.stop()
    assert not psutil.pid_exists(pid)


SUPERVISE = f"""
import sys, threading
from pathlib import Path
from hub.runtime import install_stop_signals
from hub.supervisor import Child, Supervisor
stop = install_stop_signals()
supervisor = Supervisor(Path(sys.argv[1]))
supervisor.start(Child("one", lambda: [sys.executable, "-c", {SLEEPER!r}]))
supervisor.run(stop)
supervisor.stop()
"""


@pytest.fixture
def hub_elsewhere(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A supervisor in a process of its own, on ``tmp_path``."""
    process = subprocess.Popen([sys.executable, "-c", SUPERVISE, str(tmp_path)])
    eventually(lambda: (hub := running_hub(tmp_path)) is not None and hub.healthy)
    yield process
    end(process, 10.0)


def test_who_cannot_be_told_of_a_child_that_died_starts_it_again(tmp_path: Path) -> None:
    """A disk that is full, or a terminal that was closed:
    the supervisor itself once ended of it, and took all along."""
    program = SUPERVISE.replace("(Path(sys.argv[1]))", "(Path(sys.argv[1]), note)")
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-c", f"from hub.cli.terminal.output import note\n{program}", str(tmp_path)],
            stderr=full,
        )
    try:
        eventually(lambda: (hub := running_hub(tmp_path)) is not None and hub.healthy)
        hub = running_hub(tmp_path)
        assert hub is not None
        before = hub.processes["one"]
        before.kill()

        def again() -> bool:
            now = running_hub(tmp_path)
            return now is not None and now.processes.get("one", before) != before

        eventually(again, 20.0)
        assert process.poll() is None
    finally:
        end(process, 10.0)


def test_down_stops_a_hub_that_ctrl_z_has_stopped(
    hub_elsewhere: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    hub_elsewhere.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(hub_elsewhere.pid).status() == psutil.STATUS_STOPPED)
    waiter = threading.Thread(target=hub_elsewhere.wait)  # reaps it, as a shell would
    waiter.start()
    began_at = time.monotonic()
    stop_hub(tmp_path, timeout_s=patient(30.0))
    waiter.join(60)
    assert time.monotonic() - began_at < patient(20.0)  # it stopped by itself: it was not killed in the end


def test_kill_9_of_the_supervisor_takes_its_children_along(
    hub_elsewhere: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    hub = running_hub(tmp_path)
    assert hub is not None
    hub_elsewhere.kill()
    hub_elsewhere.wait()
    eventually(lambda: not hub.processes["one"].is_running() or hub.processes["one"].status() == "zombie")
    eventually(lambda: running_hub(tmp_path) is None)
    Supervisor(tmp_path).stop()  # the home is free again


def test_down_stops_the_hub_and_nothing_else(hub_elsewhere: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        # A recycled pid: the file names the stranger's, but not the time it started.
        content = json.loads((tmp_path / "hub.pid").read_text())
        content["processes"]["two"] = [stranger.pid, 12.0]
        (tmp_path / "hub.pid").write_text(json.dumps(content))
        waiter = threading.Thread(target=hub_elsewhere.wait)  # reaps it, as a shell would
        waiter.start()
        assert sorted(stop_hub(tmp_path, timeout_s=20)) == ["one", "supervisor"]
        waiter.join(60)
        assert hub_elsewhere.returncode == 0
        assert stranger.poll() is None
        assert stop_hub(tmp_path) == []
    finally:
        end(stranger, 5.0)


def test_doctor_on_a_machine_where_nothing_runs(own_settings: Settings) -> None:
    verdicts = {finding.check: finding.verdict for finding in examine(own_settings)}
    assert CheckResult.fail not in verdicts.values()
    assert verdicts["java"] is CheckResult.ok
    assert verdicts["kafka"] is CheckResult.off


def test_doctor_names_what_fails_and_the_way_out(own_settings: Settings, kafka: str) -> None:
    broken = own_settings.model_copy(
        update={"java": Path("/nowhere/java"), "kafka_port": int(kafka.rpartition(":")[2])}
    )
    findings = {finding.check: finding for finding in examine(broken)}
    assert findings["java"].verdict is CheckResult.fail
    assert "/nowhere/java" in findings["java"].found
    assert findings["java"].fix
    assert findings["ports"].verdict is CheckResult.fail
    assert "HUB_KAFKA_PORT" in findings["ports"].fix


def test_doctor_as_a_command(own_settings: Settings) -> None:
    done = run_hub(own_settings, "doctor", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert {finding["check"] for finding in json.loads(done.stdout)} >= {
        "java",
        "jars",
        "memory",
        "disk",
        "ports",
    }
