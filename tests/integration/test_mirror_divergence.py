"""Records that a failover left at the old source: exported before they are discarded, with a signed report.
Each step that is cut off is repeated, and neither loses nor doubles a record."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until
from processes import Running, call_hub

from hub.replication.operations.divergence import settling


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        made.told |= {"HUB_HOME": str(tmp_path / "hub-home")}
        yield made


def diverged(world: World, topic: str) -> None:
    """A failover while the source has 30 records more, and 20 records of the target afterwards."""
    world.make(topic, 2)
    world.produce(topic, 100, mark="home")
    world.declare([f"{world.label}.**"])
    worker = world.start_worker()
    world.until(well)
    worker.stop()
    world.produce(topic, 30, mark="tail")
    world.hub("failover", world.name, "--name", world.name)
    world.produce(topic, 20, at="lon", mark="away")
    world.start_worker()


def lines(folder: Path) -> list[dict[str, Any]]:
    every = [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    return [each for each in every if "offset" in each]


def exported(folder: Path) -> list[bytes]:
    return sorted(base64.b64decode(each["value"]) for each in lines(folder))


TAIL = sorted(f"tail{number}".encode() for number in range(30))


@pytest.mark.timeout(300)
def test_what_is_discarded_is_exported_and_reported_through_crashes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, folder = f"{world.label}.chat", tmp_path / "lost"
    diverged(world, topic)
    with monkeypatch.context() as patched:  # killed between the files and the declaration

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(settling, "discard", killed)
        world.hub("failback", world.name, "--tail", "discard", "--export", str(folder), ok=(1, 130))
    assert exported(folder) == TAIL and not (folder / "report.json").exists()
    with monkeypatch.context() as patched:  # killed between the declaration and the report
        patched.setattr(settling, "write_report", killed)
        world.hub("resume", world.name, ok=(1, 130))
    assert exported(folder) == TAIL and not (folder / "report.json").exists()
    world.hub("resume", world.name)

    assert exported(folder) == TAIL
    first = next(each for each in lines(folder) if base64.b64decode(each["value"]) == b"tail0")
    assert (first["topic"], first["partition"], base64.b64decode(first["key"])) == (topic, 0, b"k0")
    assert first["headers"] == [["n", base64.b64encode(b"0").decode()]] and first["timestamp_ms"] > 0
    assert "lost" in first["reason"]
    proof = json.loads((folder / "report.json").read_text())
    report = proof["report"]
    assert (report["decision"], report["records"], report["offsets"]) == ("discard", 30, 30)
    assert "@" in report["by"] and report["declared_by_failover"][0]["losses"]
    for each in report["files"]:
        assert hashlib.sha256((folder / each["file"]).read_bytes()).hexdigest() == each["sha256"]
    assert sorted(value for value in world.values(topic, "lon") if value.startswith(b"tail")) == []

    verify = ["report", "verify", str(folder / "report.json")]
    assert checked(world, *verify) == 0
    other = tmp_path / "elsewhere"
    world.told["HUB_HOME"] = str(other)
    assert checked(world, *verify) == 2 and checked(world, *verify, "--trust", proof["key"]) == 0
    path = next(folder.glob("*.jsonl"))
    path.write_text(path.read_text().replace('"reason":"not', '"reason":"Not', 1))
    assert checked(world, *verify, "--trust", proof["key"]) == 1
    report["records"] = 29
    (folder / "report.json").write_text(json.dumps(proof))
    assert checked(world, *verify, "--trust", proof["key"]) == 1


def checked(world: World, *words: str) -> int:
    return call_hub(world.told, "mirror", *words).returncode


@pytest.mark.timeout(300)
def test_what_is_replayed_is_reported_after_kill_9(world: World, tmp_path: Path) -> None:
    topic, folder = f"{world.label}.chat", tmp_path / "replayed"
    diverged(world, topic)
    words = ["failback", world.name, "--tail", "replay", "--export", str(folder), "-f", str(world.path)]
    running = Running(world.told, "mirror", *words, log=tmp_path / "failback.log")
    running.start()
    wait_until(lambda: any(folder.glob("*.jsonl")), 60.0, running.last_words)
    running.kill()  # kill -9, at some moment from the first file on
    world.hub("resume", world.name)
    assert exported(folder) == TAIL
    assert json.loads((folder / "report.json").read_text())["report"]["decision"] == "replay"
    assert sorted(value for value in world.values(topic, "lon") if value.startswith(b"tail")) == TAIL
    refused = world.hub("failback", world.name, "--export", str(folder), ok=(1,))
    assert refused == ""
