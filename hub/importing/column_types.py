"""[core] Types of columns, as ksqlDB writes them, and as Spark, Avro, JSON Schema and Protobuf have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.importing.report import NotTranslated
from hub.importing.statements import StatementReader, Token
from hub.materializers.types.ddl import of_ddl

_SPARK: Mapping[str, str] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "INTEGER": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "REAL": "float",
    "DOUBLE": "double",
    "VARCHAR": "string",
    "STRING": "string",
    "CHAR": "string",
    "BYTES": "binary",
    "VARBINARY": "binary",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMP_LTZ": "timestamp",
}
_JSON = {"boolean": "boolean", "int": "integer", "bigint": "integer", "float": "number", "double": "number"}
_PROTO = {
    "boolean": "bool",
    "int": "int32",
    "bigint": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "timestamp": "google.protobuf.Timestamp",
}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type. ``name``: Spark's scalar, or decimal, array, map, struct. ``parts``: of an array its element,
    of a map its key and value, of a struct its fields, named by ``names``. ``args``: precision and scale of a
    decimal."""

    name: str
    parts: tuple[ColumnType, ...] = ()
    names: tuple[str, ...] = ()
    args: tuple[int, ...] = ()

    @property
    def ddl(self) -> str:
        """The type in Spark's DDL."""
        match self.name:
            case "struct":
                fields = ", ".join(
                    f"{name}: {part.ddl}" for name, part in zip(self.names, self.parts, strict=True)
                )
                return f"struct<{fields}>"
            case "array" | "map":
                return f"{self.name}<{', '.join(part.ddl for part in self.parts)}>"
            case "decimal":
                return f"decimal({', '.join(map(str, self.args))})"
        return self.name


def type_of(tokens: Sequence[Token], own: Mapping[str, ColumnType]) -> ColumnType:
    """Read a type. ``own``: those of CREATE TYPE, by upper-case name. Raises NotTranslated."""
    reader = StatementReader("", tokens)
    column_type = read_type(reader, own)
    if not reader.ended:
        raise NotTranslated(f'"{reader.shown()}" is not expected behind a type', "remove it")
    return column_type


def read_type(reader: StatementReader, own: Mapping[str, ColumnType]) -> ColumnType:
    """Read a type, and pass it. Raises NotTranslated."""
    name = reader.next().text.upper()
    if name in ("ARRAY", "MULTISET"):
        reader.need("<")
        column_type = ColumnType("array", (read_type(reader, own),))
        reader.need(">")
    elif name == "MAP":
        reader.need("<")
        key = read_type(reader, own)
        reader.need(",")
        column_type = ColumnType("map", (key, read_type(reader, own)))
        reader.need(">")
    elif name in ("STRUCT", "ROW"):
        column_type = _struct(reader, own)
    elif name in ("DECIMAL", "NUMERIC", "DEC"):
        column_type = ColumnType("decimal", args=(_arguments(reader) or (10, 0)))
    elif name in own:
        return own[name]
    elif name in _SPARK:
        _arguments(reader)
        column_type = ColumnType(_SPARK[name])
    else:
        raise NotTranslated(
            f"the type {name} does not exist in the hub",
            "take TIMESTAMP, or text" if name.startswith("TIME") else f"types: {', '.join(sorted(_SPARK))}",
        )
    if reader.take("WITH LOCAL TIME ZONE"):
        return ColumnType("timestamp")
    if not reader.take("NOT NULL"):
        reader.take("NULL")
    return column_type


def _arguments(reader: StatementReader) -> tuple[int, ...]:
    if reader.peek() != "(":
        return ()
    found = tuple(int(part[0].text) for part in reader.lists() if part and part[0].kind == "number")
    return found if len(found) != 1 else (*found, 0)


def _struct(reader: StatementReader, own: Mapping[str, ColumnType]) -> ColumnType:
    reader.need("<")
    names: list[str] = []
    parts: list[ColumnType] = []
    while not reader.take(">"):
        names.append(reader.next().text)
        parts.append(read_type(reader, own))
        reader.take(",")
    return ColumnType("struct", tuple(parts), tuple(names))


def avro_schema(name: str, columns: Mapping[str, ColumnType]) -> str:
    """Return the text of an Avro record with optional fields. ``name``: full name of the record."""
    space, _, own = name.rpartition(".")
    record: dict[str, Any] = {"type": "record", "name": own}
    if space:
        record["namespace"] = space
    record["fields"] = [
        {"name": each, "type": ["null", _named(of_ddl(type_.ddl), f"{own}_{each}")], "default": None}
        for each, type_ in columns.items()
    ]
    return json.dumps(record, indent=2) + "\n"


def _named(schema: Any, name: str) -> Any:
    """Give each record of a schema a name of its own, from its place, and each time milliseconds."""
    if isinstance(schema, list):
        return [_named(each, name) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("logicalType") == "timestamp-micros":
        return {**schema, "logicalType": "timestamp-millis"}
    named = {
        key: _named(value, name) if key in ("items", "values") else value for key, value in schema.items()
    }
    if schema.get("type") == "record":
        named["name"] = name
        named["fields"] = [
            {**each, "type": _named(each["type"], f"{name}_{each['name']}")} for each in schema["fields"]
        ]
    return named


def json_schema(name: str, columns: Mapping[str, ColumnType]) -> str:
    """Return the text of a JSON Schema with optional properties."""
    body = {"title": name, "type": "object", "properties": {each: _json(of) for each, of in columns.items()}}
    return json.dumps(body, indent=2) + "\n"


def _json(type_: ColumnType) -> dict[str, Any]:
    match type_.name:
        case "struct":
            fields = zip(type_.names, type_.parts, strict=True)
            return {"type": "object", "properties": {name: _json(part) for name, part in fields}}
        case "array":
            return {"type": "array", "items": _json(type_.parts[0])}
        case "map":
            return {"type": "object", "additionalProperties": _json(type_.parts[1])}
        case "decimal":
            return {"type": "number"}
        case "timestamp":
            return {"type": "string", "format": "date-time"}
        case "date":
            return {"type": "string", "format": "date"}
    return {"type": _JSON.get(type_.name, "string")}


def protobuf_schema(name: str, columns: Mapping[str, ColumnType]) -> str:
    """Return the text of a Protobuf file with one message. Raises NotTranslated for a type that it lacks."""
    lines = ['syntax = "proto3";', ""]
    if any("timestamp" in each.ddl for each in columns.values()):
        lines += ['import "google/protobuf/timestamp.proto";', ""]
    return "\n".join([*lines, *_message(name, columns, "")]) + "\n"


def _message(name: str, columns: Mapping[str, ColumnType], indent: str) -> list[str]:
    lines = [f"{indent}message {name} {{"]
    for number, (column, type_) in enumerate(columns.items(), 1):
        inner = type_.parts[0] if type_.name == "array" else type_
        if inner.name == "struct":
            own = f"{column.title().replace('_', '')}Value"
            lines += _message(own, dict(zip(inner.names, inner.parts, strict=True)), indent + "  ")
            field_type = own
        elif inner.name == "map" and inner.parts[1].name in _PROTO:
            field_type = f"map<{_PROTO[inner.parts[0].name]}, {_PROTO[inner.parts[1].name]}>"
        elif inner.name in _PROTO:
            field_type = _PROTO[inner.name]
        else:
            raise NotTranslated(
                f"Protobuf has no type for {column} {type_.ddl}",
                "register the .proto file that the topic has",
            )
        lines.append(
            f"{indent}  {'repeated ' if type_.name == 'array' else ''}{field_type} {column} = {number};"
        )
    return [*lines, indent + "}"]
