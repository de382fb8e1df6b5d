"""A folder of schemas against a real registry and Kafka:
plan, apply, diff, search, stored events, backup and restore."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from patience import patient

from hub.cli import main
from hub.cli.context import environment_of
from hub.config import Settings
from hub.errors import Conflict
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions
from hub.schema_registry.client import backup
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import frame
from hub.topics.gateway.producer import Publisher

Run = Callable[..., tuple[int, str, str]]


def record(name: str, *fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)}, indent=1)


ID = {"name": "id", "type": "string"}
TOTAL = {"name": "total", "type": ["int", "string"]}


@pytest.fixture
def run(
    hub_server: str, settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Run:
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)

    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["schema", *arguments])
        said = capfd.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


def test_from_a_folder_to_the_registry_and_on(
    run: Run, settings: Settings, kafka: str, tmp_path: Path
) -> None:
    mark = f"t{uuid.uuid4().hex[:8]}"
    topic, folder = f"{mark}.orders", tmp_path / "schemas"
    (folder / topic).mkdir(parents=True)
    (folder / "schemas.yaml").write_text(
        f"schemas: {{{topic}/value.avsc: {{owner: team-{mark}, tags: [{mark}]}}}}"
    )
    (folder / f"{mark}.address.avsc").write_text(record(f"{mark}.Address", ID))
    value = folder / topic / "value.avsc"
    (folder / f"{mark}.a.avsc").write_text(record("A", {"name": "to", "type": f"{mark}.Address"}))
    value.write_text(record("Order", ID, TOTAL))

    assert run("check", str(folder))[0] == 0
    code, out, _ = run("plan", str(folder))
    assert code == 2 and f"+ {topic}-value: new, version 1" in out
    code, _, err = run("apply", str(folder))
    assert code == 0 and "3 changed." in err
    assert run("plan", str(folder))[0] == 0
    assert "Nothing to change" in run("apply", str(folder))[2]

    cluster = KafkaCluster(kafka)
    cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
    with closing(RegistryClient(settings.registry)) as registry:
        publisher = Publisher(cluster, registry)
        for number in range(5):
            total: object = "seven" if number == 3 else number
            publisher.publish(topic, f"k{number}", {"id": f"o{number}", "total": total})
        registry.set_compatibility(f"{topic}-value", "NONE")

    narrower = {**TOTAL, "type": "int"}
    value.write_text(record("Order", ID, narrower))
    assert run("plan", str(folder))[0] == 2
    code, out, err = run("plan", str(folder), "--data", "--all")
    assert code == 1 and f"1 of 5 stored events of {topic} cannot be read" in err
    assert "STORED_EVENTS" in out and "offset" in out
    value.write_text(record("Order", ID, TOTAL, {"name": "note", "type": "string", "default": ""}))
    assert run("plan", str(folder), "--data")[0] == 2
    assert run("apply", str(folder))[0] == 0

    code, out, _ = run("diff", f"{topic}-value")
    assert code == 0 and 'field `note` (string, default "") is added' in out
    assert "Consumers with the old schema can read data written with the new one." in out
    assert json.loads(run("diff", f"{topic}-value", "1", "2", "-o", "json")[1])["new_reads_old"] is True
    code, _, err = run("diff", f"{topic}-valeu")
    assert code == 1 and f'did you mean "{topic}-value"?' in err

    (found,) = json.loads(run("search", "order", "--tag", mark, "-o", "json")[1])
    assert (found["subject"], found["version"], found["owner"]) == (f"{topic}-value", 2, f"team-{mark}")
    code, out, _ = run("infer", "--topic", topic)
    assert code == 0 and [each["name"] for each in json.loads(out)["fields"]] == ["id", "total"]


def test_stored_json_and_protobuf_are_tried_and_who_reads_them_is_told(
    run: Run, settings: Settings, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"t{uuid.uuid4().hex[:8]}"
    folder, cluster = tmp_path / "schemas", KafkaCluster(kafka)
    folder.mkdir()
    texts = {
        f"{mark}.json": (
            ".json",
            '{"type": "object", "properties": {"n": {"type": "integer"}}}',
            b'{"n": 70}',
        ),
        f"{mark}.proto": (
            ".proto",
            'syntax = "proto3"; message M { int64 n = 1; }',
            b"\x00\x08\x80\x80\x80\x80\x20",
        ),
    }
    for topic, (suffix, text, _) in texts.items():
        (folder / f"{topic}-value{suffix}").write_text(text)
    assert run("apply", str(folder))[0] == 0
    with closing(RegistryClient(settings.registry)) as registry:
        for topic, (_, _, body) in texts.items():
            cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
            made = registry.latest(f"{topic}-value").id
            writer = cluster.writer()
            writer.append([NewRecord(topic, b"k", frame(made, body)), NewRecord(topic, b"k", b"junk")])
            writer.close()
            registry.set_compatibility(f"{topic}-value", "NONE")
    cluster.publish_group(f"{mark}-old", Positions.of([(f"{mark}.json", 0, 1)]))
    cluster.publish_group("hub.view.test", Positions.of([(f"{mark}.json", 0, 1)]))
    reader = Consumer(
        {"bootstrap.servers": kafka, "group.id": f"{mark}-now", "client.id": f"{mark}-client",
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    reader.subscribe([f"{mark}.json"])
    deadline = time.monotonic() + patient(60)
    while not reader.assignment() and time.monotonic() < deadline:
        reader.poll(0.1)
    assert reader.assignment()

    for topic, (suffix, text, _) in texts.items():
        narrower = text.replace('"integer"', '"integer", "maximum": 9').replace("int64", "int32")
        (folder / f"{topic}-value{suffix}").write_text(narrower)
    try:
        code, out, err = run("plan", str(folder), "--data", "-o", "json")
    finally:
        reader.close()
    assert code == 1
    for topic in texts:
        assert f"1 of 2 stored events of {topic} cannot be read, 1 are broken" in err
    items = {each["subject"]: each for each in json.loads(out)["items"]}
    assert {each["status"] for name, each in items.items() if mark in name} == {"refused"}
    (now, old) = items[f"{mark}.json-value"]["readers"]
    assert now == {"group": f"{mark}-now", "active": True, "clients": [f"{mark}-client"], "lag_records": None}
    assert old == {"group": f"{mark}-old", "active": False, "clients": [], "lag_records": 1}
    assert items[f"{mark}.proto-value"]["readers"] == []
    assert json.loads(run("plan", str(folder), "--no-readers", "-o", "json")[1])["items"][0]["readers"] == []

    monkeypatch.setenv("HUB_BOOTSTRAP", "127.0.0.1:1")
    code, out, err = run("plan", str(folder))
    assert code == 2 and "Who reads the topics is not known" in err and "2 changed" in err


def register(settings: Settings) -> None:
    with closing(RegistryClient(settings.registry)) as registry:
        registry.register(f"s-{uuid.uuid4().hex[:8]}", record(f"R{uuid.uuid4().hex[:8]}", ID))


def test_the_log_of_a_real_registry_comes_back_byte_for_byte(
    run: Run, settings: Settings, kafka: str, tmp_path: Path
) -> None:
    cluster = KafkaCluster(kafka)
    register(settings)
    file = tmp_path / "backup.jsonl"
    assert run("backup", str(file))[0] == 0
    kept = backup.records(file.read_bytes().splitlines(keepends=True), str(file))
    assert kept

    copy = f"schemas-copy-{uuid.uuid4().hex[:8]}"
    odd = backup.BackupRecord(b"\xff", None, 5, (("h", b"\xfe"),))
    backup.restore([*kept, odd], cluster, topic=copy)
    assert backup.read_all(cluster, topic=copy) == [*kept, odd]
    with pytest.raises(Conflict, match="has records"):
        backup.restore(kept, cluster, topic=copy)
    code, _, err = run("restore", str(file))
    assert code == 1 and "has records" in err and "delete the topic" in err
    register(settings)  # the node continues


def test_a_restore_goes_on_after_one_that_was_cut_off(kafka: str) -> None:
    """A trace without a record: the topic counted as full, and had to be deleted."""
    cluster, copy = KafkaCluster(kafka), f"schemas-copy-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(copy, partitions=1, config={"cleanup.policy": "compact"}, replication_factor=1)
    cut_off = Producer({"bootstrap.servers": kafka, "transactional.id": f"t-{copy}"})
    cut_off.init_transactions()
    cut_off.begin_transaction()
    cut_off.produce(copy, key=b"k", value=b"v", partition=0)
    cut_off.flush()
    cut_off.abort_transaction()
    kept = [backup.BackupRecord(b"a", b"1", 5), backup.BackupRecord(b"b", None, 6)]
    backup.restore(kept, cluster, topic=copy)
    assert backup.read_all(cluster, topic=copy) == kept
    with pytest.raises(Conflict, match="has records"):
        backup.restore(kept, cluster, topic=copy)


def test_a_topic_of_plain_json_gives_a_schema(run: Run, kafka: str) -> None:
    topic = f"plain-{uuid.uuid4().hex[:8]}"
    cluster = KafkaCluster(kafka)
    cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    values = [b'{"a": 1}', b'{"a": 2, "b": "2024-01-01"}', b"no json", None]
    writer = cluster.writer()
    writer.append([NewRecord(topic, b"k", value) for value in values])
    writer.close()
    code, out, err = run("infer", "--topic", topic)
    assert code == 0 and "1 events are neither" in err
    assert json.loads(out)["fields"][1]["type"] == ["null", {"type": "int", "logicalType": "date"}]


def test_the_listing_and_explain_over_a_real_server(run: Run, settings: Settings) -> None:
    register(settings)
    with closing(RegistryClient(settings.registry)) as registry:
        subject = next(each for each in registry.subjects() if each.startswith("s-"))
        registry.set_compatibility(subject, "FULL")
        expected = {
            each: (registry.latest(each).id, registry.compatibility(each)) for each in registry.subjects()
        }
    rows = json.loads(run("ls", "-o", "json")[1])
    assert {each["subject"]: (each["id"], each["compatibility"]) for each in rows} == expected
    assert expected[subject][1] == "FULL"
    code, _, err = run("explain", subject, "--registered")
    assert code == 0 and "Checked: version 1 of the registry." in err, err
