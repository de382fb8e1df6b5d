"""Positions outside of Kafka move to the other region: a real Spark query between two real clusters, tokens,
Kafka Connect's offsets, HTTP and the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from mirror_world import World, own_world, well
from pipeline import wait_until
from processes import Server, call_hub, own_settings

from hub.client import Hub
from hub.errors import NotFound
from hub.record import NewRecord, Record, TopicPartition

QUERY = Path(__file__).parents[1] / "moved_query.py"


@pytest.fixture(scope="module")
def world(home: str, away: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with own_world(tmp_path_factory.mktemp("positions") / "project", home, away) as made:
        made.declare([f"{made.label}.**"])
        yield made


class Query:
    """The user's query, at one cluster after the other."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.folder, self.topic = folder, topic
        self.out = folder / "out"
        self.out.mkdir(parents=True)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str, checkpoint: Path) -> None:
        words = [bootstrap, self.topic, str(checkpoint), str(self.out), str(self.folder / "home")]
        with (self.folder / "query.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(QUERY), *words], stdout=log, stderr=log, env=self.env
            )

    @property
    def env(self) -> Mapping[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(20.0)

    def log(self) -> str:
        return (self.folder / "query.log").read_text()[-3_000:]

    def result(self) -> dict[str, list[int]]:
        """Fold the files of all batches: later rows replace earlier ones."""
        found: dict[str, list[int]] = {}
        for path in sorted(self.out.glob("*.json")):
            found |= json.loads(path.read_text())
        return found

    def count(self) -> int:
        return sum(n for n, _ in self.result().values())


def fold(records: list[Record]) -> dict[str, list[int]]:
    """The plain fold: count and sum by key."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        mine = found[(record.key or b"").decode()]
        mine[0] += 1
        mine[1] += int(record.header("n") or b"0")
    return dict(found)


@pytest.mark.timeout(420)
def test_a_running_query_with_state_moves_to_the_other_region(world: World, tmp_path: Path) -> None:
    topic = f"{world.label}.orders"
    world.make(topic)
    world.produce(topic, 150)
    world.start_worker()
    query, old, new = Query(tmp_path / "query", topic), tmp_path / "nyc", tmp_path / "lon"
    query.start(world.nyc, old)
    wait_until(lambda: query.count() >= 80, 90.0, query.log)
    world.produce(topic, 150, mark="s")
    query.kill()  # in the middle of its work
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    last = max(int(path.name) for path in (old / "offsets").iterdir() if path.name.isdecimal())
    (old / "commits" / str(last)).unlink(missing_ok=True)  # the batch was done, and its commit was not
    before = {path: text for path, text in before.items() if path.exists()}
    world.until(well)

    refused = call_hub(world.told, "mirror", "translate", world.name, "--spark-checkpoint", str(old), "--to",
                       str(new), "-f", str(world.path))  # fmt: skip
    assert refused.returncode != 0 and f"batch {last} was begun and not committed" in refused.stderr
    done = world.json("translate", world.name, "--spark-checkpoint", str(old), "--to", str(new),
                      "--in-flight", "repeat")  # fmt: skip
    assert done["repeated"] == last and {each["precision"] for each in done["positions"]} <= {"exact", "next"}
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before

    world.produce(topic, 100, mark="t")
    world.until(well)
    query.start(world.lon, new)
    wait_until(lambda: query.count() >= 400, 120.0, query.log)
    query.kill()
    assert query.result() == fold(world.records(topic, "nyc"))  # nothing lost, nothing twice


@pytest.mark.timeout(300)
def test_positions_are_translated_exactly_there_and_back(world: World, tmp_path: Path) -> None:
    topic = f"{world.label}.chat"
    world.make(topic)
    for number in range(3):  # transactions of the mirror: its markers are in the copy
        world.produce(topic, 20, mark=f"m{number}-")
        if not world.workers:
            world.start_worker()
        world.caught_up({topic: 20 * (number + 1)})
    here, there = world.records(topic, "nyc"), world.records(topic, "lon")
    pairs = {(a.partition, a.offset): b.offset for a, b in zip(here, there, strict=True)}
    path = tmp_path / "tokens"
    path.write_text("".join(f"{topic}:{partition}:{offset}\n" for partition, offset in pairs))
    translated = [f"{topic}:{partition}:{offset}" for (partition, _), offset in pairs.items()]
    assert world.hub("translate", world.name, "--lines", str(path)).split() == translated
    path.write_text("\n".join(translated))
    returned = world.hub("translate", world.name, "--back", "--lines", str(path)).split()
    assert returned == [f"{topic}:{partition}:{offset}" for partition, offset in pairs]

    ends = {number: (world.end(topic, number), world.end(topic, number, "lon")) for number in (0, 1)}
    for number, (end, copy_end) in ends.items():
        (row,) = world.json("translate", world.name, f"{topic}:{number}:{end}")
        assert (
            row["precision"] == "exact"
            and world.from_position("lon", TopicPartition(topic, number), row["translated"]) == []
        )
        # A reader at the end of the copy is behind the mirror's marker.
        (back,) = world.json("translate", world.name, "--back", f"{topic}:{number}:{copy_end}")
        assert (back["precision"], back["translated"]) == ("exact", end)
        (late,) = world.json(
            "translate", world.name, "--topic", topic, "--partition", str(number), str(end + 5), ok=[1]
        )
        assert (late["precision"], late["translated"]) == ("unknown", None) and "past the end" in late["why"]
    (none,) = world.json("translate", world.name, "lon.none:0:1", ok=[1])
    assert none["precision"] == "unknown"


@pytest.mark.timeout(300)
def test_offsets_of_connectors_are_written_at_the_other_side(world: World) -> None:
    topic, offsets = f"{world.label}.lines", f"connect-offsets-{world.label}"
    world.make(topic)
    world.make(offsets, partitions=3)
    world.produce(topic, 20)
    if not world.workers:
        world.start_worker()
    world.caught_up({topic: 20})
    key = json.dumps(["copier", {"topic": topic, "partition": 1}]).encode()
    writer = world.clusters["nyc"].writer()
    other = NewRecord(offsets, b'["crm",{"server":"x"}]', b'{"lsn":9}', partition=0)
    writer.append([NewRecord(offsets, key, b'{"offset":4}', partition=2), other])
    writer.close()
    plan = world.json("translate", world.name, "--connect-offsets", offsets)
    assert {each["connector"]: each["outcome"] for each in plan["offsets"]} == {
        "copier": "translated",
        "crm": "copied",
    }
    assert plan["written"] is None
    world.make(offsets, partitions=1, at="lon")
    apply = ["translate", world.name, "--connect-offsets", offsets, "--apply", plan["digest"]]
    assert (
        call_hub(world.told, "mirror", *apply, "-f", str(world.path)).returncode != 0
    )  # Connect would not find them
    world.delete(offsets, "lon")
    wait_until(lambda: offsets not in world.clusters["lon"].topics(), 20.0)
    world.make(offsets, partitions=3, at="lon")
    assert world.json(*apply)["written"] == 2
    assert world.json(*apply)["written"] == 0  # again after a crash
    fourth = next(each for each in world.records(topic, "lon") if each.partition == 1 and each.value == b"r9")
    written = {each.key: (each.partition, each.value) for each in world.records(offsets, "lon")}
    assert written[key] == (2, b'{"offset":%d}' % fourth.offset)


@pytest.mark.timeout(300)
def test_programs_translate_over_http(world: World, tmp_path: Path) -> None:
    topic = f"{world.label}.words"
    world.make(topic)
    world.produce(topic, 20)
    if not world.workers:
        world.start_worker()
    world.caught_up({topic: 20})
    settings = own_settings(tmp_path / "home", world.folder).model_copy(update={"bootstrap": world.lon})
    server = Server(settings)
    server.start()
    try:
        with Hub(settings.url, timeout_s=60.0) as hub:
            found = hub.translate(world.name, topic, 0, 3)
            there = next(
                each for each in world.records(topic, "lon") if each.partition == 0 and each.value == b"r6"
            )
            assert (found.offset, found.precision) == (there.offset, "exact")
            assert hub.translate(world.name, topic, 0, there.offset, back=True).offset == 3
            assert hub.translate(world.name, topic, 0, 99).offset is None
            world.produce(topic, 20, mark="more")
            world.caught_up({topic: 40})
            assert hub.translate(world.name, topic, 0, 20).precision == "exact"  # maps are read on
            with pytest.raises(NotFound):
                hub.translate("none", topic, 0, 3)
    finally:
        server.stop()
