"""Mirrors into and out of clusters with authentication and access rules: every mechanism, and missing
rights."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka_nodes import own_node
from mirror_world import World, own_world, well
from pipeline import wait_until
from secured_node import PASSWORD, Right, SecuredNode, Way, give, take, tokens

from hub.errors import PeerError
from hub.kafka.log_dirs import log_dirs, log_sizes
from hub.record import NewRecord, Positions
from hub.replication.clusters.clusters import reach
from hub.replication.config.load_mirrors import load

# As docs/reference/mirrors.md lists them.
AT_SOURCE: tuple[Right, ...] = (
    ("TOPIC", "nyc.*", "READ", "ALLOW"),
    ("TOPIC", "nyc.*", "DESCRIBE_CONFIGS", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "CREATE", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "READ", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "WRITE", "ALLOW"),
    ("GROUP", "*", "DESCRIBE", "ALLOW"),
    ("BROKER", "kafka-cluster", "DESCRIBE", "ALLOW"),
)
AT_TARGET: tuple[Right, ...] = (
    ("TOPIC", "nyc.*", "CREATE", "ALLOW"),
    ("TOPIC", "nyc.*", "READ", "ALLOW"),
    ("TOPIC", "nyc.*", "WRITE", "ALLOW"),
    ("TOPIC", "nyc.*", "ALTER", "ALLOW"),
    ("TOPIC", "nyc.*", "ALTER_CONFIGS", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "CREATE", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "READ", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "WRITE", "ALLOW"),
    ("TOPIC", "_hub.mirror.*", "DESCRIBE_CONFIGS", "ALLOW"),
    ("GROUP", "*", "READ", "ALLOW"),
    ("TRANSACTIONAL_ID", "hub.mirror.*", "WRITE", "ALLOW"),
    ("BROKER", "kafka-cluster", "DESCRIBE", "ALLOW"),
    ("BROKER", "kafka-cluster", "ALTER", "ALLOW"),
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, SecuredNode]]:
    with (
        own_node(tmp_path_factory.mktemp("nyc"), SecuredNode) as nyc,
        own_node(tmp_path_factory.mktemp("lon"), SecuredNode) as lon,
    ):
        found = {"nyc": nyc, "lon": lon}
        for name, rights in (("nyc", AT_SOURCE), ("lon", AT_TARGET)):
            found[name].make_users()
            give(found[name].bootstrap, rights)
        yield found


@pytest.fixture(scope="module")
def token_url() -> Iterator[str]:
    with tokens() as url:
        yield url


@pytest.fixture
def world(sides: dict[str, SecuredNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The test itself comes in by the open listener, the mirror by the others."""
    monkeypatch.setenv("MIRROR_PASSWORD", PASSWORD)
    with own_world(tmp_path / "project", sides["nyc"].bootstrap, sides["lon"].bootstrap) as made:
        yield made


def declare(
    world: World, sides: Mapping[str, SecuredNode], ways: tuple[Way, Way], token_url: str, **more: Any
) -> None:
    world.declare([f"{world.label}.**"], **more)
    body = json.loads(world.path.read_text())
    for (name, each), way in zip(sides.items(), ways, strict=True):
        body["clusters"][name] |= each.access(way, token_url)
    world.path.write_text(json.dumps(body))


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "ways",
    [
        ("TLS", "PLAIN"),
        ("PLAIN", "OAUTHBEARER"),
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        ("SCRAM-SHA-512", "SCRAM-SHA-256"),
        ("OAUTHBEARER", "TLS"),
    ],
    ids=" to ".join,
)
def test_every_way_in_on_either_side(
    world: World, sides: dict[str, SecuredNode], token_url: str, ways: tuple[Way, Way]
) -> None:
    """Whole batches, tiny ones that are re-encoded, records that a rule changes; groups; and all commands."""
    dense, tiny, masked = (f"{world.label}.{name}" for name in ("dense", "tiny", "masked"))
    group = f"{world.label}.readers"
    for topic in (dense, tiny, masked):
        world.make(topic)
    world.produce(dense, 2_000)
    for number in range(6):
        world.produce(tiny, 2, mark=f"{number}-")
    writer = world.clusters["nyc"].writer()
    writer.append([_json(masked, number) for number in range(20)])
    writer.close()
    world.clusters["nyc"].publish_group(group, Positions.of([(dense, 0, 700), (tiny, 1, 3)]))
    mask = [{"topics": [masked], "fields": ["email"], "with": "redact"}]
    declare(world, sides, ways, token_url, mask=mask)
    (planned,) = world.json("plan", ok=(2,))
    assert planned["refusals"] == [] and len(planned["topics"]) == 3
    _, remarks = world.process("apply")
    assert "! Other applies at lon are not kept apart from this one: " in remarks  # no right on the lock
    world.start_worker()
    world.caught_up({dense: 2_000, tiny: 12, masked: 20})
    found = world.until(lambda each: well(each) and len(each["groups"]) == 1)
    engines = {row["topic"]: row["engine"] for row in found["partitions"]}
    assert "batch" in engines[dense] and engines[masked] == "record"
    for topic in (dense, tiny):
        assert world.values(topic, "lon") == world.values(topic, "nyc")
    assert {json.loads(value)["email"] for value in world.values(masked, "lon")} == {"***"}
    wanted = Positions.of([(dense, 0, 700), (tiny, 1, 3)])
    wait_until(
        lambda: world.clusters["lon"].group_positions(group) == wanted,
        60.0,
        lambda: str(world.clusters["lon"].group_positions(group)),
    )
    verdict = world.json("verify", world.name)
    assert (verdict["equal"], verdict["different"], verdict["not_compared"]) == (6, 0, 0)
    assert world.json("status", world.name)[0]["state"] == "mirroring"
    assert world.json("drill", world.name)["lost"] == 0


@pytest.mark.parametrize("way", ["TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_folders_and_sizes_are_told_over_every_way_in(
    world: World, sides: dict[str, SecuredNode], token_url: str, way: Way
) -> None:
    """A broker's folders are asked for with the credentials of everything else."""
    topic = f"{world.label}.sized"
    world.make(topic)
    world.produce(topic, 500)
    declare(world, sides, (way, "TLS"), token_url)
    kafka = reach(load(world.path), "nyc", os.environ, world.folder).kafka
    ((broker, where),) = kafka.brokers().items()
    (folder,) = log_dirs(*where, 20.0, kafka.socket_to)
    assert folder.bytes is not None and folder.total_bytes is not None and not folder.error
    sizes = log_sizes({broker: where}, topic, [0, 1], 20.0, kafka.socket_to)
    assert all(sizes[partition][broker] > 0 for partition in (0, 1))
    with pytest.raises(PeerError, match="does not report its log folders"):
        log_dirs(*where, 5.0)  # over a plain connection


def test_who_may_not_ask_for_folders_is_told_which_right_is_missing(
    world: World, sides: dict[str, SecuredNode], token_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(world, sides, ("SCRAM-SHA-512", "TLS"), token_url)
    kafka = reach(load(world.path), "nyc", os.environ, world.folder).kafka
    ((broker, where),) = kafka.brokers().items()
    right = AT_SOURCE[-1]
    take(sides["nyc"].bootstrap, [right])
    try:

        def refused() -> str:
            try:
                log_dirs(*where, 20.0, kafka.socket_to)
            except PeerError as error:
                return f"{error.message} {error.hint}"
            return ""

        wait_until(lambda: "may not Describe the cluster" in refused(), 60.0, refused)
        with pytest.raises(PeerError, match="may not Describe the cluster"):
            log_sizes({broker: where}, f"{world.label}.any", [0], 20.0, kafka.socket_to)
    finally:
        give(sides["nyc"].bootstrap, [right])
    monkeypatch.setenv("MIRROR_PASSWORD", "wrong")
    stranger = reach(load(world.path), "nyc", os.environ, world.folder).kafka
    with pytest.raises(PeerError, match="does not let us in"):
        log_dirs(*where, 20.0, stranger.socket_to)


def test_who_does_not_get_in_is_told_which_cluster_and_why(
    world: World, sides: dict[str, SecuredNode], token_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", "wrong")
    declare(world, sides, ("SCRAM-SHA-256", "OAUTHBEARER"), token_url)
    reached = {name: reach(load(world.path), name, os.environ, world.folder, 1.5) for name in ("nyc", "lon")}
    token = reached["lon"].access.token
    assert token is not None
    with pytest.raises(PeerError, match=r"gives no token.*401") as gone:
        token()
    assert "client_secret" in (gone.value.hint or "")
    assert PASSWORD not in repr(reached) and "wrong" not in repr(reached)
    for name in ("nyc", "lon"):
        with pytest.raises(PeerError):
            reached[name].kafka.topics()
        with pytest.raises(PeerError):
            reached[name].kafka.group_positions("any")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("side", "right", "said"),
    [
        ("nyc", "READ", "in the source"),
        ("nyc", "DESCRIBE_CONFIGS", "its settings cannot be read at the source"),
        ("lon", "WRITE", "in the target"),
    ],
)
def test_a_right_that_is_missing_stops_its_topic_and_no_other(
    world: World, sides: dict[str, SecuredNode], token_url: str, side: str, right: str, said: str
) -> None:
    """After the failback, nothing is missing and nothing is there twice."""
    closed, open_ = f"{world.label}.closed", f"{world.label}.open"
    for topic in (closed, open_):
        world.make(topic)
        world.produce(topic, 100)
    declare(world, sides, ("PLAIN", "PLAIN"), token_url, shards=1)  # both of one shard
    world.start_worker()
    world.caught_up({closed: 100, open_: 100})
    denied: tuple[Right, ...] = (("TOPIC", closed, right, "DENY"),)

    def told(found: Mapping[str, Any]) -> bool:
        reasons = [row["reason"] for row in found["partitions"] if row["topic"] == closed]
        reasons.append(found["trouble"].get(closed, ""))
        return not found["ok"] and any(said in each for each in reasons)

    give(sides[side].bootstrap, denied)
    try:
        if right != "WRITE":  # of which nobody is notified until something is to be written
            world.until(told)
        for topic in (closed, open_):
            world.produce(topic, 100, mark="more")
        world.caught_up({open_: 200})
        found = world.until(told)
        words = json.dumps(found["trouble"]) + "".join(row["reason"] for row in found["partitions"])
        assert "let the mirror's user" in words
        if right != "DESCRIBE_CONFIGS":  # which only the next plan asks for
            assert len(world.values(closed, "lon")) == 100
        world.produce(open_, 50, mark="still")
        world.caught_up({open_: 250})
    finally:
        take(sides[side].bootstrap, denied)
    world.process("resume", world.name)
    world.caught_up({closed: 200, open_: 250})
    world.until(well)
    for topic in (closed, open_):
        assert world.values(topic, "lon") == world.values(topic, "nyc")


def _json(topic: str, number: int) -> NewRecord:
    return NewRecord(topic, b"k", json.dumps({"email": f"u{number}@x"}).encode(), partition=number % 2)
