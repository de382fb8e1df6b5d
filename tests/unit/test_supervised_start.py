"""A child that does not get ready in its time: the others run, it is named, and it is tried on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import patient

from hub.cli.platform import up
from hub.config import Settings
from hub.supervisor import Child, Supervisor, running_hub

pytestmark = pytest.mark.processes

SLEEPER = "print('waiting for a broker', flush=True); import time; time.sleep(600)"
ENDS = "import sys; sys.exit('its port is taken')"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr("hub.supervisor.PROGRESS_EVERY_S", 0.1)
    made = Supervisor(tmp_path, said.append)
    yield made
    made.stop()


def child(name: str, words: str, ready: Callable[[], bool] = lambda: True, limit_s: float = 0.5) -> Child:
    return Child(name, lambda: [sys.executable, "-c", words], ready, ready_timeout_s=limit_s)


def test_what_is_waited_for_is_said_with_its_last_words(supervisor: Supervisor, said: list[str]) -> None:
    assert not supervisor.start(child("kafka", SLEEPER, lambda: False, patient(3.0)))
    progress = [line for line in said if line.startswith("  kafka")]
    assert any("starting for" in line and "waiting for a broker" in line for line in progress), said
    assert "kafka is not ready after" in said[-1] and "its log: " in said[-1]


def test_the_others_run_and_the_missing_one_is_found_when_it_is_ready(
    supervisor: Supervisor, said: list[str], tmp_path: Path
) -> None:
    ready = threading.Event()
    assert not supervisor.start(child("kafka", SLEEPER, ready.is_set))
    assert supervisor.start(child("server", SLEEPER))
    stop, seen = threading.Event(), []

    def work() -> None:
        hub = running_hub(tmp_path)
        assert hub is not None
        seen.append((hub.healthy, hub.missing))
        if len(seen) == 3:
            ready.set()
        if hub.healthy:
            stop.set()
        assert time.monotonic() < deadline

    deadline = time.monotonic() + patient(30.0)
    supervisor.run(stop, work)
    assert seen[0] == (False, ("kafka",)) and seen[-1] == (True, ())
    assert supervisor.pids().keys() == {"kafka", "server"}
    assert any(line.startswith("kafka is ready, after") for line in said)


def test_a_child_that_ends_while_it_is_waited_for_is_started_again(
    supervisor: Supervisor, said: list[str], tmp_path: Path
) -> None:
    mark = tmp_path / "second"
    first = (
        f"import pathlib, sys; p = pathlib.Path({str(mark)!r}); p.exists() or p.touch() or sys.exit('once')"
    )

    def ready() -> bool:
        return any("ended with" in line for line in said) and "applier" in supervisor.pids()

    started = supervisor.start(child("applier", f"{first}; {SLEEPER}", ready, patient(30.0)))
    assert started and any("applier ended with exit code 1 (once)" in line for line in said), said


def test_up_goes_on_without_one_and_prepares_only_when_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    ready, prepared = threading.Event(), []
    settings = Settings(home=tmp_path / "home", project=tmp_path)
    monkeypatch.setattr(
        up,
        "children",
        lambda _settings: [child("kafka", SLEEPER, ready.is_set), child("applier", SLEEPER)],
    )
    running = up.start(settings, threading.Event(), say=said.append)
    try:
        assert running.missing == {"kafka"} and running.pids().keys() == {"kafka", "applier"}
        assert said[-1].startswith("Running without kafka")
    finally:
        running.stop()
    threading.Timer(1.5, ready.set).start()
    running = up.start(settings, threading.Event(), lambda: prepared.append(ready.is_set()), said.append)
    try:
        assert (prepared, running.missing) == ([True], set())
    finally:
        running.stop()


def test_a_stop_ends_the_wait_for_what_is_missing(supervisor: Supervisor) -> None:
    stop = threading.Event()
    supervisor.start(child("kafka", SLEEPER, lambda: False), stop)
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        supervisor.wait_for_missing(stop)


def test_progress_of_a_detached_start_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "hub.log"
    log.write_bytes(b"up\n  kafka         starting for 5 s: formatting\nhalf")
    shown = up.show_progress(log, 0)
    with log.open("ab") as file:
        file.write(b" of a line\nkafka is not ready after 90 s: formatting\n")
    up.show_progress(log, shown)
    assert capsys.readouterr().err.splitlines() == [
        "  kafka         starting for 5 s: formatting",
        "kafka is not ready after 90 s: formatting",
    ]
