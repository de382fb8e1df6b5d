"""The tutorial on a lost region works line by line, with other ports: a region is killed, served by the other
one, and returns with a report."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import patient
from ports import free_pair, free_ports

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorials/lose-a-region.md"
Run = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def text() -> str:
    """Return the tutorial with free ports in place of the usual ones."""
    found = TUTORIAL.read_text()
    (nyc, lon), first, second = free_ports(2), free_pair(), free_pair()
    for port, free in zip(("8088", "9092", "8089", "9192"), (nyc, first, lon, second), strict=True):
        found = found.replace(f":{port}", f":{free}").replace(f"port {port}", f"port {free}")
    return found.replace(".hub-nyc up", f".hub-nyc up --port {nyc} --kafka-port {first}")


@pytest.fixture
def run(tmp_path: Path, text: str) -> Iterator[Run]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("HUB_")}
    own |= {"PATH": f"{Path(sys.executable).parent}:{own['PATH']}", "PYTHONPATH": str(ROOT)}

    def one(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=own,
            capture_output=True,
            text=True,
            timeout=patient(200),
            check=False,
        )

    yield one
    for name in ("lon", "nyc"):
        one(f"hub --home .hub-{name} down")


def lines_of(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.replace("./run hub", "hub") for block in blocks for line in block.splitlines()]


def mirrored(run: Run) -> None:
    """Wait until the copy has both records."""
    deadline = time.monotonic() + patient(60)
    while time.monotonic() < deadline:
        done = run("hub mirror status nyc-lon -f lon/mirrors.yaml -o json")
        if done.returncode == 0:
            (found,) = json.loads(done.stdout)
            if sum(row["source_next"] or 0 for row in found["partitions"]) == 2:
                return
    pytest.fail(f"{done.stdout}\n{done.stderr}")


@pytest.mark.timeout(600)
def test_a_region_is_lost_and_returns_line_by_line(run: Run, text: str, tmp_path: Path) -> None:
    files = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    said: dict[str, str] = {}
    for line in lines_of(text):
        done = run(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        if line.startswith("mkdir"):
            for name, body in files:
                (tmp_path / name).write_text(body)
        if line.startswith("curl"):
            assert '"error_code":200' in done.stdout, done.stdout
        if "monday 2" in line:
            mirrored(run)
        words = re.search(r"mirror (\S+)", line)
        if words is not None:
            said[words.group(1)] = done.stdout + done.stderr
        if "kill -9" in line:  # Kafka ends with the process that started it
            wait_for_silence(text)
    assert "Lost: unknown, at least 2 offsets. nyc does not answer" in said["failover"]
    assert "Only nyc has these 2 offsets; 2 records are shown." in said["left-behind"]
    assert "tuesday 1" in said["left-behind"] and "nyc serves the topics of nyc now" in said["failback"]
    assert "discard" in said["report"] and "mirroring" in said["status"]
    assert said["rehearse"].count("passed") >= 3 and "weekly, Tue 03:00 UTC" in said["rehearse"]
    lost = b"".join(path.read_bytes() for path in (tmp_path / "lost").glob("*.jsonl"))
    assert lost.count(b'"offset"') >= 2


def wait_for_silence(text: str) -> None:
    """Wait until Kafka of the killed region does not accept connections."""
    found = re.search(r"nyc: \{bootstrap: \"127.0.0.1:(\d+)", text)
    assert found is not None
    deadline = time.monotonic() + patient(30)
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", int(found.group(1))), 1.0).close()
        except OSError:
            return
    pytest.fail("Kafka of nyc still runs")
