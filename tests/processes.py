"""The hub's commands as processes of their own, as a user runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ports import free_pair, free_ports

from hub.cli.context import environment_of
from hub.config import Settings
from hub.runtime import die_with_parent, end, last_line


def own_settings(home: Path, project: Path | None = None, **more: Any) -> Settings:
    """Of a hub with a Kafka of its own: free ports, and the user's cache of jars."""
    kafka_port = free_pair()
    return Settings(
        home=home,
        project=project or home / "project",
        kafka_port=kafka_port,
        bootstrap=f"127.0.0.1:{kafka_port}",
        http_port=free_ports(1)[0],
        **more,
    )


class HubProcess:
    """One command that runs until it is stopped. It writes to ``log``, else to ``<command>.log`` of the settings."""

    def __init__(
        self,
        settings: Settings,
        *command: str,
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.settings, self.command = settings, command
        self.log = log or settings.logs / f"{command[0]}.log"
        self.environment = {**os.environ, **environment_of(settings), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.command} was not started"
        return self._process

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                die_with_parent([sys.executable, "-m", "hub.cli", *self.command]),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20.0)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """As a machine that stands still: it neither runs nor closes a connection."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, timeout_s: float = 20.0) -> None:
        """In an orderly way; nothing when it was never started, or has ended."""
        if self._process is not None:
            end(self._process, timeout_s)

    def last_words(self) -> str:
        return self.log.read_text()[-3000:]


class Server(HubProcess):
    """``hub serve``: it has started when it answers."""

    def __init__(
        self, settings: Settings, *, log: str = "server.log", environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(settings, "serve", log=settings.logs / log, environment=environment)
        self.url = f"http://{settings.http_host}:{settings.http_port}"

    def start(self, *, ready: bool = True) -> None:
        self.settings.project.mkdir(parents=True, exist_ok=True)
        super().start()
        if ready:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Until ``GET /health`` answers; fails with its last words when it ends or takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.1)
        pytest.fail(f"the server at {self.url} did not come up: {last_line(self.log)}\n{self.last_words()}")


@contextmanager
def running_server(settings: Settings) -> Iterator[str]:
    """The base URL of a server of its own."""
    server = Server(settings)
    try:
        server.start()
        yield server.url
    finally:
        server.stop(10.0)


def run_hub(
    settings: Settings, *arguments: str, timeout_s: float = 200.0
) -> subprocess.CompletedProcess[str]:
    """One command to its end, whatever its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "hub.cli", *arguments],
        env={**os.environ, **environment_of(settings)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
