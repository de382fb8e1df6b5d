"""[core] Events that are not Avro, as the columns that a view sees: JSON, CSV, XML, raw values, JSON Schema,
Protobuf.

All checks of a view (its columns, their kinds, which checkpoint fits) work on an Avro record. So the schema
of every format is converted to one, with a ``ValueReading`` under ``hub`` that says how events are read. Avro
schemas have no such note and are not changed.

::

    declared columns (Spark's DDL) ─┐
    JSON Schema ────────────────────┼─▶ Avro record + Reading ─▶ DDL for from_json, from_csv, from_xml
    Protobuf descriptor ────────────┘                            descriptors for the Protobuf reader
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import orjson
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from hub.errors import did_you_mean
from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.ddl import of_ddl, optional_field
from hub.materializers.types.json_schema_types import ADMITS_NULL, of_json_schema
from hub.materializers.types.named_files import BinaryForm, EventSchemaFile
from hub.materializers.types.protobuf_types import message_type, messages_of, plain_file
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

TextForm = Literal["json", "csv", "xml", "raw"]
DeclaredForm = Literal[TextForm, BinaryForm]
Form = DeclaredForm
_NOTE = "hub"


@dataclass(frozen=True, slots=True)
class ValueReading:
    """Rules for converting an event's bytes to columns.

    ``framed``: the value follows Confluent's five bytes; otherwise it is the record's whole value.
    ``separator``: CSV's separator. ``null``: CSV's text for null. ``files``: Protobuf's FileDescriptorSet.
    ``message``: full name of the message in it that is read. ``transform``: SQL over the bytes, whose result
    is read; empty: the bytes themselves. ``root``: name of XML's outermost element.
    """

    form: Form
    framed: bool
    separator: str = ","
    null: str = ""
    files: bytes = b""
    message: str = ""
    transform: str = ""
    root: str = ""


def reading_of(schema: AvroType) -> ValueReading | None:
    """Return how events of a schema are read; None: as Avro."""
    note = schema.get(_NOTE) if isinstance(schema, Mapping) else None
    if note is None:
        return None
    return ValueReading(**{**note, "files": base64.b64decode(note["files"])})


def _noted(schema: AvroType, reading: ValueReading) -> AvroType:
    body = {
        "form": reading.form,
        "framed": reading.framed,
        "separator": reading.separator,
        "null": reading.null,
        "files": base64.b64encode(reading.files).decode(),
        "message": reading.message,
    }
    # Absent where they are empty: versions of views that were made before have notes without them.
    later = {"transform": reading.transform, "root": reading.root}
    return {**schema, _NOTE: body | {name: text for name, text in later.items() if text}}


def declared(
    form: TextForm,
    columns: Mapping[str, str],
    *,
    separator: str = ",",
    null: str = "",
    transform: str = "",
    root: str = "",
) -> AvroType:
    """Return the schema of events without a schema id. ``columns``: types by name, in Spark's DDL.

    Raises ValueError with what is wrong with a column's type.
    """
    fields = [optional_field(name, of_ddl(text)) for name, text in columns.items()]
    schema = {"type": "record", "name": "event", "fields": fields}
    return _noted(schema, ValueReading(form, False, separator, null, transform=transform, root=root))


def of_file(form: BinaryForm, given: EventSchemaFile, transform: str = "") -> AvroType:
    """Return the schema of events that are written with the schema of a file and have no schema id.

    Raises InvalidSchema when the text cannot be parsed, or describes no record or message."""
    if form == "protobuf":
        parsed = SchemaSource.of("PROTOBUF", given.text).parsed()
        assert isinstance(parsed, ProtobufSchema)
        return of_protobuf(parsed, given.message, framed=False, transform=transform)
    SchemaSource.of("AVRO", given.text).parsed()
    schema = orjson.loads(given.text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidSchema("an event is a record: the schema has another type")
    return _noted(schema, ValueReading("avro", False, transform=transform))


def of_registry(source: SchemaSource) -> AvroType:
    """Return a registered schema as columns: Avro's own schema, or a record for any other format.

    Raises InvalidSchema when it cannot be parsed or describes no object.
    """
    if source.schema_type == "AVRO":
        return orjson.loads(source.text)
    parsed = source.parsed()
    if isinstance(parsed, JsonSchema):
        return _noted(of_json_schema(parsed), ValueReading("json", True))
    assert isinstance(parsed, ProtobufSchema)
    return of_protobuf(parsed)


def without_defaults(schema: AvroType) -> AvroType:
    """Return a schema as views read it before they supported defaults.

    Its own fields have neither defaults nor aliases, and messages of Protobuf have no defaults at any level.
    """
    fields = [
        {**{key: of for key, of in each.items() if key not in ("aliases", ADMITS_NULL)}, "default": None}
        for each in schema["fields"]
    ]
    plain = {**schema, "fields": fields}
    reading = reading_of(schema)
    if reading is None or reading.form == "json":
        return plain
    files = FileDescriptorSet.FromString(reading.files)
    for file in files.file:
        for _, message in messages_of(file.message_type, file.package):
            for each in message.field:
                each.ClearField("default_value")
    return _noted(plain, replace(reading, files=files.SerializeToString(deterministic=True)))


def of_protobuf(
    schema: ProtobufSchema, message: str | None = None, *, framed: bool = True, transform: str = ""
) -> AvroType:
    """Return the columns of a message of a .proto file, with the files for its reader. Omits a message inside
    itself. ``message``: its full name; None: the file's first.

    Raises InvalidSchema when the file has no message, or none of that name.
    """
    if not schema.file.message_type:
        raise InvalidSchema("the schema has no message")
    messages: dict[str, DescriptorProto] = {}
    for file in (*schema.imports, schema.file):
        messages.update(messages_of(file.message_type, file.package))
    package = schema.file.package
    first = schema.file.message_type[0].name
    name = message or (f"{package}.{first}" if package else first)
    if name not in messages:
        raise InvalidSchema(f"it has no message {name}; {did_you_mean(name, messages, ', '.join(messages))}")
    files = FileDescriptorSet(file=[*schema.imports, plain_file(schema.file)])
    content = files.SerializeToString(deterministic=True)
    reading = ValueReading("protobuf", framed, files=content, message=name, transform=transform)
    return _noted(message_type(name, messages, ()), reading)
