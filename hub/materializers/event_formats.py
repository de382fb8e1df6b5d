"""[edge] pyspark: events that are no Avro, decoded by Spark's own parsers (Protobuf's in Arrow batches).

A source's columns stand in ``e_<source>``, as Avro's do; beside it ``p_<source>`` is what the parser said. An event that
does not fit is told by the parser's own mark, never by nulls: a missing field is null as well.

JSON is parsed as the one element of an array, ``{"e":[…]}``: Spark's parser reads the first value of a text and does not
look whether another one follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from hub.materializers import protobuf_rows
from hub.materializers.avro_shape import AvroType
from hub.materializers.formats import Reading, columns_ddl, reading_of
from hub.materializers.protobuf_rows import BROKEN
from hub.materializers.shape import SourceShape

_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}


def parser_of(source: SourceShape) -> str:
    """The column of what the parser said."""
    return f"p_{source.name}"


def parsed(source: SourceShape, schema: AvroType, ours: Column) -> Column:
    """``p_<source>`` of the events for which ``ours`` is true; of all others it says nothing."""
    reading = _reading(schema)
    body = F.when(ours, _body(reading))
    columns = _columns(source, schema)
    match reading.form:
        case "protobuf":
            return _protobuf(schema, reading, columns, body)
        case "csv":
            # All columns: a line's values have places, not names.
            every = columns_ddl(schema, [field["name"] for field in schema["fields"]])
            options = {
                **_OPTIONS,
                "sep": reading.separator,
                "nullValue": reading.null,
                "escape": '"',
                "maxCharsPerColumn": "-1",
            }
            return F.from_csv(
                F.rtrim(_text(body), F.lit("\r\n")), _struct([*every, f"{BROKEN}:string"]), options
            )
        case "json":
            inside = _struct(columns_ddl(schema, columns))
            wrapped = F.concat(F.lit('{"e":['), _text(body), F.lit("]}"))
            options = {**_OPTIONS, "allowSingleQuotes": "false"}
            return F.from_json(wrapped, _struct([f"e:array<{inside}>", f"{BROKEN}:string"]), options)


def once(said: Column) -> Column:
    """The same, parsed once: Spark moves a filter below what it reads of, and would parse for it anew, but not below rows
    that it takes to be many."""
    return F.explode(F.array(said))


def event(source: SourceShape, schema: AvroType) -> Column:
    """``e_<source>`` from ``p_<source>``."""
    said = F.col(parser_of(source))
    return said["e"][0] if _reading(schema).form == "json" else said


def failed(source: SourceShape, schema: AvroType) -> Column:
    """Whether the parser could not take one of the source's events."""
    reading, said = _reading(schema), F.col(parser_of(source))
    broken = said[BROKEN].isNotNull()
    if reading.form == "protobuf":
        return broken
    if reading.form == "csv":
        return broken | (F.length(_body(reading)) == 0) | ~F.is_valid_utf8(_body(reading).cast("string"))
    one = (F.size(said["e"]) == 1) & said["e"][0].isNotNull()
    return broken | ~F.coalesce(one, F.lit(False))


def misfit(source: SourceShape, schema: AvroType) -> Column:
    """Why the parser could not take it."""
    reading, said = _reading(schema), F.col(parser_of(source))
    if reading.form == "protobuf":
        return said[BROKEN]
    whole = {"json": "no JSON object of its columns", "csv": "no line of CSV with exactly its columns"}
    types = dict(zip(_columns(source, schema), columns_ddl(schema, _columns(source, schema)), strict=True))
    if reading.form == "csv":
        return F.lit(f"{whole['csv']} ({', '.join(field['name'] for field in schema['fields'])})")
    # The first column that the text has and the parser has not.
    named: Column | None = None
    text, row = _body(reading).cast("string"), said["e"][0]
    for name, kind in types.items():
        if "'" in name or "]" in name:
            continue
        here = F.get_json_object(text, f"$['{name}']").isNotNull() & row.isNotNull() & row[name].isNull()
        words = F.lit(f"its {name} is no {kind.partition(':')[2]}")
        named = F.when(here, words) if named is None else named.when(here, words)
    other = F.lit(whole["json"])
    return other if named is None else named.otherwise(other)


def _reading(schema: AvroType) -> Reading:
    found = reading_of(schema)
    assert found is not None, "Avro is not read here"
    return found


def _body(reading: Reading) -> Column:
    return F.expr("substring(value, 6)") if reading.framed else F.col("value")


def _text(body: Column) -> Column:
    """The bytes as text; empty when they are no UTF-8, of which no parser says anything."""
    text = body.cast("string")
    return F.when(F.is_valid_utf8(text), text).when(body.isNotNull(), F.lit(""))


def _struct(fields: Iterable[str]) -> str:
    return f"struct<{','.join(fields)}>"


def _columns(source: SourceShape, schema: AvroType) -> list[str]:
    """What is read: the view's columns; one at least, else no parser would look at the text."""
    every = [field["name"] for field in schema["fields"]]
    return [name for name in every if name in source.columns] or every[:1]


def _protobuf(schema: AvroType, reading: Reading, columns: list[str], body: Column) -> Column:
    files, message, names = reading.files, reading.message, tuple(columns)

    def read(bodies: pa.Array) -> pa.Array:
        return protobuf_rows.columns_of(bodies, files, message, names)

    kind = _struct([*columns_ddl(schema, columns), f"{BROKEN}:string"])
    # Spark asks what they are, not what they are called.
    read.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    untyped: Any = arrow_udf  # its stubs know fewer types than it takes
    made: Column = untyped(read, kind)(body)
    return made
