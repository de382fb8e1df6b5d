"""[core] Events that are not Avro, as the columns that a view sees: JSON, CSV, JSON Schema, Protobuf.

All checks of a view (its columns, their kinds, which checkpoint fits) work on an Avro record. So the schema
of every format is converted to one, with a ``ValueReading`` under ``hub`` that says how events are read. Avro
schemas have no such note and are not changed.

::

    declared columns (Spark's DDL) ─┐
    JSON Schema ────────────────────┼─▶ Avro record + Reading ─▶ DDL for from_json, from_csv
    Protobuf descriptor ────────────┘                            descriptors for the Protobuf reader
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

import orjson
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from hub.materializers.types.avro_types import AvroType, spark_types
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema

Form = Literal["json", "csv", "protobuf"]

# Key of a field with a default: null is also a value of the property, and stays null.
ADMITS_NULL = "admits_null"
_NOTE = "hub"
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class ValueReading:
    """Rules for converting an event's bytes to columns.

    ``framed``: the value follows Confluent's five bytes; otherwise it is the record's whole value.
    ``separator``: CSV's separator. ``null``: CSV's text for null. ``files``: Protobuf's FileDescriptorSet.
    ``message``: full name of the message in it that is read.
    """

    form: Form
    framed: bool
    separator: str = ","
    null: str = ""
    files: bytes = b""
    message: str = ""


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
    return {**schema, _NOTE: body}


def declared(
    form: Literal["json", "csv"], columns: Mapping[str, str], *, separator: str = ",", null: str = ""
) -> AvroType:
    """Return the schema of events without a schema id. ``columns``: types by name, in Spark's DDL.

    Raises ValueError with what is wrong with a column's type.
    """
    fields = [_optional(name, of_ddl(text)) for name, text in columns.items()]
    schema = {"type": "record", "name": "event", "fields": fields}
    return _noted(schema, ValueReading(form, False, separator, null))


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
        for _, message in _messages(file.message_type, file.package):
            for each in message.field:
                each.ClearField("default_value")
    return _noted(plain, replace(reading, files=files.SerializeToString(deterministic=True)))


def _optional(name: str, avro_type: AvroType) -> dict[str, Any]:
    return {"name": name, "type": ["null", avro_type], "default": None}


# ---- Spark's DDL

_WORD = re.compile(r"\s*([A-Za-z_]\w*|`(?:[^`]|``)+`|\d+|[<>(),:])")
_SCALARS: Mapping[str, AvroType] = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "int",
    "byte": "int",
    "smallint": "int",
    "short": "int",
    "int": "int",
    "integer": "int",
    "bigint": "long",
    "long": "long",
    "float": "float",
    "real": "float",
    "double": "double",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
TYPE_NAMES = (*_SCALARS, "decimal", "array", "map", "struct")


class UnknownType(ValueError):
    """An invalid type. ``word``: the word in the place of a type."""

    def __init__(self, word: str, said: str) -> None:
        super().__init__(said)
        self.word = word


def of_ddl(text: str) -> AvroType:
    """Parse a type in Spark's DDL to Avro, such as ``array<struct<sku: string, qty: int>>``. Raises
    UnknownType.

    >>> of_ddl("map<string, bigint>")
    {'type': 'map', 'values': ['null', 'long']}
    """
    words, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        found = _WORD.match(stripped, at)
        if found is None:
            raise UnknownType(
                stripped[at:], f"`{text}` is no type: `{stripped[at:].strip()}` is not read here"
            )
        words.append(found[1])
        at = found.end()
    reader = _Ddl(text, words)
    made = reader.type(0)
    if reader.left():
        raise UnknownType(text, f"`{text}` is no type: `{' '.join(reader.left())}` is too much")
    return made


class _Ddl:
    def __init__(self, text: str, words: list[str]) -> None:
        self._text, self._words, self._at, self._records = text, words, 0, 0

    def left(self) -> list[str]:
        return self._words[self._at :]

    def type(self, depth: int) -> AvroType:
        word = self._next("a type").lower()
        if depth > _DEEPEST:
            raise UnknownType(word, f"`{self._text[:60]}` is nested deeper than {_DEEPEST}")
        if word in _SCALARS:
            return _SCALARS[word]
        match word:
            case "decimal" | "numeric" | "dec":
                return self._decimal()
            case "array":
                self._expect("<")
                items = self.type(depth + 1)
                self._expect(">")
                return {"type": "array", "items": ["null", items]}
            case "map":
                self._expect("<")
                key = self._next("string")
                if key.lower() != "string":
                    raise UnknownType(key, f"`{self._text}`: a map's keys are text: map<string, …>")
                self._expect(",")
                values = self.type(depth + 1)
                self._expect(">")
                return {"type": "map", "values": ["null", values]}
            case "struct":
                return self._struct(depth)
        raise UnknownType(word, f"`{self._text}`: there is no type `{word}`")

    def _decimal(self) -> AvroType:
        precision, scale = 10, 0
        if self._words[self._at : self._at + 1] == ["("]:
            self._expect("(")
            precision = self._number()
            if self._words[self._at : self._at + 1] == [","]:
                self._expect(",")
                scale = self._number()
            self._expect(")")
        if not (0 < precision <= 38 and scale <= precision):
            raise UnknownType(
                "decimal", f"`{self._text}`: a decimal has up to 38 digits, and not more behind the point"
            )
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def _struct(self, depth: int) -> AvroType:
        self._records += 1
        name = f"struct{self._records}"
        fields = []
        self._expect("<")
        while True:
            field = self._next("a name").strip("`").replace("``", "`")
            if self._words[self._at : self._at + 1] == [":"]:
                self._expect(":")
            fields.append(_optional(field, self.type(depth + 1)))
            if self._words[self._at : self._at + 1] != [","]:
                break
            self._expect(",")
        self._expect(">")
        return {"type": "record", "name": name, "fields": fields}

    def _next(self, what: str) -> str:
        if self._at >= len(self._words):
            raise UnknownType("", f"`{self._text}` is no type: {what} is missing at its end")
        self._at += 1
        return self._words[self._at - 1]

    def _expect(self, word: str) -> None:
        found = self._next(f"`{word}`")
        if found != word:
            raise UnknownType(found, f"`{self._text}` is no type: `{word}` must stand where `{found}` stands")

    def _number(self) -> int:
        found = self._next("a number")
        if not found.isdecimal():
            raise UnknownType(found, f"`{self._text}` is no type: `{found}` is no number")
        return int(found)


def ddl_of(avro_type: AvroType) -> str:
    """Return a type in Spark's DDL.

    >>> ddl_of(of_ddl("struct<sku: string, qty: int>"))
    'struct<`sku`:string,`qty`:int>'
    """
    return _ddl_of(avro_type)


def columns_ddl(schema: AvroType, columns: Iterable[str]) -> list[str]:
    """Return the given columns of a record as DDL, each ```name`:type``."""
    types = {field["name"]: field["type"] for field in schema["fields"]}
    return [f"{_quoted(name)}:{_ddl_of(types[name])}" for name in columns]


def _ddl_of(avro_type: AvroType) -> str:
    if isinstance(avro_type, list):
        return _ddl_of(next(branch for branch in avro_type if branch != "null"))
    if isinstance(avro_type, Mapping):
        match avro_type["type"]:
            case "array":
                return f"array<{_ddl_of(avro_type['items'])}>"
            case "map":
                return f"map<string,{_ddl_of(avro_type['values'])}>"
            case "record":
                parts = (
                    f"{_quoted(field['name'])}:{_ddl_of(field['type'])}" for field in avro_type["fields"]
                )
                return f"struct<{','.join(parts)}>"
    return spark_types({"type": "record", "name": "one", "fields": [{"name": "v", "type": avro_type}]})["v"]


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


# ---- JSON Schema


def of_json_schema(schema: JsonSchema) -> AvroType:
    """Return the columns of a JSON Schema's object. Raises InvalidSchema when the schema describes no object.

    Values without one clear type (``{}``, several types, a nested object without properties) become their
    JSON text.
    """
    documents = {name: each.raw for name, each in schema.named.items()}
    reader = _JsonSchemaReader(schema.raw, documents)
    found = reader.type(schema.raw, schema.raw, ())
    if not isinstance(found, Mapping) or found.get("type") != "record":
        raise InvalidSchema("the schema describes no object with properties: a view's columns are those")
    return found


_FORMATS: Mapping[str, AvroType] = {"date-time": _SCALARS["timestamp"], "date": _SCALARS["date"]}
_OF_KIND: Mapping[str, AvroType] = {"integer": "long", "number": "double", "boolean": "boolean"}
# Types that Kafka Connect notes as ``connect.type`` because JSON Schema has no word for them.
_OF_CONNECT: Mapping[str, AvroType] = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float32": "float",
    "float64": "double",
    "bytes": "bytes",
}


class _JsonSchemaReader:
    def __init__(self, own: Any, named: Mapping[str, Any]) -> None:
        self._own, self._named, self._records = own, named, 0

    def type(self, node: Any, document: Any, within: tuple[int, ...]) -> AvroType:
        """Return the type of a node. ``within``: identities of the enclosing nodes; a node in itself becomes
        its JSON text."""
        if not isinstance(node, Mapping) or id(node) in within or len(within) > _DEEPEST * 4:
            return "string"
        within = (*within, id(node))
        if isinstance(node.get("$ref"), str):
            target, document = self._resolved(node["$ref"], document)
            return self.type(target, document, within)
        node = self._merged(node, document, set())
        for key in ("oneOf", "anyOf"):
            if isinstance(node.get(key), list) and "properties" not in node:
                return self._one_of(node[key], document, within)
        kinds = node.get("type")
        if isinstance(kinds, list):
            kinds = [each for each in kinds if each != "null"]
            kind = kinds[0] if len(kinds) == 1 else "number" if set(kinds) == {"integer", "number"} else None
        else:
            kind = kinds
        if isinstance(node.get("properties"), Mapping) and kind in (None, "object"):
            return self._record(node["properties"], document, within)
        if kind == "object":
            values = node.get("additionalProperties")
            if isinstance(values, Mapping) and values:
                return {"type": "map", "values": ["null", self.type(values, document, within)]}
            return "string"
        if kind == "array":
            items = node.get("items")
            return {"type": "array", "items": ["null", self.type(items, document, within)]}
        connect = node.get("connect.type")
        if kind in ("integer", "number") and connect in _OF_CONNECT and connect != "bytes":
            return _OF_CONNECT[connect]
        if kind == "string":
            if node.get("contentEncoding") == "base64" or connect == "bytes":
                return "bytes"
            return _FORMATS.get(str(node.get("format")), "string")
        return _OF_KIND.get(str(kind), "string")

    def _one_of(self, nodes: list[Any], document: Any, within: tuple[int, ...]) -> AvroType:
        """Return the type of alternatives: the only type besides null; for several objects, their properties;
        else JSON text."""
        branches = [each for each in nodes if not (isinstance(each, Mapping) and each.get("type") == "null")]
        types = [self.type(each, document, within) for each in branches]
        if not types:
            return "string"
        if all(isinstance(each, Mapping) and each.get("type") == "record" for each in types):
            fields: dict[str, Any] = {}
            for each in types:
                for field in each["fields"]:
                    same = fields.get(field["name"], field)["type"] == field["type"]
                    fields[field["name"]] = field if same else _optional(field["name"], "string")
            return {**types[0], "fields": list(fields.values())}
        return types[0] if all(each == types[0] for each in types) else "string"

    def _record(self, properties: Mapping[str, Any], document: Any, within: tuple[int, ...]) -> AvroType:
        self._records += 1
        name = f"object{self._records}"
        fields = [
            {**_optional(each, self.type(inner, document, within)), **self._default(inner, document)}
            for each, inner in properties.items()
        ]
        return {"type": "record", "name": name, "fields": fields}

    def _default(self, node: Any, document: Any) -> dict[str, Any]:
        """Return a property's default and if it may be null; {} if it has no default."""
        for _ in range(_DEEPEST):
            if not isinstance(node, Mapping):
                return {}
            if "default" in node or not isinstance(node.get("$ref"), str):
                break
            node, document = self._resolved(node["$ref"], document)
        if not isinstance(node, Mapping):
            return {}
        default = self._merged(node, document, set()).get("default")
        if default is None:
            return {}
        return {"default": default, **({ADMITS_NULL: True} if self._admits_null(node, document, 0) else {})}

    def _admits_null(self, node: Any, document: Any, depth: int) -> bool:
        if not isinstance(node, Mapping) or depth > _DEEPEST:
            return node is True
        if isinstance(node.get("$ref"), str):
            return self._admits_null(*self._resolved(node["$ref"], document), depth + 1)
        kinds = node.get("type")
        if kinds is not None:
            return "null" in (kinds if isinstance(kinds, list) else [kinds])
        for key in ("oneOf", "anyOf"):
            if isinstance(node.get(key), list):
                return any(self._admits_null(each, document, depth + 1) for each in node[key])
        if isinstance(node.get("allOf"), list):
            return all(self._admits_null(each, document, depth + 1) for each in node["allOf"])
        return None in node["enum"] if isinstance(node.get("enum"), list) else node.get("const") is None

    def _merged(self, node: Mapping[str, Any], document: Any, seen: set[int]) -> Mapping[str, Any]:
        """Return a node with the properties that its ``allOf`` adds."""
        parts = node.get("allOf")
        if not isinstance(parts, list) or id(node) in seen:
            return node
        seen.add(id(node))
        found = {key: value for key, value in node.items() if key != "allOf"}
        properties: dict[str, Any] = {}
        for each in parts:
            part, document_ = each, document
            while isinstance(part, Mapping) and isinstance(part.get("$ref"), str) and id(part) not in seen:
                seen.add(id(part))
                part, document_ = self._resolved(part["$ref"], document_)
            if isinstance(part, Mapping) and document_ is document:
                part = self._merged(part, document_, seen)
                properties |= part.get("properties") or {}
                found = {**{k: v for k, v in part.items() if k != "$ref"}, **found}
        properties |= node.get("properties") or {}
        return {**found, "properties": properties} if properties else found

    def _resolved(self, ref: str, document: Any) -> tuple[Any, Any]:
        file, _, pointer = ref.partition("#")
        if file:
            document = self._named.get(file)
        found = document
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(step)] if step.isdecimal() and int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, Mapping) else None
        return (found if pointer.startswith("/") or not pointer else None), document


# ---- Protobuf

_KIND = FieldDescriptorProto
_OF_PROTOBUF: Mapping[int, AvroType] = {
    _KIND.TYPE_DOUBLE: "double",
    _KIND.TYPE_FLOAT: "float",
    _KIND.TYPE_INT32: "int",
    _KIND.TYPE_SINT32: "int",
    _KIND.TYPE_SFIXED32: "int",
    _KIND.TYPE_UINT32: "long",
    _KIND.TYPE_FIXED32: "long",
    _KIND.TYPE_INT64: "long",
    _KIND.TYPE_SINT64: "long",
    _KIND.TYPE_SFIXED64: "long",
    # An unsigned 64-bit value may exceed BIGINT.
    _KIND.TYPE_UINT64: {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
    _KIND.TYPE_FIXED64: {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0},
    _KIND.TYPE_BOOL: "boolean",
    _KIND.TYPE_STRING: "string",
    _KIND.TYPE_BYTES: "bytes",
    _KIND.TYPE_ENUM: "string",
}
# Well-known messages by meaning. Other messages of google.protobuf are read like any message.
WELL_KNOWN: Mapping[str, AvroType] = {
    "google.protobuf.Timestamp": _SCALARS["timestamp"],
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int64Value": "long",
    "google.protobuf.UInt64Value": _OF_PROTOBUF[_KIND.TYPE_UINT64],
    "google.protobuf.Int32Value": "int",
    "google.protobuf.UInt32Value": "long",
    "google.protobuf.BoolValue": "boolean",
    "google.protobuf.StringValue": "string",
    "google.protobuf.BytesValue": "bytes",
    # Values of any type become their JSON text.
    "google.protobuf.Struct": "string",
    "google.protobuf.Value": "string",
    "google.protobuf.ListValue": "string",
}


def of_protobuf(schema: ProtobufSchema) -> AvroType:
    """Return the columns of a .proto file's first message, with the files for its reader. Omits a message
    inside itself.

    Raises InvalidSchema when the file has no message.
    """
    if not schema.file.message_type:
        raise InvalidSchema("the schema has no message")
    messages: dict[str, DescriptorProto] = {}
    for file in (*schema.imports, schema.file):
        messages.update(_messages(file.message_type, file.package))
    first = schema.file.message_type[0]
    package = schema.file.package
    name = f"{package}.{first.name}" if package else first.name
    files = FileDescriptorSet(file=[*schema.imports, _plain(schema.file)])
    reading = ValueReading("protobuf", True, files=files.SerializeToString(deterministic=True), message=name)
    return _noted(_message_type(name, messages, ()), reading)


def _plain(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return the file with a name: a descriptor pool identifies files by name."""
    if file.name:
        return file
    named = FileDescriptorProto()
    named.CopyFrom(file)
    named.name = "event.proto"
    return named


def _messages(found: Any, package: str) -> Iterator[tuple[str, DescriptorProto]]:
    for each in found:
        name = f"{package}.{each.name}" if package else each.name
        yield name, each
        yield from _messages(each.nested_type, name)


def _message_type(name: str, messages: Mapping[str, DescriptorProto], within: tuple[str, ...]) -> AvroType:
    fields = []
    for field in messages[name].field:
        of = _field_type(field, messages, (*within, name))
        if of is not None:
            # The default's text distinguishes two schemas; Protobuf's library gives its value.
            default = {"default": field.default_value} if field.HasField("default_value") else {}
            fields.append({**_optional(field.name, of), **default})
    return {"type": "record", "name": name.replace(".", "_"), "fields": fields}


def _field_type(
    field: FieldDescriptorProto, messages: Mapping[str, DescriptorProto], within: tuple[str, ...]
) -> AvroType | None:
    """Return a field's type; None for a message inside itself."""
    of: AvroType | None
    if field.type in (_KIND.TYPE_MESSAGE, _KIND.TYPE_GROUP):
        name = field.type_name.lstrip(".")
        message = messages[name]
        if message.options.map_entry:
            value = _field_type(message.field[1], messages, within)
            return None if value is None else {"type": "map", "values": ["null", value]}
        if name in WELL_KNOWN:
            of = WELL_KNOWN[name]
        elif name in within or len(within) > _DEEPEST:
            return None
        else:
            of = _message_type(name, messages, within)
            if not of["fields"]:  # Spark's Avro has no record without fields; only its presence is kept
                of = "boolean"
    else:
        of = _OF_PROTOBUF[field.type]
    return {"type": "array", "items": ["null", of]} if field.label == _KIND.LABEL_REPEATED else of
