"""[core] Avro schemas as a view needs them: projected for reading, derived for writing.

Reading: a *projection* is a reader schema with only the used fields, each nullable with default null, so that every
writer version resolves to one row type and unused fields are skipped, not decoded (Avro 1.12, Schema Resolution).
It carries one field more, ``PROOF``, that no writer has: its default is there after a successful decode and missing
after a failed one, which Spark's permissive mode would otherwise make look like a row of nulls.

All writers of all of a view's sources are read through one pair of unions, ``united``: Spark pays for each decoding
expression again in every task, more than for the events of a small batch.

Writing: a changelog's schema follows from Spark's row type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from hub.errors import CallerError

AvroType = Any  # a parsed Avro schema: a name, a list (union) or a mapping, as the specification has it

PROOF = "_decoded"
_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}

Kind = Literal["integer", "floating", "decimal", "string", "boolean", "timestamp", "date", "other"]


def field_types(schema: AvroType) -> dict[str, AvroType]:
    """A record schema's fields: name to type. Raises CallerError when the schema is no record."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise CallerError(
            "an event's schema must be an Avro record", hint="wrap the value in a record with one field"
        )
    return {field["name"]: field["type"] for field in schema["fields"]}


def kind(avro_type: AvroType) -> Kind:
    """What sort of value a type holds, for typing aggregates; unions with null count as their other branch."""
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return kind(branches[0]) if len(branches) == 1 else "other"
    if isinstance(avro_type, Mapping):
        logical = avro_type.get("logicalType")
        if logical in ("timestamp-millis", "timestamp-micros"):
            return "timestamp"
        if logical in ("date", "decimal"):
            return cast(Kind, logical)
        if avro_type["type"] == "enum":
            return "string"
        return kind(avro_type["type"]) if avro_type["type"] in _PRIMITIVES else "other"
    by_name: dict[str, Kind] = {
        "int": "integer",
        "long": "integer",
        "float": "floating",
        "double": "floating",
        "string": "string",
        "boolean": "boolean",
    }
    return by_name.get(avro_type, "other")


def has_map(avro_type: AvroType) -> bool:
    """Whether a map is defined anywhere in it."""
    if isinstance(avro_type, Mapping):
        return avro_type.get("type") == "map" or any(
            has_map(avro_type.get(part)) for part in ("type", "items", "fields")
        )
    return isinstance(avro_type, list) and any(map(has_map, avro_type))


def has_micros(avro_type: AvroType) -> bool:
    """Whether it is a time finer than milliseconds."""
    if isinstance(avro_type, list):
        return any(map(has_micros, avro_type))
    return isinstance(avro_type, Mapping) and avro_type.get("logicalType") == "timestamp-micros"


def project(schema: AvroType, columns: Iterable[str], *, read_as: AvroType | None = None) -> AvroType:
    """The reader schema of those columns of ``schema``, named like the writer ``read_as`` (default: itself).

    Avro resolves records by name, and a topic's writers may have renamed theirs, so each writer gets the same
    columns under its own record name. Named types are spelled out at first use, wherever the source defined them.
    """
    wanted = set(columns)
    writer = schema if read_as is None else read_as
    definitions = dict(_named_types(schema, ""))
    emitted: set[str] = set()
    namespace = schema.get("namespace", "")
    fields: list[AvroType] = [
        {
            "name": name,
            "type": _nullable(_spelled_out(avro_type, namespace, definitions, emitted)),
            "default": None,
        }
        for name, avro_type in field_types(schema).items()
        if name in wanted
    ]
    fields.append({"name": PROOF, "type": "boolean", "default": True})
    name, _, in_namespace = _full_name(writer, "").rpartition(".")[::-1]
    projected = {"type": "record", "name": name, "fields": fields}
    return {**projected, "namespace": in_namespace} if in_namespace else projected


def united(schemas: Sequence[AvroType]) -> AvroType:
    """A record whose one field, ``one``, is the union of these: branch 0 is empty and never used, the n-th schema is
    branch n + 1. (Spark decodes records only; a record adds no bytes.)

    Branches of a union need names of their own and an event's bytes carry none, so all names of the n-th schema get
    the namespace ``_n``: a writers' and a readers' union in the same order resolve branch by branch.
    """
    nothing = {"type": "record", "name": "_none", "fields": []}
    branches = [nothing, *(_moved(each, f"_{n}", "", set()) for n, each in enumerate(schemas))]
    return {"type": "record", "name": "_event", "fields": [{"name": "one", "type": branches}]}


def branch_bytes(n: int) -> bytes:
    """What stands before the bytes of an event of the n-th schema of ``united``: the branch as Avro writes longs."""
    left, out = (n + 1) << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def _moved(avro_type: AvroType, into: str, namespace: str, defined: set[str]) -> AvroType:
    """The same type with all names inside the namespace ``into``."""

    def full(name: str) -> str:
        known = name if "." in name or not namespace else f"{namespace}.{name}"
        return f"{into}.{known if known in defined else name}"

    if isinstance(avro_type, list):
        return [_moved(branch, into, namespace, defined) for branch in avro_type]
    if isinstance(avro_type, str):
        return avro_type if avro_type in _PRIMITIVES else full(avro_type)
    moved = dict(avro_type)
    if avro_type["type"] in ("record", "enum", "fixed", "error"):
        own = _full_name(avro_type, namespace)
        defined.add(own)
        namespace = own.rpartition(".")[0]
        moved["namespace"], _, moved["name"] = f"{into}.{own}".rpartition(".")
        if "aliases" in moved:
            beside = [
                alias if "." in alias or not namespace else f"{namespace}.{alias}"
                for alias in moved["aliases"]
            ]
            moved["aliases"] = [f"{into}.{alias}" for alias in beside]
        if "fields" in moved:
            moved["fields"] = [
                {**field, "type": _moved(field["type"], into, namespace, defined)}
                for field in moved["fields"]
            ]
    elif not isinstance(avro_type["type"], str) or avro_type["type"] in defined:
        moved["type"] = _moved(avro_type["type"], into, namespace, defined)
    for part in ("items", "values"):
        if part in moved:
            moved[part] = _moved(moved[part], into, namespace, defined)
    return moved


def _nullable(avro_type: AvroType) -> list[AvroType]:
    """The union of null and the type, null first so that null can be the default."""
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    return ["null", *(branch for branch in branches if branch != "null")]


def _full_name(named: AvroType, namespace: str) -> str:
    name = str(named["name"])
    if "." in name:
        return name
    inside = named.get("namespace", namespace)
    return f"{inside}.{name}" if inside else name


def _named_types(avro_type: AvroType, namespace: str) -> Iterator[tuple[str, AvroType]]:
    """Every named type defined within, by full name."""
    if isinstance(avro_type, list):
        for branch in avro_type:
            yield from _named_types(branch, namespace)
    elif isinstance(avro_type, Mapping):
        inner = avro_type["type"]
        if inner in ("record", "enum", "fixed", "error"):
            full = _full_name(avro_type, namespace)
            yield full, avro_type
            for field in avro_type.get("fields", ()):
                yield from _named_types(field["type"], full.rpartition(".")[0])
        for part in ("items", "values"):
            if part in avro_type:
                yield from _named_types(avro_type[part], namespace)
        if isinstance(inner, Mapping | list):
            yield from _named_types(inner, namespace)


def _spelled_out(
    avro_type: AvroType, namespace: str, definitions: Mapping[str, AvroType], emitted: set[str]
) -> AvroType:
    """The type with each named type defined at its first use (in ``emitted`` order) and full names everywhere."""
    if isinstance(avro_type, list):
        return [_spelled_out(branch, namespace, definitions, emitted) for branch in avro_type]
    if isinstance(avro_type, str):
        if avro_type in _PRIMITIVES:
            return avro_type
        full = avro_type if "." in avro_type or not namespace else f"{namespace}.{avro_type}"
        if full not in definitions:
            full = avro_type
        if full in emitted:
            return full
        return _definition(definitions[full], full, definitions, emitted)
    inner = avro_type["type"]
    if inner in ("record", "enum", "fixed", "error"):
        return _definition(avro_type, _full_name(avro_type, namespace), definitions, emitted)
    spelled = dict(avro_type)
    for part in ("items", "values"):
        if part in spelled:
            spelled[part] = _spelled_out(spelled[part], namespace, definitions, emitted)
    if isinstance(inner, Mapping | list):
        spelled["type"] = _spelled_out(inner, namespace, definitions, emitted)
    return spelled


def _definition(
    named: AvroType, full: str, definitions: Mapping[str, AvroType], emitted: set[str]
) -> AvroType:
    if full in emitted:
        return full
    emitted.add(full)
    namespace, _, name = full.rpartition(".")
    spelled = {**named, "name": name, "namespace": namespace}
    if "fields" in named:
        spelled["fields"] = [
            {**field, "type": _spelled_out(field["type"], namespace, definitions, emitted)}
            for field in named["fields"]
        ]
    return spelled


# How Spark reads Avro's types, as its DDL writes them (Avro Data Source Guide, "Supported types").
_READ: Mapping[str, str] = {
    "null": "void",
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}
_READ_LOGICAL: Mapping[str, str] = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "date": "date",
}


def spark_types(schema: AvroType) -> dict[str, str]:
    """A record schema's fields as Spark types them, in DDL; "" for a type that only Spark can tell."""
    definitions = dict(_named_types(schema, ""))
    namespace = schema.get("namespace", "") if isinstance(schema, Mapping) else ""
    return {
        name: _spark_type(avro_type, namespace, definitions, 0)
        for name, avro_type in field_types(schema).items()
    }


def _spark_type(avro_type: AvroType, namespace: str, definitions: Mapping[str, AvroType], depth: int) -> str:
    def inner(of: AvroType, inside: str = namespace) -> str:
        return _spark_type(of, inside, definitions, depth + 1)

    if depth > 32:
        return ""
    if isinstance(avro_type, list):
        branches = [branch for branch in avro_type if branch != "null"]
        return inner(branches[0]) if len(branches) == 1 else ""
    if isinstance(avro_type, str):
        if avro_type in _READ:
            return _READ[avro_type]
        known = definitions.get(avro_type) or definitions.get(f"{namespace}.{avro_type}")
        return inner(known) if known is not None else ""
    logical, of = avro_type.get("logicalType"), avro_type["type"]
    if logical == "decimal":
        return f"decimal({avro_type['precision']},{avro_type.get('scale', 0)})"
    if logical in _READ_LOGICAL:
        return _READ_LOGICAL[logical]
    if of == "array":
        item = inner(avro_type["items"])
        return f"array<{item}>" if item else ""
    if of == "map":
        value = inner(avro_type["values"])
        return f"map<string,{value}>" if value else ""
    if of in ("record", "error"):
        inside = _full_name(avro_type, namespace).rpartition(".")[0]
        parts = {field["name"]: inner(field["type"], inside) for field in avro_type["fields"]}
        listed = ",".join(f"{name}:{part}" for name, part in parts.items())
        return f"struct<{listed}>" if all(parts.values()) else ""
    if isinstance(of, str):
        return "" if (logical or "").startswith("time-") else _READ.get(of, "")
    return inner(of)


# Spark's names for its types (StructType.jsonValue) and how a changelog writes them.
_WRITTEN: Mapping[str, AvroType] = {
    "string": "string",
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "timestamp": {"type": "long", "logicalType": "timestamp-millis"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-millis"},
    "date": {"type": "int", "logicalType": "date"},
}


def changelog_schema(
    view: str, row_fields: Sequence[Mapping[str, Any]], *, required: Iterable[str]
) -> AvroType:
    """The Avro schema of a view's rows from Spark's fields (``StructType.jsonValue()["fields"]``).

    Every field is nullable with default null, so any change of a view that adds or drops fields is compatible in
    both directions; ``required`` ones are not nullable. Raises CallerError for types that Avro cannot hold.
    """
    must = set(required)
    fields = []
    for field in row_fields:
        written = _written(field["type"], f"views.{view}", field["name"])
        if field["name"] in must:
            fields.append({"name": field["name"], "type": written})
        else:
            fields.append({"name": field["name"], "type": ["null", written], "default": None})
    return {"type": "record", "name": view, "namespace": "views", "fields": fields}


def _written(spark_type: Any, namespace: str, name: str) -> AvroType:
    if isinstance(spark_type, str):
        if spark_type.startswith("decimal"):
            precision, scale = spark_type.removeprefix("decimal(").rstrip(")").split(",")
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": int(precision),
                "scale": int(scale),
            }
        if spark_type in _WRITTEN:
            return _WRITTEN[spark_type]
        raise CallerError(
            f'view "{namespace.removeprefix("views.")}": field "{name}" has the type {spark_type}',
            hint="cast it: a row can hold numbers, text, booleans, times, dates, arrays, maps and structs",
            code="HUB-2104",
        )
    if spark_type["type"] == "array":
        return {"type": "array", "items": ["null", _written(spark_type["elementType"], namespace, name)]}
    if spark_type["type"] == "map":
        return {"type": "map", "values": ["null", _written(spark_type["valueType"], namespace, name)]}
    return {
        "type": "record",
        "name": name,
        "namespace": namespace,
        "fields": [
            {
                "name": field["name"],
                "type": ["null", _written(field["type"], f"{namespace}.{name}", field["name"])],
                "default": None,
            }
            for field in spark_type["fields"]
        ],
    }
