"""[edge] pyspark: events that are no Avro, decoded by Spark's own parsers (Protobuf's in Arrow batches).

A source's columns stand in ``e_<source>``, as Avro's do; beside it ``p_<source>`` is what the parser said. An event that
does not fit is told by the parser's own mark, never by nulls: a missing field is null as well.

JSON is parsed as the one element of an array, ``{"e":[…]}``: Spark's parser reads the first value of a text and does not
look whether another one follows. What a parser must not see it gets as a text that it refuses
(``_text``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.spark import protobuf_rows
from hub.materializers.spark.protobuf_rows import BROKEN
from hub.materializers.types.avro_types import AvroType
from hub.materializers.types.json_defaults import filled_row
from hub.materializers.types.source_formats import ValueReading, columns_ddl, reading_of
from hub.materializers.types.spark_text import first_of, literal, quoted

_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
_MOST_VALUES = 20_480  # of a line of CSV: of one more univocity throws, which no mode of Spark's catches


def parser_of(source: SourcePlan) -> str:
    """The column of what the parser said."""
    return f"p_{source.name}"


def parsed(source: SourcePlan, schema: AvroType, ours: str) -> Column:
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
                "maxColumns": str(_MOST_VALUES),
            }
            text = F.expr(_text(body, reading, schema, columns))
            return F.from_csv(text, _struct([*every, f"{BROKEN}:string"]), options)
        case "json":
            inside = _struct(columns_ddl(schema, columns))
            wrapped = F.concat(F.lit('{"e":['), F.expr(_text(body, reading, schema, columns)), F.lit("]}"))
            options = {**_OPTIONS, "allowSingleQuotes": "false"}
            return F.from_json(wrapped, _struct([f"e:array<{inside}>", f"{BROKEN}:string"]), options)


def once(said: Column) -> Column:
    """The same, parsed once: Spark moves a filter below what it reads of, and would parse for it anew, but not below rows
    that it takes to be many."""
    return F.explode(F.array(said))


def event(source: SourcePlan, schema: AvroType) -> str:
    """``e_<source>`` from ``p_<source>``."""
    said, reading = parser_of(source), _reading(schema)
    if reading.form != "json":
        return said
    text = f"CAST({_body(reading)} AS STRING)"
    return filled_row(f"{said}.e[0]", text, schema, _columns(source, schema))


def failed(source: SourcePlan, schema: AvroType) -> str:
    """Whether the parser could not take one of the source's events."""
    said = parser_of(source)
    broken = f"{said}.{BROKEN} IS NOT NULL"
    if _reading(schema).form != "json":
        return broken
    return f"({broken} OR NOT coalesce(size({said}.e) = 1 AND {said}.e[0] IS NOT NULL, FALSE))"


def misfit(source: SourcePlan, schema: AvroType) -> str:
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


def _reading(schema: AvroType) -> ValueReading:
    found = reading_of(schema)
    assert found is not None, "Avro is not read here"
    return found


def _body(reading: ValueReading) -> str:
    return "substring(value, 6)" if reading.framed else "value"


def _text(body: str, reading: ValueReading, schema: AvroType, columns: list[str]) -> str:
    """The bytes as text; where the parser must not see it, one that it refuses: no element, or a value too many."""
    text, refused = f"CAST({body} AS STRING)", ""
    sound = [f"is_valid_utf8({text})"]
    if reading.form == "csv":
        text = f"TRIM(TRAILING '\\r\\n' FROM {text})"
        columns = [field["name"] for field in schema["fields"]]
        refused = reading.separator * len(columns)
        separators = f"length({text}) - length(replace({text}, {literal(reading.separator)}, ''))"
        # A blank line is no event to the parser, or one of nulls.
        sound += [f"{text} <> ''", f"{separators} < {_MOST_VALUES}"]
    huge = _huge_decimals(reading, schema, columns)
    if huge is not None:
        sound.append(f"NOT {text} RLIKE {literal(huge)}")
    return f"CASE WHEN {' AND '.join(sound)} THEN {text} WHEN {body} IS NOT NULL THEN {literal(refused)} END"


def _huge_decimals(reading: ValueReading, schema: AvroType, columns: list[str]) -> str | None:
    """A pattern of texts that write one of the decimals with an exponent of four digits or more; None: there are none.

    Spark gives a decimal its scale before it looks whether it fits: 1e100000000 are minutes, or the heap. As text a
    number may have commas, digits of any script and, in JSON, escapes."""
    types = {field["name"]: field["type"] for field in schema["fields"]}
    # Only where decimals stand: 12e34567 may be somebody's id.
    if reading.form == "json":
        starts = sorted({start for each in columns for start in _before_decimals(_key(each), types[each])})
        unquoted = ""
    else:
        other = rf"[^{re.escape(reading.separator)}]*+"
        value = rf'(?:(?:"[^"]*+")++{other}|{other}){re.escape(reading.separator)}'
        places = [at for at, each in enumerate(columns) if [*_before_decimals("", types[each])]]
        starts = [rf"^(?:{value}){{{at}}}+" for at in places]
        unquoted = "" if reading.separator == "," else ","
    escaped = r"[-+.,eE\p{Nd}]*\\u"
    return f'(?:{"|".join(starts)})(?:"(?:{escaped}|{_huge(",")})|{_huge(unquoted)})' if starts else None


def _huge(comma: str) -> str:
    return rf"[-+.{comma}\p{{Nd}}]+[eE][-+{comma}]*[{comma}\p{{Nd}}]{{4}}"


def _key(name: str) -> str:
    return rf'"{re.escape(name)}"\s*:\s*'


def _before_decimals(before: str, of: AvroType) -> Iterator[str]:
    """Patterns of what stands in JSON before each decimal of a type; ``before``: before the type's own value."""
    match of:
        case list():
            for branch in of:
                yield from _before_decimals(before, branch)
        case {"logicalType": "decimal"}:
            yield before
        case {"fields": fields}:
            for field in fields:
                yield from _before_decimals(_key(field["name"]), field["type"])
        case {"items": inner}:
            yield from _before_decimals(r"[\[,]\s*", inner)
        case {"values": inner}:
            yield from _before_decimals(r":\s*", inner)


def _struct(fields: Iterable[str]) -> str:
    return f"struct<{','.join(fields)}>"


def _columns(source: SourcePlan, schema: AvroType) -> list[str]:
    """What is read: the view's columns; one at least, else no parser would look at the text."""
    every = [field["name"] for field in schema["fields"]]
    return [name for name in every if name in source.columns] or every[:1]


def _protobuf(schema: AvroType, reading: ValueReading, columns: list[str], body: Column) -> Column:
    files, message, names = reading.files, reading.message, tuple(columns)

    def read(bodies: pa.Array) -> pa.Array:
        return protobuf_rows.columns_of(bodies, files, message, names)

    kind = _struct([*columns_ddl(schema, columns), f"{BROKEN}:string"])
    # Spark asks what they are, not what they are called.
    read.__annotations__ = {"bodies": pa.Array, "return": pa.Array}
    untyped: Any = arrow_udf  # its stubs know fewer types than it takes
    made: Column = untyped(read, kind)(body)
    return made
