"""Ctrl-C while ``hub demo`` and ``hub up`` start: the first one ends them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.cli.platform import demo, up
from hub.config import Settings
from hub.demo.customers import DemoEvent
from hub.errors import HubFault
from hub.log import MemoryCluster
from hub.supervisor import Child, Supervisor, check_unused


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Signal handlers, restored at the end."""
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(name) for name in names]
    yield
    for name, handler in zip(names, before, strict=True):
        signal.signal(name, handler)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A machine that lacks nothing."""
    for name in ("check_machine", "check_kafka", "fetch_jars"):
        monkeypatch.setattr(up, name, lambda _settings: None)
    made = Settings(home=tmp_path / "home", project=tmp_path)
    monkeypatch.setattr(demo, "load_settings", lambda **_flags: made)
    monkeypatch.setattr(up, "load_settings", lambda **_flags: made)
    return made


class Cluster(MemoryCluster):
    timeout_s = 5.0


class Published:
    """Records that the demo's publisher received."""

    def __init__(self, *_clients: Any, **_how: Any) -> None:
        self.sent: list[str] = []
        self.flushed = 0

    def send(self, _topic: str, key: str, *_event: Any) -> None:
        self.sent.append(key)

    def flush(self) -> None:
        self.flushed = len(self.sent)


def test_the_first_ctrl_c_ends_the_loading(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C took effect when everything was loaded: minutes later for a year of flights."""
    cluster, publisher = Cluster(), Published()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)

    def events() -> Iterator[DemoEvent]:
        for number in range(1_000):
            if number == 10:
                os.kill(os.getpid(), signal.SIGINT)
            yield DemoEvent("t", f"k{number}", {}, 0)

    def feed(fed: Any, stop: threading.Event) -> Iterator[None]:
        demo.load_events(fed, events(), 1_000, "Loading", stop)
        yield

    monkeypatch.setattr(up, "start", lambda *_, **_how: Supervisor(settings.home))
    monkeypatch.setattr(demo, "_connect", lambda _settings: (cluster, None))
    monkeypatch.setattr("hub.topics.gateway.producer.Publisher", lambda *_, **_how: publisher)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo("customer-360", "v", ["t"], feed, None, None, "")
    assert publisher.sent == [f"k{number}" for number in range(10)] and publisher.flushed == 10
    check_unused(settings.home)  # or it would still be held
    said = capsys.readouterr()
    assert "the next start continues from there" in said.err and said.out == ""


def test_a_demo_that_is_stopped_before_its_first_row_does_not_greet(settings: Settings) -> None:
    stop = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        demo.await_first_row(settings, "v", stop, stop.set)


@pytest.mark.parametrize(
    "command", [up.up, lambda: demo.run_demo("flights", "v", [], feed_none, None, None, "")]
)
def test_ctrl_c_ends_what_is_fetched_before_anything_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    """Ctrl-C was noted for later, while hundreds of megabytes were loading."""
    fetched: list[str] = []

    def fetches(_settings: Settings) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        fetched.append("all")

    monkeypatch.setattr(up, "fetch_jars", fetches)
    with pytest.raises(KeyboardInterrupt):
        command(detach=False) if command is up.up else command()
    assert fetched == [] and not (settings.home / "hub.pid").exists()


def feed_none(_fed: Any, _stop: threading.Event) -> Iterator[None]:
    yield


def test_a_program_that_ctrl_c_took_along_is_no_failure(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal's Ctrl-C reaches all of its programs: the error then was that Kafka's folder "cannot be
    formatted"."""
    stop = threading.Event()

    def fails() -> list[str]:
        raise HubFault("Kafka's folder cannot be formatted")

    def interrupted() -> list[str]:
        stop.set()
        return fails()

    monkeypatch.setattr(up, "children", lambda _settings: [Child("kafka", fails)])
    with pytest.raises(HubFault):
        up.start(settings, stop)
    monkeypatch.setattr(up, "children", lambda _settings: [Child("kafka", interrupted)])
    with pytest.raises(KeyboardInterrupt):
        up.start(settings, stop)
