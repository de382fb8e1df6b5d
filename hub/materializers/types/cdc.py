"""[core] Change events of Debezium as rows of their table.

A change event is an *envelope*: the row ``before`` and ``after`` a change, its ``op`` (c, r: a row; u: a
changed row; d: a deleted one; t: a truncated table), and its ``source``. A view that says ``cdc: debezium``
sees a record with the columns of the row and, from the envelope, ``_op``, ``_lsn`` (the change's place in the
database's log; null for databases without one) and ``_changed_at``. The record keeps the envelope's schema
under ``cdc``: events are decoded with it.

Types follow the names that Kafka Connect writes into schemas (``connect.name``):
https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-data-types
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hub.errors import ConfigError
from hub.materializers.types.avro_types import AvroType, kind
from hub.materializers.types.ddl import ddl_of, of_ddl, optional_field
from hub.materializers.types.source_formats import declared
from hub.materializers.types.spark_text import first_of, literal, quoted

NOTE = "cdc"
ENVELOPE = ("op", "before", "after", "source", "ts_ms", "payload")
# Columns of every row, from the envelope.
OP, LSN, CHANGED_AT = "_op", "_lsn", "_changed_at"
UNAVAILABLE = "__debezium_unavailable_value"
ROW_OPS = ("c", "r", "u")
Times = Literal["micros", "millis"]

_TIMESTAMP: AvroType = {"type": "long", "logicalType": "timestamp-micros"}
_DATE: AvroType = {"type": "int", "logicalType": "date"}
_OWN: Mapping[str, AvroType] = {OP: "string", LSN: "long", CHANGED_AT: _TIMESTAMP}


class NotAnEnvelope(ValueError):
    """A schema does not describe change events of Debezium."""


def not_an_envelope(view: str, source: str, error: NotAnEnvelope) -> ConfigError:
    """Return the error for a source with ``cdc: debezium`` whose topic has other events."""
    return ConfigError(
        f'view "{view}": source "{source}": cdc: debezium: {error}',
        hint="leave `cdc` out, or give the events an envelope: no ExtractNewRecordState in the connector",
        code="HUB-2154",
    )


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A type in Connect's words: the type that views see, and its expression over ``{}``."""

    type: AvroType
    sql: str


_OF_DAY = "date_format(timestamp_micros({}), 'HH:mm:ss.SSSSSS')"
_BY_NAME: Mapping[str, _Conversion] = {
    "io.debezium.time.Date": _Conversion(_DATE, "date_from_unix_date({})"),
    "io.debezium.time.Timestamp": _Conversion(_TIMESTAMP, "timestamp_millis({})"),
    "io.debezium.time.MicroTimestamp": _Conversion(_TIMESTAMP, "timestamp_micros({})"),
    "io.debezium.time.NanoTimestamp": _Conversion(_TIMESTAMP, "timestamp_micros({} div 1000)"),
    "io.debezium.time.ZonedTimestamp": _Conversion(_TIMESTAMP, "try_cast({} AS TIMESTAMP)"),
    "io.debezium.time.Time": _Conversion("string", _OF_DAY.replace("{}", "{} * 1000L")),
    "io.debezium.time.MicroTime": _Conversion("string", _OF_DAY),
    "io.debezium.time.NanoTime": _Conversion("string", _OF_DAY.replace("{}", "{} div 1000")),
    "org.apache.kafka.connect.data.Date": _Conversion(_DATE, "date_from_unix_date({})"),
    "org.apache.kafka.connect.data.Timestamp": _Conversion(_TIMESTAMP, "timestamp_millis({})"),
    "org.apache.kafka.connect.data.Time": _Conversion("string", _OF_DAY.replace("{}", "{} * 1000L")),
}
# Avro's converter writes Connect's own types as logical types, which Spark reads by itself.
_READ_BY_SPARK = ("date", "timestamp-millis", "timestamp-micros", "decimal")
# Converted in events without a schema: a number, or the ISO text of a column with a time zone.
_TIMES: Mapping[str, Mapping[Times, str]] = {
    "timestamp": {"micros": "timestamp_micros", "millis": "timestamp_millis"},
    "date": {"micros": "date_from_unix_date", "millis": "date_from_unix_date"},
}


def envelope_of(schema: AvroType) -> AvroType | None:
    """Return the schema of the envelope that a row's schema stands for; None: events are not envelopes."""
    return schema.get(NOTE, {}).get("envelope") if isinstance(schema, Mapping) else None


def wire_schema(schema: AvroType) -> AvroType:
    """Return the schema that events are written and decoded with: the envelope's, or the schema itself."""
    return envelope_of(schema) or schema


def declared_rows(columns: Mapping[str, str], times: Times) -> AvroType:
    """Return the row's schema of JSON events without a schema id. ``columns``: types by name, in Spark's DDL.

    Times and dates are read as text, which a number is, too. Envelopes are read at the top of an event and
    under ``payload``, where Connect puts them together with its own schema.
    """
    types = {name: of_ddl(text) for name, text in columns.items()}
    raw = ", ".join(f"{quoted(name)}: {_raw(of)}" for name, of in types.items())
    row, source = f"struct<{raw}>", "struct<lsn: bigint, ts_ms: bigint>"
    inner = f"op: string, before: {row}, after: {row}, source: {source}, ts_ms: bigint"
    envelope = declared(
        "json",
        {
            "op": "string",
            "before": row,
            "after": row,
            "source": source,
            "ts_ms": "bigint",
            "payload": f"struct<{inner}>",
        },
    )
    fields = [optional_field(name, of) for name, of in types.items()]
    return _noted(fields, envelope, {name: _by_unit(of, times) for name, of in types.items()})


def unwrapped(envelope: AvroType) -> AvroType:
    """Return the row's schema of an envelope's. Raises NotAnEnvelope."""
    if not isinstance(envelope, Mapping):
        raise NotAnEnvelope("its schema is not a record")
    names = _named(envelope, {})
    types = {field["name"]: field["type"] for field in envelope.get("fields", ())}
    missing = [name for name in ("op", "before", "after", "source") if name not in types]
    if missing:
        raise NotAnEnvelope(f"its schema has no field {', '.join(missing)}")
    row = _resolved(types["after"], names)
    if not isinstance(row, Mapping) or row.get("type") != "record":
        raise NotAnEnvelope("its field `after` is not a record")
    fields, sql = [], {}
    for field in row["fields"]:
        conversion = _converted(_resolved(field["type"], names))
        fields.append(optional_field(field["name"], conversion.type))
        sql[field["name"]] = conversion.sql
    return _noted(fields, envelope, sql)


def conversions(schema: AvroType, columns: Iterable[str]) -> dict[str, str]:
    """Return how values of the given columns are converted, by name; columns that are taken as they are are
    left out.
    """
    sql: Mapping[str, str] = schema[NOTE]["sql"]
    return {name: sql[name] for name in columns if sql.get(name, "{}") != "{}"}


def row_sql(schema: AvroType, columns: Iterable[str], event: str, image: Literal["row", "before"]) -> str:
    """Return a struct of the row's columns from a decoded envelope. ``image``: the row as the event leaves it
    (of a deleted one, as it was), or as it was before.
    """
    at = part(schema, event)
    sql: Mapping[str, str] = schema[NOTE]["sql"]
    row = at("before") if image == "before" else f"IF({at('op')} = 'd', {at('before')}, {at('after')})"
    own = {
        OP: at("op"),
        LSN: _source(schema, at, "lsn", "BIGINT"),
        CHANGED_AT: f"timestamp_millis({_source(schema, at, 'ts_ms', 'BIGINT')})",
    }
    parts = [
        f"{own[name] if name not in sql else sql[name].replace('{}', f'({row}).{quoted(name)}')} AS "
        f"{quoted(name)}"
        for name in columns
    ]
    return f"STRUCT({', '.join(parts)})" if parts else "STRUCT(1 AS _nothing)"


def in_envelope(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the envelope has a column of the row.

    >>> in_envelope(("name",)), in_envelope(("_lsn",))
    (('after', 'name'), ('source', 'lsn'))
    """
    own = {OP: ("op",), LSN: ("source", "lsn"), CHANGED_AT: ("source", "ts_ms")}
    return own.get(path[0], ("after", *path))


def refusal_sql(schema: AvroType, whole: Iterable[str], event: str, columns: Iterable[str] = ()) -> str:
    """Return why a decoded envelope cannot be a change of a row; null if it can. ``whole``: columns whose
    value must be in the event. ``columns``: those that are read at all: a new row has no earlier value.
    """
    at = part(schema, event)
    op = at("op")
    changes = one_of_texts(op, ROW_OPS)
    cases = [
        (f"{op} IS NULL", literal("it is no change event of Debezium: it has no op")),
        (
            f"{op} = 't'",
            literal(
                "the table was truncated: its rows stay until they are deleted: hub connector truncated TOPIC"
            ),
        ),
        (f"NOT ({changes} OR {op} = 'd')", f"concat('its op is ', {op}, ', which is no change of a row')"),
        (f"{changes} AND {at('after')} IS NULL", literal("it has no row in `after`")),
        (
            f"{op} = 'd' AND {at('before')} IS NULL",
            literal("a deletion without `before`: ALTER TABLE … REPLICA IDENTITY DEFAULT or FULL"),
        ),
    ]
    whole = frozenset(whole)
    for name in dict.fromkeys([*whole, *columns]):
        if (missing := unavailable_sql(schema, name, f"{at('after')}.{quoted(name)}")) is not None:
            message = f"its {name} is a TOAST value that did not change and is not in the event: "
            fix = "ALTER TABLE … REPLICA IDENTITY FULL"
            # Debezium writes a new primary key as a deletion and a new row.
            lacks = changes if name in whole else one_of_texts(op, ("c", "r"))
            cases.append((f"{lacks} AND coalesce({missing}, FALSE)", literal(message + fix)))
    return first_of(cases, "CAST(NULL AS STRING)")


def unavailable_sql(schema: AvroType, name: str, value: str) -> str | None:
    """Return the condition that a column's value is the placeholder of an unchanged TOAST value; None for a
    column that cannot hold it.
    """
    if schema[NOTE]["sql"].get(name) != "{}":
        return None
    of = next(field["type"] for field in schema["fields"] if field["name"] == name)
    if _without_null(of) == "bytes":
        return f"CAST({value} AS STRING) = {literal(UNAVAILABLE)}"
    return f"{value} = {literal(UNAVAILABLE)}" if kind(of) == "string" else None


def may_be_unavailable(schema: AvroType) -> frozenset[str]:
    """Return the columns that may hold the placeholder; none of events without an envelope."""
    if envelope_of(schema) is None:
        return frozenset()
    names = (field["name"] for field in schema["fields"])
    return frozenset(name for name in names if unavailable_sql(schema, name, "x") is not None)


def moved_sql(schema: AvroType, event: str) -> str:
    """Return the condition that a decoded envelope has the row before an update: its key may be another."""
    at = part(schema, event)
    return f"coalesce({at('op')} = 'u' AND {at('before')} IS NOT NULL, FALSE)"


def part(schema: AvroType, event: str) -> Callable[[str], str]:
    """Return the expression of a part of the envelope, which Connect's JSON has under ``payload``."""
    nested = any(field["name"] == "payload" for field in schema[NOTE]["envelope"]["fields"])
    if not nested:
        return lambda name: f"{event}.{name}"
    return lambda name: f"IF({event}.payload IS NULL, {event}.{name}, {event}.payload.{name})"


def one_of_texts(value: str, texts: Iterable[str]) -> str:
    return f"coalesce({value} IN ({', '.join(map(literal, texts))}), FALSE)"


def _noted(fields: list[dict[str, Any]], envelope: AvroType, sql: Mapping[str, str]) -> AvroType:
    names = {field["name"] for field in fields}
    own = [optional_field(name, of) for name, of in _OWN.items() if name not in names]
    note = {"envelope": envelope, "sql": dict(sql)}
    return {"type": "record", "name": "row", "fields": [*fields, *own], NOTE: note}


def _source(schema: AvroType, at: Callable[[str], str], name: str, sql_type: str) -> str:
    envelope = schema[NOTE]["envelope"]
    names = _named(envelope, {})
    types = {field["name"]: field["type"] for field in envelope["fields"]}
    source = _resolved(types["source"], names)
    known = {field["name"] for field in source["fields"]} if isinstance(source, Mapping) else set()
    return f"CAST({at('source')}.{name} AS {sql_type})" if name in known else f"CAST(NULL AS {sql_type})"


def _raw(of: AvroType) -> str:
    return "string" if kind(of) in ("timestamp", "date") else ddl_of(of)


def _by_unit(of: AvroType, times: Times) -> str:
    if kind(of) not in _TIMES:
        return "{}"
    number = f"{_TIMES[kind(of)][times]}(try_cast({{}} AS {'INT' if kind(of) == 'date' else 'BIGINT'}))"
    return f"IF({{}} RLIKE '^-?[0-9]+$', {number}, try_cast({{}} AS {kind(of).upper()}))"


def _converted(of: AvroType) -> _Conversion:
    bare = _without_null(of)
    if isinstance(bare, Mapping):
        if bare.get("logicalType") in _READ_BY_SPARK:
            return _Conversion(bare, "{}")
        conversion = _BY_NAME.get(str(bare.get("connect.name")))
        if conversion is not None:
            return conversion
    return _Conversion(bare, "{}")


def _without_null(of: AvroType) -> AvroType:
    if isinstance(of, list):
        branches = [branch for branch in of if branch != "null"]
        return branches[0] if len(branches) == 1 else branches
    return of


def _named(of: AvroType, avro_types: dict[str, AvroType], space: str = "") -> dict[str, AvroType]:
    """Return the records of a schema by their names, which a later field may use instead of the record."""
    if isinstance(of, list):
        for branch in of:
            _named(branch, avro_types, space)
    elif isinstance(of, Mapping):
        name = of.get("name")
        space = str(of.get("namespace") or space)
        if name is not None and of.get("type") in ("record", "enum", "fixed"):
            avro_types[str(name)] = avro_types[f"{space}.{name}"] = of
        for inner in ("items", "values"):
            _named(of.get(inner), avro_types, space)
        for field in of.get("fields", ()):
            _named(field["type"], avro_types, space)
    return avro_types


def _resolved(of: AvroType, names: Mapping[str, AvroType]) -> AvroType:
    bare = _without_null(of)
    return names.get(bare, bare) if isinstance(bare, str) else bare
