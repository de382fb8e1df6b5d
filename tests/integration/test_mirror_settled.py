"""Failbacks that end a divergence: ``--merge`` keeps both sides' records, ``--restore`` fills home's topic.
Commands and workers are killed on the way, and every record is compared."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from mirror_world import World, own_world, well
from pipeline import wait_until
from processes import Running, Server, call_hub, own_settings

from hub.kafka import KafkaCluster
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import topics_of
from hub.replication.clusters.readers import read_control_state
from hub.replication.operations.divergence import restoring

Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture
def world(home: str, away: str, tmp_path: Path) -> Iterator[World]:
    with own_world(tmp_path / "project", home, away) as made:
        made.told |= {"HUB_HOME": str(tmp_path / "hub-home")}
        yield made


def contents(world: World, topic: str, at: str) -> dict[int, list[Content]]:
    """The committed records of each partition in order."""
    found: dict[int, list[Content]] = {}
    for record in world.records(topic, at):
        found.setdefault(record.partition, []).append((record.key, record.value, record.headers))
    return found


def marked(rows: dict[int, list[Content]], *marks: str) -> dict[int, list[Content]]:
    return {
        number: [row for row in every if (row[1] or b"").startswith(tuple(each.encode() for each in marks))]
        for number, every in rows.items()
    }


def lasts(world: World, topic: str, at: str) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in world.records(topic, at)}


def diverge(world: World, *topics: str, tail: int = 30, away: int = 20) -> None:
    """Fail over while the source has records that the target lacks, and write others at the target."""
    world.workers[-1].stop()
    for topic in topics:
        world.produce(topic, tail, mark="tail")
    world.hub("failover", world.name, "--name", world.name)
    for topic in topics:
        world.produce(topic, away, at="lon", mark="away")


def begun(world: World, *topics: str, **config: str) -> None:
    for topic in topics:
        world.make(topic, 2, **config)
        world.produce(topic, 100, mark="both")
    world.declare([f"{world.label}.**"], on_recreate="stop")
    world.start_worker()
    world.until(lambda found: well(found) and {row["topic"] for row in found["partitions"]} >= set(topics))


def done_steps(world: World) -> tuple[str, ...]:
    world.status()
    running = read_control_state(world.reached["lon"], status=False).control.running("nyc")
    return running.done if running is not None else ()


@pytest.mark.timeout(400)
def test_a_merge_keeps_both_sides_through_kill_9(world: World, tmp_path: Path) -> None:
    state, chat, folder = f"{world.label}.state", f"{world.label}.chat", tmp_path / "merged"
    world.make(state, 2, cleanup_policy="compact")
    world.produce(state, 100, mark="both")
    begun(world, chat)
    world.until(lambda found: well(found) and len(found["partitions"]) == 4)
    diverge(world, state, chat)
    plan = world.json("failback", world.name, "--merge", "--dry-run")
    counts = {topic: [0, 0, 0] for topic in (state, chat)}
    for row in plan["diverged"]:
        for at, name in enumerate(("only_home", "only_away", "superseded")):
            counts[row["topic"]][at] += row[name]
    assert {topic: (found[0], found[2]) for topic, found in counts.items()} == {
        state: (30, 20),
        chat: (30, 0),
    }
    assert all(found[1] >= 20 for found in counts.values())  # markers count, too

    words = ["failback", world.name, "--merge", "--export", str(folder), "-f", str(world.path)]
    command = Running(world.told, "mirror", *words, log=tmp_path / "failback.log")
    command.start()  # nobody carries the tail yet: it waits there
    wait_until(lambda: "stop_writers" in done_steps(world), 120.0, command.last_words)
    command.kill()
    worker = world.start_worker()
    wait_until(lambda: b"tail29" in world.values(chat, "lon"), 120.0, world.logs)
    worker.kill()
    world.start_worker()
    world.hub("resume", world.name)

    for topic in (state, chat):
        before = {number: marked(contents(world, topic, "nyc"), "both")[number] for number in (0, 1)}
        home, away = contents(world, topic, "nyc"), contents(world, topic, "lon")
        tail, since = marked(home, "tail"), marked(home, "away")
        assert sum(map(len, tail.values())) == 30 and sum(map(len, since.values())) == 20
        newer = {row[0] for rows in since.values() for row in rows} if topic == state else set()
        for number in (0, 1):  # every record once, in the stated order of each side
            kept = [row for row in tail[number] if row[0] not in newer]
            assert home[number] == [*before[number], *tail[number], *since[number]]
            assert away[number] == [*before[number], *since[number], *kept]
    assert lasts(world, state, "nyc") == lasts(world, state, "lon")
    assert lasts(world, chat, "nyc") != lasts(world, chat, "lon")  # which is why compacted topics differ

    report = json.loads((folder / "report.json").read_text())["report"]
    assert (report["decision"], report["records"], report["superseded"]) == ("merge", 60, 20)
    assert call_hub(world.told, "mirror", "report", "verify", str(folder / "report.json")).returncode == 0
    world.produce(state, 10, mark="next")  # the mirror goes on
    world.until(lambda found: well(found) and lasts(world, state, "lon")[b"k9"] == b"next9")
    assert world.status()["gaps"] == [] and lasts(world, state, "nyc") == lasts(world, state, "lon")


def abort_records(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"aborted-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"aborted%d" % number, b"k0", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)


def kill_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, run: Any) -> None:
    """Let the command die where it calls ``owner.name``."""

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        run()


@pytest.mark.timeout(400)
def test_a_restored_topic_is_the_other_sides_log_through_crashes(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat, calm, folder = f"{world.label}.chat", f"{world.label}.calm", tmp_path / "removed"
    group, place = f"{world.label}.readers", TopicPartition(chat, 0)
    begun(world, chat, calm, retention_ms="86400000")
    diverge(world, chat)
    abort_records(world.nyc, chat)
    world.clusters["lon"].publish_group(group, Positions.of([(chat, 0, 20)]))
    world.clusters["nyc"].publish_group(group, Positions.of([(chat, 0, 60)]))
    removed = marked(contents(world, chat, "nyc"), "tail")
    ids = {name: each.topic_id for name, each in topics_of(world.reached["nyc"]).items()}
    call = ["failback", world.name, "--restore"]
    plan = world.json(*call, "--dry-run")
    assert {row["topic"] for row in plan["diverged"]} == {chat} and plan["not_restorable"] == {}
    world.hub(*call, "--name", world.name, ok=(1, 2))  # no folder
    export = ["--export", str(folder)]
    world.hub(*call, *export, ok=(1, 2))  # not confirmed
    assert topics_of(world.reached["nyc"])[chat].topic_id == ids[chat]

    killed = (1, 130)
    confirmed = [*call, *export, "--name", world.name]
    kill_at(monkeypatch, KafkaCluster, "delete_topic", lambda: world.hub(*confirmed, ok=killed))
    assert contents(world, chat, "nyc").keys() == {0, 1}  # exported, and still there
    kill_at(monkeypatch, KafkaCluster, "create_topic", lambda: world.hub("resume", world.name, ok=killed))
    assert chat not in world.clusters["nyc"].topics()
    kill_at(monkeypatch, restoring, "begin_anew", lambda: world.hub("resume", world.name, ok=killed))
    command = Running(
        world.told, "mirror", "resume", world.name, "-f", str(world.path), log=tmp_path / "resume.log"
    )
    command.start()
    wait_until(lambda: "start_back" in done_steps(world), 120.0, command.last_words)
    command.kill()
    worker = world.start_worker()
    wait_until(lambda: bool(world.values(chat, "nyc")), 120.0, world.logs)
    worker.kill()
    world.start_worker()
    world.hub("resume", world.name)

    home, away = contents(world, chat, "nyc"), contents(world, chat, "lon")
    assert home == away and not any(marked(home, "tail").values())
    assert sum(map(len, marked(home, "both").values())) == 100
    assert sum(map(len, marked(home, "away").values())) == 20
    now = topics_of(world.reached["nyc"])
    assert now[chat].topic_id != ids[chat] and now[calm].topic_id == ids[calm]
    assert world.clusters["nyc"].topic_config([chat])[chat]["retention.ms"] == "86400000"
    position = world.clusters["nyc"].group_positions(group).get(place, -1)
    assert world.from_position("nyc", place, position) == world.from_position("lon", place, 20)
    check_files(folder, removed, chat)
    verified = call_hub(world.told, "mirror", "report", "verify", str(folder / "report.json"))
    assert verified.returncode == 0
    check_next_round(world, chat, tmp_path / "again")


def check_files(folder: Path, removed: dict[int, list[Content]], chat: str) -> None:
    """Every removed record is in a file; those of the aborted transaction are marked."""
    rows = [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]
    records = [row for row in rows if "offset" in row]
    states = {
        state: [row for row in records if row["transaction"] == state] for state in ("committed", "aborted")
    }
    values = sorted(base64.b64decode(row["value"]) for row in states["committed"])
    assert values == sorted(row[1] or b"" for every in removed.values() for row in every)
    assert [base64.b64decode(row["value"]) for row in states["aborted"]] == [
        b"aborted0",
        b"aborted1",
        b"aborted2",
    ]
    report = json.loads((folder / "report.json").read_text())["report"]
    (restored,) = report["restored"]
    assert (report["records"], report["aborted"], restored["topic"]) == (30, 3, chat)
    assert sum(row["after"]["records"] for row in restored["partitions"]) == 120
    assert all(row["before"]["only_home"] > 0 for row in restored["partitions"])


def check_next_round(world: World, chat: str, folder: Path) -> None:
    """The mirror goes on, and the topic can be restored once more."""
    world.produce(chat, 10, mark="next")
    world.until(lambda found: well(found) and b"next9" in world.values(chat, "lon"))
    diverge(world, chat, tail=6, away=4)
    world.start_worker()
    world.hub("failback", world.name, "--restore", "--export", str(folder), "--name", world.name)
    assert contents(world, chat, "nyc") == contents(world, chat, "lon")
    assert len(world.values(chat, "nyc")) == 134
    world.produce(chat, 10, mark="last")
    world.until(lambda found: well(found) and b"last9" in world.values(chat, "lon"))
    assert contents(world, chat, "nyc") == contents(world, chat, "lon")


@pytest.mark.timeout(300)
def test_a_restore_over_http_names_its_plan(world: World, tmp_path: Path) -> None:
    chat = f"{world.label}.chat"
    begun(world, chat)
    diverge(world, chat)
    world.start_worker()
    settings = own_settings(tmp_path / "home", world.folder).model_copy(update={"bootstrap": world.lon})
    server = Server(settings)
    server.start()
    url = f"{settings.url}/api/mirrors/{world.name}/failback"
    try:
        plan = httpx2.get(url, params={"tail": "restore"}, timeout=60).json()
        assert plan["needs_name"] and plan["digest"] and plan["plan"]["tail"] == "restore"
        assert any("made again and filled from lon" in line for line in plan["effects"])
        body: dict[str, Any] = {"tail": "restore", "plan": plan["digest"]}
        assert httpx2.post(url, json=body, timeout=60).json()["error_code"] == "HUB-1606"
        body["name"] = world.name
        stale = httpx2.post(url, json={**body, "plan": "other"}, timeout=60)
        assert (stale.status_code, stale.json()["error_code"]) == (409, "HUB-1941")
        done = httpx2.post(url, json=body, timeout=200)
        assert done.status_code == 200, done.text
    finally:
        server.stop()
    folder = Path(done.json()["export"])
    assert folder.parent == settings.home / "divergence"
    assert json.loads((folder / "report.json").read_text())["report"]["records"] == 30
    assert contents(world, chat, "nyc") == contents(world, chat, "lon")
