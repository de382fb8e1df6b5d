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
from hub.materializers.spark_text import first_of, literal, quoted

_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}


def parser_of(source: SourceShape) -> str:
    """The column of what the parser said."""
    return f"p_{source.name}"


def parsed(source: SourceShape, schema: AvroType, ours: str) -> Column:
    """``p_<source>`` of the events for which ``ours`` is true; of all others it says nothing."""
    reading = _reading(schema)
    body = f"IF({ours}, {_body(reading)}, NULL)"
    columns = _columns(source, schema)
    match reading.form:
        case "protobuf":
            return _protobuf(schema, reading, columns, F.expr(body))
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
                F.rtrim(F.expr(_text(body)), F.lit("\r\n")), _struct([*every, f"{BROKEN}:string"]), options
            )
        case "json":
            inside = _struct(columns_ddl(schema, columns))
            wrapped = F.concat(F.lit('{"e":['), F.expr(_text(body)), F.lit("]}"))
            options = {**_OPTIONS, "allowSingleQuotes": "false"}
            return F.from_json(wrapped, _struct([f"e:array<{inside}>", f"{BROKEN}:string"]), options)


def once(said: Column) -> Column:
    """The same, parsed once: Spark moves a filter below what it reads of, and would parse for it anew, but not below rows
    that it takes to be many."""
    return F.explode(F.array(said))


def event(source: SourceShape, schema: AvroType) -> str:
    """``e_<source>`` from ``p_<source>``."""
    said = parser_of(source)
    return f"{said}.e[0]" if _reading(schema).form == "json" else said


def failed(source: SourceShape, schema: AvroType) -> str:
    """Whether the parser could not take one of the source's events."""
    reading, said = _reading(schema), parser_of(source)
    broken, body = f"{said}.{BROKEN} IS NOT NULL", _body(reading)
    if reading.form == "protobuf":
        return broken
    if reading.form == "csv":
        return f"({broken} OR length({body}) = 0 OR NOT is_valid_utf8(CAST({body} AS STRING)))"
    return f"({broken} OR NOT coalesce(size({said}.e) = 1 AND {said}.e[0] IS NOT NULL, FALSE))"


def misfit(source: SourceShape, schema: AvroType) -> str:
    """Why the parser could not take it."""
    reading, said = _reading(schema), parser_of(source)
    if reading.form == "protobuf":
        return f"{said}.{BROKEN}"
    whole = {"json": "no JSON object of its columns", "csv": "no line of CSV with exactly its columns"}
    types = dict(zip(_columns(source, schema), columns_ddl(schema, _columns(source, schema)), strict=True))
    if reading.form == "csv":
        return literal(f"{whole['csv']} ({', '.join(field['name'] for field in schema['fields'])})")
    # The first column that the text has and the parser has not.
    text, row = f"CAST({_body(reading)} AS STRING)", f"{said}.e[0]"
    cases: list[tuple[str, str]] = []
    for name, kind in types.items():
        if "'" in name or "]" in name:
            continue
        here, words = (
            f"get_json_object({text}, {literal(_path(name))})",
            f"its {name} is no {kind.partition(':')[2]}",
        )
        missed = f"{here} IS NOT NULL AND {row} IS NOT NULL AND {row}.{quoted(name)} IS NULL"
        cases.append((missed, literal(words)))
    other = literal(whole["json"])
    return first_of(cases, other) if cases else other


def _path(name: str) -> str:
    return f"$['{name}']"


def _reading(schema: AvroType) -> Reading:
    found = reading_of(schema)
    assert found is not None, "Avro is not read here"
    return found


def _body(reading: Reading) -> str:
    return "substring(value, 6)" if reading.framed else "value"


def _text(body: str) -> str:
    """The bytes as text; empty when they are no UTF-8, of which no parser says anything."""
    text = f"CAST({body} AS STRING)"
    return f"CASE WHEN is_valid_utf8({text}) THEN {text} WHEN {body} IS NOT NULL THEN '' END"


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
