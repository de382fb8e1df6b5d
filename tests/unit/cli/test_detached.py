"""``hub up --detach`` with another hub on the same home folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from hub.cli.platform import up
from hub.config import Settings
from hub.errors import ConfigError, Conflict
from hub.supervisor import RunningHub, Supervisor

pytestmark = pytest.mark.processes

REAL = subprocess.Popen


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home folder; what is started on it finds that it is taken."""
    for name in ("check_machine", "check_kafka", "fetch_jars"):
        monkeypatch.setattr(up, name, lambda _settings: None)
    real = subprocess.Popen

    def loses(_command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        return real([sys.executable, "-c", "print('Error: a hub runs already'); exit(1)"], **how)

    monkeypatch.setattr(up.subprocess, "Popen", loses)
    return Settings(home=tmp_path / "home", project=tmp_path)


def test_a_hub_that_runs_already_is_told_and_keeps_its_log(settings: Settings) -> None:
    running = Supervisor(settings.home)
    log = settings.logs / "hub.log"
    log.write_text("what it said")
    try:
        with pytest.raises(Conflict, match="a hub runs on it already") as told:
            up.start_detached(settings)
    finally:
        running.stop()
    assert told.value.code == "HUB-1920"
    assert log.read_text() == "what it said"


def test_another_hub_that_was_started_at_the_same_time_is_not_taken_for_this_one(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = RunningHub(True, {"supervisor": psutil.Process()}, {})
    monkeypatch.setattr(up, "running_hub", lambda _home: other)
    with pytest.raises(ConfigError, match="a hub runs already"):
        up.start_detached(settings)


def test_ctrl_c_stops_what_was_started(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub once continued to start, and ran, without a message after the prompt."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeps(_command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        started.append(REAL([sys.executable, "-c", "import time; time.sleep(600)"], **how))
        return started[0]

    def interrupted(_home: Path) -> None:
        if started:
            raise KeyboardInterrupt

    monkeypatch.setattr(up.subprocess, "Popen", sleeps)
    monkeypatch.setattr(up, "running_hub", interrupted)
    with pytest.raises(KeyboardInterrupt):
        up.start_detached(settings)
    (process,) = started
    assert process.poll() is not None


def test_the_hub_that_was_started_is_ready_when_it_says_so() -> None:
    own = psutil.Process()
    assert up.is_ready(RunningHub(True, {"supervisor": own}, {}), own.pid)
    assert not up.is_ready(RunningHub(False, {"supervisor": own}, {}), own.pid)
    assert not up.is_ready(RunningHub(True, {"server": own}, {}), own.pid)
    assert not up.is_ready(None, own.pid)
