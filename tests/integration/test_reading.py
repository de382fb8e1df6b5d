"""``hub query`` and ``hub watch`` against a real server over HTTP: what a user types, what is printed."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_ports
from processes import call_hub, run_hub
from view_server import PATIENCE_S, Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path)
    running.fill()
    yield running
    running.close()


def test_query_by_key_by_condition_and_page_by_page(server: Server) -> None:
    one = call_hub(server.told, "query", "v", "k1")
    assert one.returncode == 0 and "Oslo" in one.stdout
    row = json.loads(call_hub(server.told, "query", "v", "k2", "-o", "json").stdout)
    assert (row["key"], row["city"], row["points"]) == ("k2", "Bergen", 2)
    page = json.loads(call_hub(server.told, "query", "v", "--where", "city=Oslo", "-o", "json").stdout)
    assert [row["key"] for row in page["rows"]] == ["k1", "k3", "k5"]
    between = json.loads(
        call_hub(server.told, "query", "v", "--where", "city>=B", "--where", "city<C", "-o", "json").stdout
    )
    assert [row["key"] for row in between["rows"]] == ["k2", "k4"]
    first = call_hub(server.told, "query", "v", "--limit", "2")
    assert "k2" in first.stdout and "k3" not in first.stdout and "--start-after k2" in first.stderr
    rest = call_hub(server.told, "query", "v", "--start-after", "k4")
    assert "k5" in rest.stdout and "k4" not in rest.stdout.replace("after k4", "")


def test_query_waits_for_a_write_or_tells_how_far_it_is(server: Server) -> None:
    assert call_hub(server.told, "query", "v", "k1", "--after-write", "in:0:7").returncode == 0
    late = call_hub(server.told, "query", "v", "k1", "--after-write", "in:0:9", "--timeout-ms", "50")
    assert late.returncode == 1 and "in:0 is at 7 of 9" in late.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("vv", "k1"), 'did you mean "v"?'),
        (("v", "nobody"), "does not exist"),
        (("v", "--where", "city"), "is not a condition"),
        (("v", "--where", "cty=Oslo"), 'did you mean "city"?'),
        (("v", "k1", "--where", "city=Oslo"), "do not go together"),
    ],
)
def test_query_says_the_way_out(server: Server, arguments: tuple[str, ...], words: str) -> None:
    done = call_hub(server.told, "query", *arguments)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    told = {"HUB_HTTP_PORT": str(free_ports(1)[0]), "HUB_HOME": str(tmp_path)}
    done = run_hub(told, "query", "v", "k")
    assert done.returncode == 1 and "hub up" in done.stderr


class Watching:
    """A running ``hub watch``; its lines as they come."""

    def __init__(self, server: Server, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hub.cli", "watch", *arguments],
            env={**os.environ, **server.told}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip())

    def until(self, words: str) -> str:
        deadline = time.monotonic() + PATIENCE_S
        seen = []
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                seen.append(self.lines.get(timeout=0.2))
                if words in seen[-1]:
                    return seen[-1]
        raise AssertionError(f"{words!r} did not come; these did: {seen}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def watching(server: Server) -> Iterator[Watching]:
    running = Watching(server, "v")
    yield running
    running.end()


def test_watch_shows_field_by_field_what_changes_and_goes(server: Server, watching: Watching) -> None:
    watching.until("5 rows; waiting for changes")
    server.write("k1", 10, {"city": "Oslo", "points": 11})
    assert "~points: 1 -> 11" in watching.until("k1")
    server.write("k1", 11, {"city": None, "points": 11})
    assert "-city" in watching.until("k1")
    server.write("new", 12, {"city": "Kiel", "points": None})
    assert "+city=Kiel" in watching.until("new")
    server.write("k2", 13, None)
    assert "deleted" in watching.until("k2")


def test_watch_goes_on_where_it_was_when_the_server_comes_back(server: Server, watching: Watching) -> None:
    watching.until("5 rows; waiting for changes")
    server.stop()
    watching.until("trying again")
    server.write("k3", 20, {"city": "Rome", "points": 3})
    server.start()
    assert "~city: Oslo -> Rome" in watching.until("k3")


def test_watch_of_one_key_as_json(server: Server) -> None:
    watching = Watching(server, "v", "--key", "k4", "-o", "json")
    try:
        assert json.loads(watching.until('"k4"'))["row"]["points"] == 4
        server.write("k5", 30, {"points": 0})
        server.write("k4", 31, None)
        assert json.loads(watching.until('"k4"')) == {"key": "k4", "row": None}
    finally:
        watching.end()
