"""The registry on real Kafka, through clients that nobody here wrote:
confluent-kafka's own serializers, unchanged."""

from __future__ import annotations

import contextlib
import json
import uuid

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from hub.kafka import KafkaCluster
from hub.record import Positions
from hub.schema_registry.registry.state_machine import RegisterSchema
from hub.schema_registry.server.node import RegistryNode


def schema(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}, *fields]})


WITH_DEFAULT = {"name": "city", "type": "string", "default": "?"}
WITHOUT = {"name": "city", "type": "string"}


def test_serializers_register_evolve_and_are_refused(hub_server: str, kafka: str) -> None:
    topic = f"users-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(SchemaRegistryClient({"url": hub_server})) for _ in range(3)]
        new = evolve(topic, *clients)
    known_to_another_node(topic, kafka, new)


def evolve(
    topic: str, client: SchemaRegistryClient, producer: SchemaRegistryClient, consumer: SchemaRegistryClient
) -> bytes:
    """The life of a subject through serializers; the bytes of an event of its second version."""
    context = SerializationContext(topic, MessageField.VALUE)
    old = AvroSerializer(client, schema())({"id": 1}, context)
    new = AvroSerializer(client, schema(WITH_DEFAULT))({"id": 2, "city": "Oslo"}, context)
    with pytest.raises(SchemaRegistryError, match="READER_FIELD_MISSING_DEFAULT_VALUE.*`town`"):
        AvroSerializer(client, schema({**WITHOUT, "name": "town"}))({"id": 3, "town": "Oslo"}, context)
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    latest = AvroSerializer(producer, conf=settings)({"id": 4, "city": "?"}, context)
    assert latest is not None and new is not None and latest[:5] == new[:5]
    reader = AvroDeserializer(consumer, schema(WITH_DEFAULT))
    assert reader(old, context) == {"id": 1, "city": "?"}
    assert reader(new, context) == {"id": 2, "city": "Oslo"}
    return bytes(new)


def known_to_another_node(topic: str, kafka: str, new: bytes) -> None:
    """A node started now knows all of it from the log."""
    node = RegistryNode(KafkaCluster(kafka, 15.0))
    try:
        assert node.start()
        versions = node.read(lambda registry: registry.live(f"{topic}-value"))
        assert [each.version for each in versions] == [1, 2]
        assert versions[1].schema_id == int.from_bytes(new[1:5], "big")
    finally:
        node.stop()


def test_the_client_finds_schemas_in_every_way_it_knows(hub_server: str) -> None:
    """Schemas by id, GUID, metadata, subject and context; referenced, deleted, and removed."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    with SchemaRegistryClient({"url": hub_server}) as client:
        gold = Schema(schema(), "AVRO", metadata=Metadata(None, MetadataProperties({"tier": "gold"}), None))
        first = client.register_schema_full_response(name, gold)
        client.register_schema(f":.{name}:{name}", Schema(schema(WITH_DEFAULT), "AVRO"))
        assert client.get_schema_by_guid(first.guid).schema_str == first.schema.schema_str
        assert client.get_latest_with_metadata(name, {"tier": "gold"}).version == 1
        assert f".{name}" in client.get_contexts()
        referring = Schema('["null","User"]', "AVRO", [SchemaReference("User", name, -1)])
        top = client.register_schema(f"{name}-top", referring)
        assert client.get_referenced_by(name, "1") == [top]
        with pytest.raises(SchemaRegistryError) as refused:
            client.delete_subject(name)
        assert (refused.value.http_status_code, refused.value.error_code) == (422, 42206)
        for subject in (f"{name}-top", name):
            assert client.delete_subject(subject) == client.delete_subject(subject, permanent=True) == [1]
    with SchemaRegistryClient({"url": hub_server}) as other, pytest.raises(SchemaRegistryError) as gone:
        other.get_versions(name)
    assert (gone.value.http_status_code, gone.value.error_code) == (404, 40401)


class Counting(KafkaCluster):
    """Counts the looks past what a node has read."""

    looks = 0

    def next_records(self, positions: Positions, timeout_s: float) -> Positions:
        self.looks += 1
        return super().next_records(positions, timeout_s)


def test_a_schema_that_is_there_is_answered_without_waiting_for_the_mark_of_the_transaction_that_wrote_it(
    kafka: str,
) -> None:
    """Nodes follow the log and hear late that only a mark is left of it; its end is known nevertheless."""
    mine, others = Counting(kafka, 15.0), Counting(kafka, 15.0)
    first, second = RegistryNode(mine), RegistryNode(others)
    assert first.start(30.0) and second.start(30.0)
    try:
        for number in range(3):
            command = RegisterSchema(f"marks-{number}", '{"type": "string"}')
            made, after = first.submit(command)
            same, end = first.submit(command)
            assert (same, mine.looks) == (made, 0)  # its own mark it knows
            # A commit is answered before its mark is in the log: a slow broker writes it later.
            assert end in (after, after + 1)
            answer, seen = second.submit(command)
            assert answer == made and seen in (end, after + 1)
        assert others.looks >= 1  # another's it looks for
    finally:
        first.stop()
        second.stop()
