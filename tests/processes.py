"""The hub's commands as processes of their own, as a user runs them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from patience import patient
from ports import free_pair, free_ports

from hub.cli import main
from hub.cli.context import environment_of
from hub.config import Settings
from hub.runtime import die_with_parent
from hub.supervisor import end, last_line


def own_settings(home: Path, project: Path | None = None, **more: Any) -> Settings:
    """Return settings of a hub with a Kafka of its own: free ports, and the user's cache of jars."""
    kafka_port = free_pair()
    return Settings(
        home=home,
        project=project or home / "project",
        kafka_port=kafka_port,
        bootstrap=f"127.0.0.1:{kafka_port}",
        http_port=free_ports(1)[0],
        **more,
    )


Told = Settings | Mapping[str, str]
"""Settings for a command: the hub's settings themselves, or some of their variables."""


def variables_of(told: Told) -> Mapping[str, str]:
    return environment_of(told) if isinstance(told, Settings) else told


class Running:
    """One command that runs until it is stopped. It writes to ``log``."""

    def __init__(self, told: Told, *command: str, log: Path) -> None:
        self.command, self.log = command, log
        self.within: Sequence[str] = ()  # prefix of the command: where it runs (small_disk.py)
        self.environment = {**os.environ, **variables_of(told)}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, f"{self.command} was not started"
        return self._process

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                die_with_parent([*self.within, sys.executable, "-m", "hub.cli", *self.command]),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20.0)

    def freeze(self) -> None:
        """Stop the process as if its machine hung: it neither runs nor closes a connection."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def stop(self, timeout_s: float = 20.0) -> None:
        """In an orderly way; nothing when it was never started, or has ended."""
        if self._process is not None:
            end(self._process, timeout_s)

    def last_words(self) -> str:
        return self.log.read_text()[-3000:]


class HubProcess(Running):
    """One of a hub with these settings. It writes to ``<command>.log`` of theirs, or to ``log`` there."""

    def __init__(
        self,
        settings: Settings,
        *command: str,
        log: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        told = {**environment_of(settings), **(environment or {})}
        super().__init__(told, *command, log=settings.logs / (log or f"{command[0]}.log"))
        self.settings = settings


class Server(HubProcess):
    """``hub serve``: it has started when it answers."""

    def __init__(
        self, settings: Settings, *, log: str = "server.log", environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(settings, "serve", log=log, environment=environment)
        self.url = settings.url

    def start(self, *, ready: bool = True) -> None:
        self.settings.project.mkdir(parents=True, exist_ok=True)
        super().start()
        if ready:
            self.wait_ready()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Wait until ``GET /health`` answers. Fails with the last lines of the log when the process ends or
        takes too long.
        """
        deadline = time.monotonic() + patient(timeout_s)
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
    told: Told, *arguments: str, given: str = "", timeout_s: float = 200.0
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end as a process of its own, with any exit code.
    ``given``: its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "hub.cli", *arguments],
        env={**os.environ, **variables_of(told)},
        input=given,
        capture_output=True,
        text=True,
        timeout=patient(timeout_s),
        check=False,
    )


def call_hub(told: Told, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, because a process of its own takes a second. Suits tests of output and
    effect, not of startup and exit.
    """
    out, errors = io.StringIO(), io.StringIO()
    code: object = 0
    interrupts = signal.getsignal(signal.SIGINT)
    with ExitStack() as changed:
        changed.callback(signal.signal, signal.SIGINT, interrupts)  # main() takes them for itself
        changed.enter_context(patch.dict(os.environ, variables_of(told)))
        changed.enter_context(patch.object(sys, "stdin", io.StringIO()))
        changed.enter_context(redirect_stdout(out))
        changed.enter_context(redirect_stderr(errors))
        try:
            main([*arguments])
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())
