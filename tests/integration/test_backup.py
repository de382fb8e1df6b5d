"""Backup and restore between two real Kafkas with registries:
whole, in parts, killed, from S3, encrypted, damaged."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from kafka_nodes import own_node
from patience import patient
from pipeline import records_of, wait_until
from ports import free_ports
from processes import HubProcess, Server, call_hub
from s3_server import s3_server

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.kafka.acls import AccessRule
from hub.record import NewRecord, Positions, Record, TopicPartition
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.client.remote import RemoteRegistry
from hub.schema_registry.model.facts import Reference

KEY = "00112233445566778899aabbccddeeff" * 2
CITY = json.dumps({"type": "record", "name": "City", "fields": [{"name": "n", "type": "string"}]})
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "int"}, {"name": "city", "type": "City"}],
    }
)


RULES = (
    AccessRule("bk.", "PREFIXED", "User:ana", "*", "READ", "ALLOW"),
    AccessRule("bk.orders", "LITERAL", "User:eve", "*", "READ", "DENY"),
    AccessRule("billing", "LITERAL", "User:ana", "*", "READ", "ALLOW", "GROUP"),
)


@dataclass
class Side:
    """One cluster with its server."""

    settings: Settings
    kafka: KafkaCluster
    server: Server

    def hub(self, *arguments: str, ok: int = 0) -> Any:
        """Run a command in this process; return its JSON, or its standard error if it fails."""
        done = call_hub(self.settings, *arguments, *(["-o", "json"] if ok == 0 else []))
        assert done.returncode == ok, done
        return json.loads(done.stdout) if ok == 0 else done.stderr

    def records(self, topic: str) -> list[list[Record]]:
        """Return the committed records by partition."""
        found: list[list[Record]] = [[] for _ in range(self.kafka.partition_counts([topic])[topic])]
        for record in records_of(self.kafka, topic):
            found[record.partition].append(record)
        return found


class GuardedNode(KafkaNode):
    """A node with access rules, whose open listener is the administrator's."""

    def prepare(self) -> list[str]:
        command = super().prepare()
        with (self.folder / "server.properties").open("a") as file:
            file.write("\nauthorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n")
            file.write("super.users=User:ANONYMOUS\n")
        return command


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    homes = [tmp_path_factory.mktemp(name) for name in ("source", "target")]
    with own_node(homes[0], GuardedNode) as one, own_node(homes[1], GuardedNode) as two:
        made = []
        for home, node in zip(homes, (one, two), strict=True):
            settings = Settings(
                home=home,
                project=home,
                bootstrap=node.bootstrap,
                http_port=free_ports(1)[0],
                embedded_kafka=False,
                kafka_port=node.port,
            )
            made.append(Side(settings, KafkaCluster(node.bootstrap), Server(settings)))
        try:
            for side in made:
                side.server.start(ready=False)
            for side in made:
                side.server.wait_ready()
            fill(made[0])
            yield made[0], made[1]
        finally:
            for side in made:
                side.server.stop(10.0)


def fill(source: Side) -> None:
    """Topics with holes by aborted transactions, a deleted beginning, odd records; schemas;
    groups; a view."""
    kafka = source.kafka
    kafka.create_topic("bk.orders", partitions=3, config={"retention.ms": "-1"}, replication_factor=1)
    kafka.create_topic("bk.states", partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1)
    kafka.create_topic("bk.empty", partitions=2, config={}, replication_factor=1)
    kafka.create_topic("views.orders", partitions=1, config={}, replication_factor=1)
    kafka.add_rules(RULES)
    registry = RegistryClient(source.server.url, patient(15.0))
    registry.register("city", CITY)
    registry.register("bk.orders-value", ORDER, "AVRO", [Reference("City", "city", 1)])
    remote = RemoteRegistry(source.server.url)
    remote.set_settings("bk.orders-value", {"compatibility": "FULL"})
    remote.close()
    write(source, range(300), 1_000_000)
    abort(source)
    write(source, range(300, 600), 2_000_000)
    writer = kafka.writer()
    odd = [
        NewRecord("bk.orders", None, None, (("h", b"1"), ("h", None)), 5, 0),
        NewRecord("bk.states", b"", b"", (("leer", b""),), 6, 0),
        *(NewRecord("bk.states", b"k%d" % n, b"v", (), 7 + n, 0) for n in range(40)),
    ]
    writer.append(odd)
    writer.append([NewRecord("views.orders", b"k", b"v", (), 1, 0)])
    writer.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for deleted in admin.delete_records([KafkaTopicPartition("bk.orders", 2, 10)]).values():
        deleted.result(30)
    kafka.publish_group(
        "billing", Positions.of([("bk.orders", 0, 50), ("bk.orders", 1, 104), ("bk.empty", 0, 0)])
    )
    views = source.settings.project / "views"
    views.mkdir(exist_ok=True)
    (views / "orders.yaml").write_text("# a definition\n")


def write(source: Side, numbers: range, at_ms: int) -> None:
    """Write numbered records in transactions, in turns to the three partitions; times go up by one."""
    writer = source.kafka.writer("filler")
    for first in range(numbers.start, numbers.stop, 100):
        some = range(first, min(first + 100, numbers.stop))
        writer.append(
            [
                NewRecord("bk.orders", b"%d" % n, b"value %d" % n, (("n", b"%d" % n),), at_ms + n, n % 3)
                for n in some
            ]
        )
    writer.close()


def abort(source: Side) -> None:
    producer = Producer({"bootstrap.servers": source.kafka.bootstrap, "transactional.id": "aborter"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("bk.orders", b"aborted", b"never", partition=number % 3)
    producer.flush(30)
    producer.abort_transaction(30)


def contents(records: list[list[Record]]) -> list[list[tuple[Any, ...]]]:
    return [[(r.timestamp_ms, r.key, r.value, r.headers) for r in each] for each in records]


@pytest.mark.timeout(600)
def test_a_backup_is_restored_whole_and_a_second_run_adds_what_is_new(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    source, target = sides
    place = str(tmp_path / "backup")
    first = source.hub("backup", "--to", place)
    assert (first["run"], first["new_records"], first["groups"]) == (1, 600 - 10 + 42 + 1, 1)
    assert source.hub("backup", "--to", place)["new_records"] == 0
    assert "HUB-1400" in source.hub("backup", "--to", place, "nothing.**", ok=1)
    (row,) = [each for each in source.hub("backup", "ls", "--from", place) if each["run"] == 2]
    assert (row["state"], row["topics"], row["schemas"]) == ("complete", 4, 2)

    done = target.hub("restore", "--from", place, "--definitions-to", str(tmp_path / "project"))
    assert (done["records"], done["groups"], done["files"]) == (632, 1, 1)
    assert (done["access_rules"], target.kafka.all_rules()) == (3, frozenset(RULES))
    assert (tmp_path / "project/views/orders.yaml").read_text() == "# a definition\n"
    assert "views.orders" not in target.kafka.topics()
    for topic in ("bk.orders", "bk.states", "bk.empty"):
        assert contents(target.records(topic)) == contents(source.records(topic))
    assert target.kafka.topic_config(["bk.states"])["bk.states"] == {"cleanup.policy": "compact"}
    ids = [
        {(s, v.version, v.schema_id, v.text) for s, v in RemoteRegistry(side.server.url).every()}
        for side in sides
    ]
    assert ids[0] == ids[1]
    assert RemoteRegistry(target.server.url).own_settings("bk.orders-value")["compatibilityLevel"] == "FULL"
    unread = [rest(side, "billing", "bk.orders") for side in sides]
    assert unread[0] == unread[1]
    assert target.kafka.group_positions("billing").get(TopicPartition("bk.empty", 0), -1) == 0

    write(source, range(600, 700), 3_000_000)
    assert source.hub("backup", "--to", place)["new_records"] == 100
    assert target.hub("restore", "--from", place)["records"] == 100
    assert contents(target.records("bk.orders")) == contents(source.records("bk.orders"))
    assert target.hub("restore", "--from", place)["records"] == 0

    until = "1970-01-01T00:33:20.400Z"  # 2,000,400 ms: within the second write
    target.hub("restore", "--from", place, "--until", until, "--prefix", "pit.", "bk.orders")
    wanted = [
        list(itertools.takewhile(lambda each: each[0] <= 2_000_400, part))
        for part in contents(source.records("bk.orders"))
    ]
    assert contents(target.records("pit.bk.orders")) == wanted
    assert sum(map(len, wanted)) == 401 - 10

    writer = target.kafka.writer()
    target.kafka.create_topic("taken.bk.orders", partitions=3, config={}, replication_factor=1)
    writer.append([NewRecord("taken.bk.orders", b"mine", b"mine", (), None, 0)])
    writer.close()
    said = target.hub("restore", "--from", place, "--prefix", "taken.", ok=1)
    assert "HUB-1806" in said and "taken.bk.orders" in said and "--prefix" in said
    assert "taken.bk.states" not in target.kafka.topics()


def rest(side: Side, group: str, topic: str) -> list[list[bytes | None]]:
    """Return what a group has yet to read."""
    positions = side.kafka.group_positions(group)
    return [
        [each.value for each in part if each.offset >= positions.get(TopicPartition(topic, number), 1 << 60)]
        for number, part in enumerate(side.records(topic))
    ]


@pytest.mark.timeout(600)
def test_killed_runs_and_restores_go_on_and_every_record_is_there_once(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    source, target = sides
    place = tmp_path / "backup"
    source.kafka.create_topic("big.blobs", partitions=4, config={}, replication_factor=1)
    writer = source.kafka.writer()
    chance = random.Random(7)
    for first in range(0, 2_000, 100):
        writer.append(
            [
                NewRecord("big.blobs", b"%d" % n, chance.randbytes(100_000), (), n, n % 4)
                for n in range(first, first + 100)
            ]
        )
    writer.close()

    run = HubProcess(
        source.settings, "backup", "run", "--to", str(place), "--no-schemas", "big.**", log="run.log"
    )
    run.start()
    wait_until(lambda: len(list(place.glob("segments/*/*/*/0*"))) >= 2, 60.0)
    run.kill()
    assert not list(place.glob("manifests/*"))
    done = source.hub("backup", "run", "--to", str(place), "--no-schemas", "big.**")
    assert done["resumed"] and done["total_records"] == 2_000
    report = source.hub("backup", "verify", "--from", str(place))
    assert (report["records"], report["wrong"]) == (2_000, 0)
    named = {segment for segment in place.glob("segments/**/0*") if segment.is_file()}
    assert len(named) == report["segments"], "a killed run left segments behind"

    for _ in range(2):
        back = HubProcess(target.settings, "restore", "--from", str(place), log="restore.log")
        before = written(target, "big.blobs")
        back.start()
        wait_until(lambda before=before: written(target, "big.blobs") > before, 60.0)  # type: ignore[misc]
        back.kill()
    target.hub("restore", "--from", str(place))
    assert contents(target.records("big.blobs")) == contents(source.records("big.blobs"))


def written(side: Side, topic: str) -> int:
    if topic not in side.kafka.topics():
        return 0
    return sum(end for _, end in side.kafka.end_offsets([topic], committed=False))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """Place of a backup in S3."""
    with s3_server(tmp_path / "moto.log", "acme") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield "s3://acme/backups/hub"


@pytest.mark.timeout(600)
def test_an_encrypted_backup_in_s3_is_verified_by_a_trial_restore(
    sides: tuple[Side, Side], s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = sides
    monkeypatch.setenv("BACKUP_KEY", KEY)
    done = source.hub("backup", "--to", s3, "--key", "${BACKUP_KEY}", "bk.states")
    assert done["new_records"] == 41
    report = source.hub("backup", "verify", "--from", s3, "--key", "${BACKUP_KEY}", "--restore")
    assert (report["compared"], report["wrong"]) == (41, 0)
    target.hub("restore", "--from", s3, "--key", "${BACKUP_KEY}", "--prefix", "s3.")
    assert contents(target.records("s3.bk.states")) == contents(source.records("bk.states"))

    assert "HUB-1802" in source.hub("backup", "ls", "--from", s3, ok=1)
    monkeypatch.setenv("BACKUP_KEY", "ff" * 32)
    assert "HUB-1802" in source.hub("backup", "ls", "--from", s3, "--key", "${BACKUP_KEY}", ok=1)
    assert "HUB-1805" in source.hub("backup", "ls", "--from", "s3://acme/nothing", ok=1)
    assert "HUB-1801" in source.hub("backup", "--to", "s3://other-bucket/x", ok=1)


def test_a_damaged_segment_is_found_with_its_file_and_offset(
    sides: tuple[Side, Side], tmp_path: Path
) -> None:
    source, target = sides
    place = tmp_path / "backup"
    source.hub("backup", "--to", str(place), "--no-schemas", "bk.orders")
    segment = min(place.glob("segments/*/bk.orders/2/0*"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    done = call_hub(source.settings, "backup", "verify", "--from", str(place), "-o", "json")
    assert done.returncode == 1
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["object"] == segment.relative_to(place).as_posix()
    assert (finding["topic"], finding["partition"], finding["offset"]) == ("bk.orders", 2, 10)
    said = target.hub("restore", "--from", str(place), "--prefix", "broken.", "--no-schemas", ok=1)
    assert "HUB-3801" in said and finding["object"] in said
    another_clusters_topic_is_refused(source, target, place)
    other = call_hub(target.settings, "backup", "run", "--to", str(place), "--no-schemas")
    assert "HUB-1803" in other.stderr
    assert os.listdir(place / "manifests") == ["000001"]


def another_clusters_topic_is_refused(source: Side, target: Side, place: Path) -> None:
    """The target has the mirror's copy of what the source owns: a restore would write past the mirror."""
    file = target.settings.project / "mirrors.yaml"
    file.write_text(
        f"""\
clusters:
  one: {{bootstrap: "{source.kafka.bootstrap}", owns: ["owned.**"]}}
  two: {{bootstrap: "{target.kafka.bootstrap}"}}
mirrors:
  there: {{source: one, target: two, topics: ["owned.**"]}}
"""
    )
    try:
        order = ("restore", "--from", str(place), "--prefix", "owned.", "--no-schemas", "--dry-run")
        said = target.hub(*order, ok=1)
        assert "✗ topic owned.bk.orders: one owns it, and here at two is a copy at most." in said
        assert "✗" not in call_hub(target.settings, *order, "--ignore-ownership").stderr
    finally:
        file.unlink()
