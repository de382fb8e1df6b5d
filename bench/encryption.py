"""Cost of field encryption: events in clear text, with rules of a schema, and with a key of each person.

Run: ``./run bench encryption [--events N]`` (about two minutes). One Kafka and one server with a local KMS.
The gateway gets the same events for each kind of topic, in requests of 100. Confluent's own Python serializer
and deserializer encrypt and decrypt the same events with keys of the same server. No figure is asserted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import psutil
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.rules.encryption.encrypt_executor import FieldEncryptionExecutor
from confluent_kafka.schema_registry.rules.encryption.localkms.local_driver import LocalKmsDriver
from confluent_kafka.serialization import MessageField, SerializationContext
from encryption_rules import encrypt_rule
from kafka_nodes import running_node
from pipeline import records_of
from processes import Server, call_hub, own_settings

from hub.config import Settings
from hub.config.kms import KmsKey
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.encryption.key_ring import KeyRing
from hub.schema_registry.encryption.kms import KmsClient
from hub.schema_registry.encryption.opener import Opener
from hub.schema_registry.encryption.remote_deks import RemoteDeks

SECRET = "a local secret"
KMS = "local-kms://people"
BATCH, PERSONS = 100, 100
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "email", "type": "string", "confluent:tags": ["PII"]},
            {"name": "street", "type": "string", "confluent:tags": ["PII"]},
            {"name": "orders", "type": "int"},
        ],
    }
)
CLEAR, RULED, OF_PERSONS = "clear.people", "ruled.people", "erasable.people"
TREE = "topics:\n  erasable:\n    erasable_by: id\n    topics:\n      people: {}\n"


def person(number: int) -> dict[str, Any]:
    return {
        "id": f"C-{number}",
        "email": f"person{number}@example.com",
        "street": f"{number} Long Street",
        "orders": number,
    }


def write(connection: http.client.HTTPConnection, topic: str, events: Sequence[dict[str, Any]]) -> None:
    """Write events through the gateway, in requests of ``BATCH``."""
    for start in range(0, len(events), BATCH):
        body = "".join(json.dumps({"value": {"data": each}}) for each in events[start : start + BATCH])
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"/v3/clusters/-/topics/{topic}/records", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        failed = [line for line in text.splitlines() if '"error_code":200' not in line]
        assert answer.status == 200 and not failed, (answer.status, len(failed), failed[0][:500])


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU-seconds of a process and its children, who execute rules."""
    every = [process, *process.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every)


@contextmanager
def measured(what: str, count: int, process: psutil.Process) -> Iterator[None]:
    began, used = time.perf_counter(), cpu_s(process)
    yield
    took, used = time.perf_counter() - began, cpu_s(process) - used
    memory = process.memory_info().rss / 1e6
    print(
        f"{what:44} {count / took:9,.0f} {took / count * 1e3:9.3f} {used / count * 1e3:9.3f} {memory:7.0f}",
        flush=True,
    )


def of_confluent(url: str, events: Sequence[dict[str, Any]], me: psutil.Process) -> None:
    """Measure Confluent's serializers in this process."""
    for name, topic in (("clear text", CLEAR), ("a rule", RULED)):
        rules = RuleRegistry()
        rules.register_executor(FieldEncryptionExecutor())
        client = SchemaRegistryClient({"url": url})
        more: dict[str, Any] = {"rule_conf": {"secret": SECRET}, "rule_registry": rules}
        conf = {"auto.register.schemas": False, "use.latest.version": True}
        serialize = AvroSerializer(client, SCHEMA, conf=conf, **more)
        deserialize = AvroDeserializer(client, conf={"use.latest.version": False}, **more)
        context = SerializationContext(topic, MessageField.VALUE)
        written = [serialize(dict(each), context) for each in events[:BATCH]]  # warm
        with measured(f"Confluent's serializer, {name}", len(events), me):
            written = [serialize(dict(each), context) for each in events]
        deserialize(written[0], context)
        with measured(f"Confluent's deserializer, {name}", len(events), me):
            read = [deserialize(each, context) for each in written]
        assert read == list(events)


def of_the_opener(settings: Settings, cluster: KafkaCluster, count: int, me: psutil.Process) -> None:
    """Measure how views decrypt, in this process; without decoding into rows."""
    kms = KmsClient([KmsKey(key=KMS, secrets={"secret": "kms.secret"})], settings.project)
    ring = KeyRing(RemoteDeks(settings.url, 30.0), kms, kept_s=60.0)
    for name, topic in (("clear text", CLEAR), ("a rule", RULED), ("a key of each person", OF_PERSONS)):
        opener = Opener(RegistryClient(settings.url, 30.0), ring)
        values = [each.value or b"" for each in records_of(cluster, topic)][:count]
        for each in values[: 2 * PERSONS]:  # warm: schemas and keys
            opener.opened(topic, each)
        with measured(f"views decrypt, {name}", len(values), me):
            for each in values:
                opener.opened(topic, each)


@contextmanager
def hub(folder: Path) -> Iterator[tuple[Settings, Server]]:
    settings = own_settings(
        folder / "home",
        folder,
        embedded_kafka=False,
        kms=[KmsKey(key=KMS, secrets={"secret": "kms.secret"})],
    )
    (folder / "kms.secret").write_text(SECRET)
    (folder / "topics.yaml").write_text(TREE)
    with running_node(KafkaNode(settings)):
        cluster = KafkaCluster(settings.bootstrap)
        for topic in (CLEAR, RULED, OF_PERSONS):
            cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
        server = Server(settings)
        server.start()
        try:
            for kek in ("people", "erasable"):
                made = call_hub(settings, "kek", "create", kek, "--kms", KMS)
                assert made.returncode == 0, made.stderr
            registry = RegistryClient(settings.url, 30.0)
            for topic in (CLEAR, OF_PERSONS):
                registry.register(f"{topic}-value", SCHEMA)
            registry.register(f"{RULED}-value", SCHEMA, rule_set={"domainRules": [encrypt_rule("people")]})
            yield settings, server
        finally:
            server.stop(10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=5_000, help="of each kind")
    options = parser.parse_args()
    LocalKmsDriver.register()
    count = options.events
    known: Callable[[int], list[dict[str, Any]]] = lambda many: [person(n % PERSONS) for n in range(many)]
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        settings, server = opened.enter_context(hub(folder))
        connection = http.client.HTTPConnection("127.0.0.1", settings.http_port, timeout=120)
        process, me = psutil.Process(server.process.pid), psutil.Process()
        print(f"{'two encrypted fields an event':44} {'events/s':>9} {'ms':>9} {'CPU ms':>9} {'MB':>7}")
        for what, topic in (
            ("clear text", CLEAR),
            ("a rule", RULED),
            ("a key of each person", OF_PERSONS),
        ):
            write(connection, topic, known(2 * PERSONS))  # warm
            with measured(f"gateway, {what}", count, process):
                write(connection, topic, known(count))
        new = [person(PERSONS + n) for n in range(min(count, 500))]
        with measured("gateway, a new person each", len(new), process):
            write(connection, OF_PERSONS, new)
        of_confluent(settings.url, known(count), me)
        of_the_opener(settings, KafkaCluster(settings.bootstrap), count, me)


if __name__ == "__main__":
    main()
