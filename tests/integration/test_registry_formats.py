"""JSON Schema, Protobuf and data rules through confluent-kafka's own serializers and rule executors,
unchanged."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
from confluent_kafka.schema_registry.rules.jsonata.jsonata_executor import JsonataExecutor
from confluent_kafka.schema_registry.schema_registry_client import Rule, RuleKind, RuleMode, RuleSet
from confluent_kafka.schema_registry.serde import RuleConditionError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError


@pytest.fixture
def client(hub_server: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": hub_server}) as opened:
        yield opened


@pytest.fixture
def value() -> SerializationContext:
    return SerializationContext(f"t-{uuid.uuid4().hex[:8]}", MessageField.VALUE)


def test_json_schema_with_a_reference_and_validation(
    client: SchemaRegistryClient, value: SerializationContext
) -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    client.register_schema(f"{value.topic}-money", Schema(json.dumps(money), "JSON"))
    order = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "string"}, "total": {"$ref": "money.json"}},
        "additionalProperties": False,
    }
    schema = Schema(json.dumps(order), "JSON", [SchemaReference("money.json", f"{value.topic}-money", 1)])
    serializer = JSONSerializer(schema, client)
    sent = serializer({"id": "o1", "total": {"cents": 5}}, value)
    assert JSONDeserializer(None, schema_registry_client=client)(sent, value) == {
        "id": "o1",
        "total": {"cents": 5},
    }
    with pytest.raises(SerializationError):
        serializer({"id": "o1", "total": {"cents": "five"}}, value)
    wider = {**order, "properties": {**order["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    JSONSerializer(Schema(json.dumps(wider), "JSON", schema.references), client)(
        {"id": "o2", "note": "x"}, value
    )
    narrower = {**wider, "required": ["note"]}
    with pytest.raises(SchemaRegistryError, match="REQUIRED"):
        JSONSerializer(Schema(json.dumps(narrower), "JSON", schema.references), client)({"note": "x"}, value)


MONEY = 'syntax = "proto3"; package hubtest{0}; message Money {{ int64 cents = 1; }}'
ORDER = """syntax = "proto3";
package hubtest{0};
import "money{0}.proto";
import "google/protobuf/timestamp.proto";
message Order {{
  string id = 1;
  Money total = 2;
  google.protobuf.Timestamp at = 3;
  optional string note = 4;
  map<string, int32> lines = 5;
  oneof paid {{ string card = 6; bool cash = 7; }}
}}
"""


def compiled(folder: Path, **files: str) -> dict[str, Any]:
    """Python modules that protoc makes of .proto files."""
    for name, text in files.items():
        (folder / f"{name}.proto").write_text(text)
    protoc = Path(sys.executable).with_name("protoc")
    command = [str(protoc), f"-I{folder}", f"--python_out={folder}", *(f"{name}.proto" for name in files)]
    subprocess.run(command, check=True, cwd=folder, timeout=30)
    sys.path.insert(0, str(folder))
    try:
        found = {}
        for name in files:
            spec = importlib.util.spec_from_file_location(f"{name}_pb2", folder / f"{name}_pb2.py")
            assert spec is not None and spec.loader is not None
            found[name] = sys.modules[f"{name}_pb2"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(found[name])
        return found
    finally:
        sys.path.remove(str(folder))


def test_protobuf_with_imports_registers_its_references(
    client: SchemaRegistryClient, value: SerializationContext, tmp_path: Path
) -> None:
    mark = uuid.uuid4().hex[:6]
    money, order = f"money{mark}", f"order{mark}"
    modules = compiled(tmp_path, **{money: MONEY.format(mark), order: ORDER.format(mark)})
    kind = modules[order].Order
    message = kind(id="o1", note="n", lines={"a": 2}, card="4711")
    message.total.cents = 7
    message.at.seconds = 1_800_000_000
    sent = ProtobufSerializer(kind, client)(message, value)
    back = ProtobufDeserializer(kind, schema_registry_client=client)(sent, value)
    assert back == message
    stored = client.get_latest_version(f"{value.topic}-value")
    assert stored.schema.references is not None
    assert [each.name for each in stored.schema.references] == [f"{money}.proto"]
    text = client.get_version(f"{value.topic}-value", 1).schema.schema_str
    assert text is not None
    assert "optional string note = 4;" in text and "map<string, int32> lines = 5;" in text
    assert client.get_referenced_by(f"{money}.proto", 1) == [stored.schema_id]


def test_rules_kept_by_the_registry_are_carried_out_by_the_clients(
    client: SchemaRegistryClient, value: SerializationContext
) -> None:
    CelExecutor.register()
    JsonataExecutor.register()
    rule = Rule(
        "positive",
        None,
        RuleKind.CONDITION,
        RuleMode.WRITE,
        "CEL",
        None,
        None,
        "message.cents > 0",
        None,
        None,
        False,
    )
    text = json.dumps({"type": "record", "name": "Paid", "fields": [{"name": "cents", "type": "long"}]})
    client.register_schema(f"{value.topic}-value", Schema(text, "AVRO", [], None, RuleSet(None, [rule])))
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    serializer = AvroSerializer(client, text, conf=settings)
    sent = serializer({"cents": 3}, value)
    assert AvroDeserializer(client)(sent, value) == {"cents": 3}
    with pytest.raises(SerializationError) as refused:
        serializer({"cents": -3}, value)
    assert isinstance(refused.value.__cause__, RuleConditionError) or "positive" in str(refused.value)
