"""[core] A schema as columns of an Iceberg table, and values of events converted for these columns.

Every column of a value is optional: a field may be missing in other versions of the schema. Types without an
equal in Iceberg, or that Spark cannot read in Iceberg, become text: enums, UUIDs and times of day as such,
unions of several types and recursive types as JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, Literal

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from hub.materializers.stores.columns import json_text
from hub.schema_registry.formats.avro.types import AvroField, AvroNode, is_recursive
from hub.times import EPOCH

Convert = Callable[[Any], Any]
Form = Literal["scalar", "record", "list", "map"]

META: Sequence[NestedField] = (
    NestedField(1, "_partition", IntegerType(), required=True, doc="partition of the record"),
    NestedField(2, "_offset", LongType(), required=True, doc="offset of the record in its partition"),
    NestedField(3, "_timestamp", TimestamptzType(), doc="timestamp of the record"),
    NestedField(4, "_key", BinaryType(), doc="key of the record, as written"),
    NestedField(
        5,
        "_headers",
        ListType(
            6,
            StructType(NestedField(7, "key", StringType()), NestedField(8, "value", BinaryType())),
            element_required=False,
        ),
        doc="headers of the record, in their order",
    ),
    NestedField(9, "_schema_id", IntegerType(), doc="id of the writer's schema; null for a tombstone"),
)
RAW = "_value"
"""Column of a topic without a schema: the record's whole value."""

_LARGEST_DECIMAL = 38
_DAY = date(1970, 1, 1)
_SCALARS: Mapping[str, PrimitiveType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "fixed": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
}
_TIMES: Mapping[tuple[str, str], PrimitiveType] = {
    ("long", "timestamp-millis"): TimestamptzType(),
    ("long", "timestamp-micros"): TimestamptzType(),
    ("long", "local-timestamp-millis"): TimestampType(),
    ("long", "local-timestamp-micros"): TimestampType(),
    ("int", "date"): DateType(),
}


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column, or a part of one. ``field``: name of the event's field. ``inner``: fields of a record, the
    one item of a list, the one value of a map. ``convert``: an event's value for Arrow; None: it is taken
    as it is.
    """

    name: str
    field: str
    form: Form
    scalar: PrimitiveType
    inner: tuple[LakeColumn, ...] = ()
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    convert: Convert | None = None


def columns_of(root: AvroNode, *, json: bool = False) -> tuple[LakeColumn, ...]:
    """Return the columns of a record schema. ``json``: events are JSON values, as decoders of JSON Schema and
    Protobuf return them; otherwise values of Avro with times as numbers.
    """
    builder = _ColumnBuilder(json)
    taken = {each.name.lower() for each in META}
    return tuple(builder.fields(root, taken))


def raw_columns() -> tuple[LakeColumn, ...]:
    """Return the columns of a topic without a schema."""
    return (LakeColumn(RAW, RAW, "scalar", BinaryType(), doc="value of the record, as written"),)


def holds_json(column: LakeColumn) -> bool:
    """Return whether the text of a column is JSON, for a type that Iceberg has no equal of."""
    return column.form == "scalar" and column.convert is _as_json


def iceberg_type(column: LakeColumn, ids: Iterator[int] | None = None) -> IcebergType:
    """Return the type of a column. Ids only have to differ: a table gives its own."""
    ids = ids or count(1_000)
    match column.form:
        case "scalar":
            return column.scalar
        case "list":
            return ListType(next(ids), iceberg_type(column.inner[0], ids), element_required=False)
        case "map":
            key, value = next(ids), next(ids)
            inner = iceberg_type(column.inner[0], ids)
            return MapType(key, StringType(), value, inner, value_required=False)
    return StructType(
        *(NestedField(next(ids), each.name, iceberg_type(each, ids), doc=each.doc) for each in column.inner)
    )


class _ColumnBuilder:
    def __init__(self, json: bool) -> None:
        self.json = json

    def fields(self, node: AvroNode, taken: set[str]) -> Iterator[LakeColumn]:
        """Yield the columns of a record. Engines compare names without case, so equal ones get a suffix."""
        for each in node.fields:
            name = each.name.replace(".", "_")
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
            yield self.column(each.type, name, each)

    def column(self, node: AvroNode, name: str, field: AvroField | None = None) -> LakeColumn:
        doc = None if field is None else field.spec.get("doc")
        return replace(
            self._typed(node, name),
            field=name if field is None else field.name,
            aliases=() if field is None else tuple(field.aliases),
            doc=doc if isinstance(doc, str) else None,
        )

    def _typed(self, node: AvroNode, name: str) -> LakeColumn:
        of = [each for each in node.branches if each.kind != "null"]
        text = LakeColumn(name, name, "scalar", StringType(), convert=_as_json)
        if len(of) != 1 or of[0].kind in ("unknown", "union") or is_recursive(of[0]):
            return text
        kind = of[0]
        if kind.kind in ("record", "error"):
            inner = tuple(self.fields(kind, set()))
            # Parquet has no empty struct
            return (
                LakeColumn(name, name, "record", StringType(), inner, convert=_record(inner))
                if inner
                else text
            )
        if kind.kind == "array":
            item = self.column(kind.item, "element")
            return LakeColumn(name, name, "list", StringType(), (item,), convert=_list(item))
        if kind.kind == "map":
            item = self.column(kind.item, "value")
            return LakeColumn(name, name, "map", StringType(), (item,), convert=_map(item))
        scalar, convert = _scalar(kind, self.json)
        return LakeColumn(name, name, "scalar", scalar, convert=convert)


def _scalar(node: AvroNode, json: bool) -> tuple[PrimitiveType, Convert | None]:
    """Return the type of a scalar, and the conversion of its values."""
    logical = node.logical
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        precision, scale = int(node.spec["precision"]), int(node.spec.get("scale", 0))
        if precision > _LARGEST_DECIMAL:
            return StringType(), str
        return DecimalType(precision, scale), _as_decimal if json else None
    if (node.kind, logical) in _TIMES:
        of = _TIMES[node.kind, logical]
        if json:
            return of, _as_day if isinstance(of, DateType) else _as_micros
        return of, _times_1000 if logical.endswith("-millis") else None
    if not json:
        if (node.kind, logical) in (("int", "time-millis"), ("long", "time-micros")):
            return StringType(), _time_of_day(1_000 if logical == "time-millis" else 1)
        return _SCALARS[node.kind], None
    of = _SCALARS[node.kind]
    return of, _OF_JSON.get(type(of))


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _record(inner: Sequence[LakeColumn]) -> Convert:
    parts = [(each.name, each.field, _nullable(each.convert)) for each in inner]

    def convert(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} is not an object")
        return {name: value.get(field) if of is None else of(value.get(field)) for name, field, of in parts}

    return convert


def _list(item: LakeColumn) -> Convert | None:
    of = _nullable(item.convert)
    return None if of is None else lambda value: [of(each) for each in value]


def _map(item: LakeColumn) -> Convert:
    of = _nullable(item.convert)
    if of is None:
        return lambda value: list(value.items())
    return lambda value: [(key, of(each)) for key, each in value.items()]


def _as_json(value: Any) -> str:
    return json_text(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _as_decimal(value: Any) -> Decimal:
    return Decimal(str(value))


def _as_integer(value: Any) -> int:
    """Convert an integer; Protobuf's JSON has 64-bit ones as text, and JSON may have 3.0. Raises
    ValueError.
    """
    if isinstance(value, bool):
        raise TypeError("a boolean is not an integer")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is not an integer")
    return int(value)


def _as_double(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a boolean is not a number")
    return float(value)


def _as_bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True)


def _as_micros(value: Any) -> int:
    """Convert a time in ISO 8601; without a zone it is UTC. Raises ValueError."""
    time = datetime.fromisoformat(value)
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (time - EPOCH) // timedelta(microseconds=1)


def _as_day(value: Any) -> int:
    return (date.fromisoformat(value) - _DAY).days


def _times_1000(value: int) -> int:
    return value * 1_000


def _time_of_day(micros: int) -> Convert:
    def convert(value: int) -> str:
        whole, rest = divmod(value * micros, 1_000_000)
        return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{rest:06}"

    return convert


_OF_JSON: Mapping[type[PrimitiveType], Convert] = {
    StringType: _as_text,
    IntegerType: _as_integer,
    LongType: _as_integer,
    FloatType: _as_double,
    DoubleType: _as_double,
    BinaryType: _as_bytes,
}
