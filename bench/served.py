"""[edge] A server under measurement: a process with its port and cost."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil

from hub.runtime import die_with_parent
from hub.supervisor import last_line


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    memory_mb: float


class Served:
    """A registry with Confluent's API under ``prefix`` on a port of this machine. Dies with the main thread.

    ``began_at`` is the monotonic time of its process's start.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: Path,
        log: Path,
        port: int,
        prefix: str,
    ) -> None:
        self.port, self.prefix, self.log = port, prefix, log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self.began_at = time.monotonic()
            self.process = psutil.Popen(
                die_with_parent(command),
                cwd=cwd,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def path(self, *parts: object) -> str:
        """``path("subjects", "a b")`` is ``/subjects/a%20b`` below the prefix."""
        return "/".join([self.prefix, *(quote(str(part), safe="") for part in parts)])

    def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 30.0) -> tuple[int, Any]:
        """(status, JSON) of one request on a connection of its own. Raises OSError, HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            return ask(connection, method, path, body)
        finally:
            connection.close()

    def wait(self, path: str, timeout_s: float = 900.0) -> float:
        """Wait until a GET is answered with 200; return the seconds since the start of the process."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended: {last_line(self.log)}; its log: {self.log}")
            try:
                if self.ask("GET", path)[0] == 200:
                    return time.monotonic() - self.began_at
            except (OSError, http.client.HTTPException, ValueError):
                pass
            time.sleep(0.05)
        raise TimeoutError(f"no answer to {path} for {timeout_s:.0f} s; its log: {self.log}")

    def cost(self) -> Cost:
        """CPU since the start and resident memory, of the server and the processes it started."""
        return cost_of(self.process)

    def kill(self) -> None:
        """Kill the process without warning, as a power failure would."""
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except psutil.TimeoutExpired:
            self.kill()


def ask(connection: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """(status, JSON) of one request."""
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/vnd.schemaregistry.v1+json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read() or b"null")


def cost_of(process: psutil.Process) -> Cost:
    every = [process, *process.children(recursive=True)]
    times = [each.cpu_times() for each in every]
    resident = sum(each.memory_info().rss for each in every)
    return Cost(sum(each.user + each.system for each in times), resident / 2**20)
