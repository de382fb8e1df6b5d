"""Persons are forgotten: events of erasable topics, their readers, and what is left on the disks."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from patience import patient
from pipeline import Pipeline, records_of, wait_until
from ports import free_ports
from postgres import Postgres
from processes import call_hub, running_server

from hub.config import Settings
from hub.config.kms import KmsKey
from hub.erasure.model import Erasure, Place
from hub.erasure.views import ViewEraser
from hub.kafka import KafkaCluster
from hub.log import MemoryCluster
from hub.materializers.stores.open_store import open_store
from hub.record import Record
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.conformance.auditor import clear_text_policy
from hub.topics.tree.erasable import seal_by_tree

CANARY = "ann@canary.example"
SECRET = "a local secret"
PERSON = {"id": "C-1", "email": CANARY, "age": 7}
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "email", "type": ["null", "string"], "confluent:tags": ["PII"]},
            {"name": "age", "type": "int"},
        ],
    }
)


@pytest.fixture(scope="module")
def erasing(settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a running server with a local KMS and the KEK of persons."""
    folder = tmp_path_factory.mktemp("erasing")
    (folder / "kms.secret").write_text(SECRET)
    (folder / "topics.yaml").write_text(
        "topics:\n  crm:\n    erasable_by: id\n    topics:\n      people: {}\n"
    )
    own = settings.model_copy(
        update={
            "project": folder,
            "home": folder / "home",
            "store": f"sqlite:///{folder}/home/hub.db",
            "http_port": free_ports(1)[0],
            "kms": [KmsKey(key="local-kms://people", secrets={"secret": "kms.secret"})],
            "erase_delay_hours": 0.0,
            "erase_compaction_s": 1.0,
            "erase_key_cache_s": 1.0,
        }
    )
    with running_server(own):
        made = call_hub(own, "kek", "create", "erasable", "--kms", "local-kms://people")
        assert made.returncode == 0, made.stderr
        yield own


@pytest.fixture(scope="module")
def kafka_folder(settings: Settings, kafka: str) -> Path:
    """Folder of Kafka's data on disk."""
    return settings.home / "kafka"


@pytest.fixture
def topic(erasing: Settings, kafka: str) -> str:
    """A new erasable topic with a schema."""
    label = f"t{uuid.uuid4().hex[:8]}"
    file = erasing.project / "topics.yaml"
    file.write_text(f"{file.read_text()}      {label}: {{}}\n")
    name = f"crm.{label}"
    KafkaCluster(kafka, patient(15.0)).create_topic(name, partitions=1, config={}, replication_factor=1)
    registry = RegistryClient(erasing.url, patient(15.0))
    registry.register(f"{name}-value", SCHEMA)
    registry.close()
    return name


def write(settings: Settings, topic: str, **changes: Any) -> httpx2.Response:
    body = {"value": {"data": {**PERSON, **changes}}}
    url = f"{settings.url}/v3/clusters/-/topics/{topic}/records"
    return httpx2.post(url, json=body, timeout=patient(60.0))


def test_every_way_in_encrypts_or_refuses(erasing: Settings, kafka: str, topic: str) -> None:
    cluster = KafkaCluster(kafka, patient(15.0))
    answer = write(erasing, topic)
    assert answer.json()["error_code"] == 200, answer.text
    given = ("topic", "publish", topic, "-k", "C-1", "-j")
    published = call_hub(erasing, *given, json.dumps(PERSON))
    assert published.returncode == 0, published.stderr
    short = httpx2.post(f"{erasing.url}/topics/{topic}/events", json=PERSON, timeout=patient(60.0))
    assert short.is_success, short.text
    records = records_of(cluster, topic)
    assert len(records) == 3
    assert all(b"hub:erasable:1:" in (each.value or b"") for each in records)
    assert CANARY not in str(records)
    # An event that names nobody could never be erased.
    refused = write(erasing, topic, id="")
    assert refused.json()["code"] == "HUB-1219" and 'erasable by "id"' in refused.json()["message"]
    missing = call_hub(erasing, *given, json.dumps({**PERSON, "id": ""}))
    assert missing.returncode == 1 and 'send "id" with each event' in missing.stderr
    assert len(records_of(cluster, topic)) == 3


def test_the_conformance_check_finds_clear_text(erasing: Settings, kafka: str, topic: str) -> None:
    registry = RegistryClient(erasing.url, patient(15.0))
    seal_by_tree(erasing.project, "erasable")
    policy = clear_text_policy(registry)
    from hub.schema_registry.codecs.values import encoder_of
    from hub.schema_registry.codecs.wire_format import frame

    schema_id = registry.latest(f"{topic}-value").id
    past_the_hub = frame(schema_id, encoder_of(registry.source(schema_id)).body(PERSON))
    assert "in clear text: email" in (policy(Record(topic, 0, 0, 0, None, past_the_hub), schema_id) or "")
    write(erasing, topic)
    (sealed,) = records_of(KafkaCluster(kafka, patient(15.0)), topic)
    assert policy(sealed, schema_id) is None


def test_a_view_reads_clear_text_with_decrypt_alone(erasing: Settings, topic: str) -> None:
    assert write(erasing, topic).json()["error_code"] == 200
    name = f"people_{uuid.uuid4().hex[:8]}"
    with contextlib.closing(Pipeline(erasing, erasing.url)) as running, running.own_views():
        running.views.mkdir(parents=True, exist_ok=True)
        for view, decrypt in ((name, "true"), (f"{name}_sealed", "false")):
            write_view(running.views, view, topic, decrypt)
        running.start("materialize")
        running.start("apply-changelogs")
        for view in (name, f"{name}_sealed"):
            running.covers(view, [topic])
        assert {key: row["email"] for key, row in running.rows(name).items()} == {"C-1": CANARY}
        assert running.rows(f"{name}_sealed")["C-1"]["email"].startswith("hub:erasable:1:erasable:")


def test_an_erased_person_is_on_no_disk_and_the_log_is_as_it_was(
    erasing: Settings, kafka: str, topic: str, kafka_folder: Path
) -> None:
    """Another person in the same topic stays, and the proof is signed."""
    canary = f"{uuid.uuid4().hex}@canary.example"
    cluster, name = KafkaCluster(kafka, patient(15.0)), f"people_{uuid.uuid4().hex[:8]}"
    cluster.alter_config("_dek_registry_keys", {"file.delete.delay.ms": "1000"})
    for person, email in (("C-1", canary), ("C-2", CANARY), ("C-1", canary)):
        assert write(erasing, topic, id=person, email=email).json()["error_code"] == 200
    before = records_of(cluster, topic)
    with contextlib.closing(Pipeline(erasing, erasing.url)) as running, running.own_views():
        running.views.mkdir(parents=True, exist_ok=True)
        write_view(running.views, name, topic, "true")
        (running.views / f"over_{name}.yaml").write_text(
            f"view: over_{name}\nsources: {{people: {{view: {name}}}}}\n"
            "sql: SELECT email, count(*) AS persons FROM people GROUP BY email\n"
        )
        running.start("materialize")
        running.start("apply-changelogs")
        running.covers(name, [topic])
        assert running.rows(name)["C-1"]["email"] == canary
        wait_until(lambda: canary in str(running.rows(f"over_{name}")), 60.0)
        assert found_on_disk(canary, erasing.home, kafka_folder)  # the view has clear text: the scan sees it
        id = requested(erasing, topic)
        approved = call_hub(erasing, "erase", "approve", id)
        assert approved.returncode == 0, approved.stderr
        running.kill("materialize", "too")  # at any moment
        running.start("materialize")
        wait_until(lambda: shown(erasing, id)["status"] == "done", 240.0, lambda: states(erasing, id))
        assert {key: row["email"] for key, row in running.rows(name).items()} == {"C-1": None, "C-2": CANARY}
        assert canary not in str(running.rows(f"over_{name}"))
        wait_until(
            lambda: not found_on_disk(canary, erasing.home, kafka_folder),
            30.0,  # brokers look for files to delete now and then
            lambda: str(found_on_disk(canary, erasing.home, kafka_folder)),
        )
    assert found_on_disk(CANARY, erasing.home, kafka_folder)
    assert records_of(cluster, topic) == before  # order, counts and bytes
    proof = call_hub(erasing, "erase", "proof", id)
    report = json.loads(proof.stdout)["report"]
    by_place = {each["place"]: each for each in report["places"]}
    assert by_place[f"topic:{topic}"]["detail"].startswith("keys destroyed: 1")
    assert by_place["keys:_dek_registry_keys"]["state"] == by_place[f"view:{name}"]["state"] == "done"
    assert by_place[f"view over views:over_{name}"]["state"] == "done"
    assert by_place[f"readers:views.{name}"]["state"] == "unknown" and not report["erased_everywhere"]
    file = erasing.project / "proof.json"
    file.write_text(proof.stdout)
    assert "signed by this home" in call_hub(erasing, "erase", "proof", "--check", str(file)).stderr
    file.write_text(proof.stdout.replace('"unknown"', '"done"'))
    changed = call_hub(erasing, "erase", "proof", "--check", str(file))
    assert changed.returncode == 1 and "HUB-1842" in changed.stderr


def test_former_tables_in_postgres_are_waited_for(postgres: Postgres) -> None:
    url = postgres.database("erasing")
    place = Place("store", "pg of view people", "")
    view = Place("view", "people", "", "done")
    erasure = Erasure("e1", "C-1", ("crm.people",), "a test", "ana", 0, (view, place))
    versions = {"versions:people": {"versions": [{"number": 2, "plain": False}]}}
    eraser = ViewEraser(MemoryCluster(), lambda: versions, {"pg": url}, lambda: 1_000)
    schema: Any = json.loads(SCHEMA)
    with contextlib.closing(open_store(url)) as store:
        for table in ("people", "people@2"):
            store.ensure_view(table, schema, [], "id")
        (found,) = eraser.follow(erasure)
        assert (found.state, found.detail) == ("waiting", "table people is not removed yet")
        store.drop_view("people")
        (found,) = eraser.follow(erasure)
        assert found.state == "done" and "Postgres" in found.detail
    postgres.kill()  # nothing is known of it then
    try:
        assert eraser.follow(erasure)[0].state == "waiting"
    finally:
        postgres.start()


def requested(settings: Settings, topic: str, person: str = "C-1") -> str:
    """Request an erasure by the command, and return its id."""
    given = (person, "--topic", topic, "--reason", "a test", "-o", "json")
    made = call_hub(settings, "erase", "request", *given)
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["id"])


def shown(settings: Settings, id: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{settings.url}/api/erasures/{id}", timeout=30.0).json()
    return found


def states(settings: Settings, id: str) -> str:
    places = shown(settings, id)["places"]
    return "\n".join(f"{each['kind']} {each['name']}: {each['state']} {each['detail']}" for each in places)


def found_on_disk(text: str, *folders: Path) -> list[Path]:
    """Return the files below the folders that have a text."""
    found = []
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for path in (Path(parent, each) for each in names):
                with contextlib.suppress(OSError):  # removed meanwhile
                    if text.encode() in path.read_bytes():
                        found.append(path)
    return found


def write_view(folder: Path, view: str, topic: str, decrypt: str) -> None:
    (folder / f"{view}.yaml").write_text(
        f"view: {view}\nsources: {{p: {{topic: {topic}, key: id, decrypt: {decrypt}}}}}\n"
        "fields: {email: p.email}\n"
    )
