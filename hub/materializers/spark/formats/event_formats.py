"""[edge] pyspark: events that are not Avro with a schema id, decoded by Spark's own parsers (Protobuf's in
Arrow batches).

A source's columns are in ``e_<source>``, as with Avro; ``p_<source>`` has the parser's result, and
``b_<source>`` what a ``transform`` made of the bytes. The parser's own marker shows that an event does not
fit, never a null: a missing field is null as well.

JSON is parsed as the only element of an array, ``{"e":[…]}``, and XML within an element of the hub's own,
because Spark's parsers read the first value of a text and ignore a second one. An event that a parser must
not see is replaced by a text that it refuses (``_text``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas.functions import arrow_udf

from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.spark.formats import protobuf_rows
from hub.materializers.spark.formats.protobuf_rows import BROKEN
from hub.materializers.types.avro_types import PROOF, AvroType, projected
from hub.materializers.types.ddl import columns_ddl
from hub.materializers.types.json_defaults import filled_row
from hub.materializers.types.source_formats import ValueReading, reading_of
from hub.materializers.types.spark_text import first_of, literal, quoted

_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BROKEN}
_WITHIN = ("json", "xml")  # parsed as the only element of something
_BESIDE = "_beside"  # text of XML that is in no element
_XML_DECLARATION = r"^\uFEFF?\s*<\?xml\s[^>]*\?>"
_MOST_VALUES = 20_480  # per CSV line; with more, univocity throws an error that no mode of Spark catches


def parser_of(source: SourcePlan) -> str:
    """Return the column with the parser's result."""
    return f"p_{source.name}"


def transformed(source: SourcePlan, schema: AvroType, ours: str) -> tuple[str, Column] | None:
    """Return name and value of ``b_<source>``, the bytes to read of the events for which ``ours`` is true;
    None without a ``transform``."""
    transform = _reading(schema).transform
    if not transform:
        return None
    return _bytes_of(source), F.expr(f"IF({ours} AND NOT _deleted, CAST(({transform}) AS BINARY), NULL)")


def parsed(source: SourcePlan, schema: AvroType, ours: str) -> Column:
    """Return ``p_<source>`` of the events for which ``ours`` is true; null for all others."""
    reading = _reading(schema)
    body = f"IF({ours}, {_body(source, reading)}, NULL)"
    columns = _columns(source, schema)
    match reading.form:
        case "protobuf":
            return _protobuf(schema, reading, columns, F.expr(body))
        case "avro":
            both = projected(schema, schema, columns)
            avro_options = {"mode": "PERMISSIVE", "avroSchema": orjson.dumps(both.reader).decode()}
            return from_avro(F.expr(body), orjson.dumps(both.writer).decode(), avro_options)
        case "csv":
            # All columns: a line's values are identified by position.
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
        case "xml":
            inside = _struct(columns_ddl(schema, columns))
            text = F.expr(_text(body, reading, schema, columns))
            wrapped = F.concat(F.lit("<hub>"), text, F.lit("</hub>"))
            shape = _struct(
                [f"{quoted(reading.root)}:array<{inside}>", f"{_BESIDE}:string", f"{BROKEN}:string"]
            )
            return F.from_xml(wrapped, shape, {**_OPTIONS, "ignoreNamespace": "true", "valueTag": _BESIDE})
        case "raw":
            name, kind = columns[0], columns_ddl(schema, columns)[0].partition(":")[2]
            valid = "TRUE" if kind == "binary" else f"is_valid_utf8(CAST({body} AS STRING))"
            value = f"CAST({body} AS {kind})"
            return F.expr(f"struct({value} AS {quoted(name)}, IF({valid}, NULL, '') AS {BROKEN})")
        case "json":
            inside = _struct(columns_ddl(schema, columns))
            wrapped = F.concat(F.lit('{"e":['), F.expr(_text(body, reading, schema, columns)), F.lit("]}"))
            options = {**_OPTIONS, "allowSingleQuotes": "false"}
            return F.from_json(wrapped, _struct([f"e:array<{inside}>", f"{BROKEN}:string"]), options)


def once(parsed: Column) -> Column:
    """Return the result, evaluated once.

    Spark pushes a filter below the expressions that it reads and would parse again for it, but not below a
    generator of rows.
    """
    return F.explode(F.array(parsed))


def event(source: SourcePlan, schema: AvroType) -> str:
    """Return ``e_<source>`` from ``p_<source>``."""
    parsed, reading = parser_of(source), _reading(schema)
    if reading.form not in _WITHIN:
        return parsed
    row = _row(parsed, reading)
    if reading.form == "xml":
        return row
    text = f"CAST({_body(source, reading)} AS STRING)"
    return filled_row(row, text, schema, _columns(source, schema))


def failed(source: SourcePlan, schema: AvroType) -> str:
    """Return the condition that the parser could not parse one of the source's events."""
    parsed, reading = parser_of(source), _reading(schema)
    broken = f"{parsed}.{PROOF} IS NULL" if reading.form == "avro" else f"{parsed}.{BROKEN} IS NOT NULL"
    if reading.transform:
        broken = f"({_bytes_of(source)} IS NULL OR {broken})"
    if reading.form not in _WITHIN:
        return broken
    alone = f"size({_rows(parsed, reading)}) = 1 AND {_row(parsed, reading)} IS NOT NULL"
    if reading.form == "xml":
        alone += f" AND coalesce(trim({parsed}.{_BESIDE}), '') = ''"
    return f"({broken} OR NOT coalesce({alone}, FALSE))"


def misfit(source: SourcePlan, schema: AvroType) -> str:
    """Return the expression for why the parser could not parse an event."""
    reading = _reading(schema)
    unread = _unread(source, schema, reading)
    if not reading.transform:
        return unread
    nothing = literal("its transform gives null")
    return f"IF({_bytes_of(source)} IS NULL, {nothing}, {unread})"


def _unread(source: SourcePlan, schema: AvroType, reading: ValueReading) -> str:
    columns = columns_ddl(schema, _columns(source, schema))
    match reading.form:
        case "protobuf":
            return f"{parser_of(source)}.{BROKEN}"
        case "avro":
            return literal("its bytes do not fit the schema of its file")
        case "csv":
            names = ", ".join(field["name"] for field in schema["fields"])
            return literal(f"no line of CSV with exactly its columns ({names})")
        case "xml":
            types = ", ".join(each.replace(":", " ", 1).replace("`", "") for each in columns)
            return literal(f"no XML document <{reading.root}> with values of its columns ({types})")
        case "raw":
            return literal("not UTF-8, which a text is")
        case "json":
            return _unread_json(source, schema, reading)


def _unread_json(source: SourcePlan, schema: AvroType, reading: ValueReading) -> str:
    """Return the reason with the first column that the text has and the parser's result lacks."""
    types = dict(zip(_columns(source, schema), columns_ddl(schema, _columns(source, schema)), strict=True))
    text, row = f"CAST({_body(source, reading)} AS STRING)", _row(parser_of(source), reading)
    cases: list[tuple[str, str]] = []
    for name, kind in types.items():
        if "'" in name or "]" in name:
            continue
        here, words = (
            f"get_json_object({text}, {literal(_path(name))})",
            f"its {name} is not a valid {kind.partition(':')[2]}",
        )
        missed = f"{here} IS NOT NULL AND {row} IS NOT NULL AND {row}.{quoted(name)} IS NULL"
        cases.append((missed, literal(words)))
    other = literal("no JSON object of its columns")
    return first_of(cases, other) if cases else other


def _path(name: str) -> str:
    return f"$['{name}']"


def _reading(schema: AvroType) -> ValueReading:
    found = reading_of(schema)
    assert found is not None, "Avro with a schema id is not read here"
    return found


def _rows(parsed: str, reading: ValueReading) -> str:
    """Return the expression of the list of parsed events, which has one element if the event fits."""
    return f"{parsed}.{'e' if reading.form == 'json' else quoted(reading.root)}"


def _row(parsed: str, reading: ValueReading) -> str:
    return f"{_rows(parsed, reading)}[0]"


def _bytes_of(source: SourcePlan) -> str:
    return f"b_{source.name}"


def _body(source: SourcePlan, reading: ValueReading) -> str:
    if reading.transform:
        return _bytes_of(source)
    return "substring(value, 6)" if reading.framed else "value"


def _text(body: str, reading: ValueReading, schema: AvroType, columns: list[str]) -> str:
    """Return the bytes as text. Text that the parser must not see is replaced by one that it refuses.

    The replacement is not a valid element (JSON, XML) or has a value too many (CSV).
    """
    text, refused = f"CAST({body} AS STRING)", ""
    sound = [f"is_valid_utf8({text})"]
    if reading.form == "csv":
        text = f"TRIM(TRAILING '\\r\\n' FROM {text})"
        columns = [field["name"] for field in schema["fields"]]
        refused = reading.separator * len(columns)
        separators = f"length({text}) - length(replace({text}, {literal(reading.separator)}, ''))"
        # The parser takes a blank line for no event, or for one of nulls.
        sound += [f"{text} <> ''", f"{separators} < {_MOST_VALUES}"]
    if reading.form == "xml":
        # A declaration may only begin a document, and this one gets an element around it.
        text, refused = f"regexp_replace({text}, {literal(_XML_DECLARATION)}, '')", "<"
    huge = _huge_decimals(reading, schema, columns)
    if huge is not None:
        sound.append(f"NOT {text} RLIKE {literal(huge)}")
    return f"CASE WHEN {' AND '.join(sound)} THEN {text} WHEN {body} IS NOT NULL THEN {literal(refused)} END"


def _huge_decimals(reading: ValueReading, schema: AvroType, columns: list[str]) -> str | None:
    """Return a pattern of texts in which a decimal column has an exponent of four or more digits; None
    without decimals.

    Spark scales a decimal before it checks that it fits: 1e100000000 takes minutes, or the whole heap. As
    text, a number may have commas, digits of any script and, in JSON, escapes.
    """
    types = {field["name"]: field["type"] for field in schema["fields"]}
    if reading.form == "xml":
        return _odd_decimals_in_xml({name for each in columns for name in _named_decimals(each, types[each])})
    # Only at decimals: 12e34567 may be an id.
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


def _odd_decimals_in_xml(names: set[str]) -> str | None:
    """Return a pattern of documents in which a decimal is not written as a plain number: a reference, a
    comment or CDATA may hide an exponent. ``names``: of elements, and of attributes after ``_``."""
    if not names:
        return None
    plain = r"\s*+[-+]?[\d.,]*+(?:[eE][-+]?\d{1,3})?\s*+"
    elements = "|".join(re.escape(name) for name in sorted(names))
    attributes = "|".join(re.escape(name[1:]) for name in sorted(names) if name.startswith("_"))
    found = rf"""<(?:[^\s<>/:]+:)?(?:{elements})(?:\s(?:[^<>"'/]|"[^"]*"|'[^']*')*+)?>(?!{plain}</)"""
    if attributes:
        found += rf"""|(?:\s|(?<!xmlns):)(?:{attributes})\s*+=\s*+(["'])(?!{plain}\1)"""
    return rf"(?i)(?:{found})"


def _named_decimals(name: str, of: AvroType) -> Iterator[str]:
    """Yield the names of the elements and attributes of XML that are read as decimals. An attribute's begins
    with ``_``."""
    match of:
        case list():
            for branch in of:
                yield from _named_decimals(name, branch)
        case {"logicalType": "decimal"}:
            yield name
        case {"fields": fields}:
            for field in fields:
                yield from _named_decimals(field["name"], field["type"])
        case {"items": inner}:
            yield from _named_decimals(name, inner)


def _huge(comma: str) -> str:
    return rf"[-+.{comma}\p{{Nd}}]+[eE][-+{comma}]*[{comma}\p{{Nd}}]{{4}}"


def _key(name: str) -> str:
    return rf'"{re.escape(name)}"\s*:\s*'


def _before_decimals(before: str, of: AvroType) -> Iterator[str]:
    """Yield patterns of the JSON before each decimal of a type. ``before``: the pattern before the type's own
    value."""
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
    """Return the columns to read: the view's, but at least one, because without columns no parser would look
    at the text."""
    every = [field["name"] for field in schema["fields"]]
    return [name for name in every if name in source.columns] or every[:1]


def _protobuf(schema: AvroType, reading: ValueReading, columns: list[str], body: Column) -> Column:
    files, message, names, framed = reading.files, reading.message, tuple(columns), reading.framed

    def read(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return (protobuf_rows.columns_of(each, files, message, names, framed=framed) for each in batches)

    kind = _struct([*columns_ddl(schema, columns), f"{BROKEN}:string"])
    # Spark needs types as annotations, not their names. A function of iterators never shares a worker with
    # functions of views, which may be sandboxed.
    read.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    untyped: Any = arrow_udf  # its stubs know fewer types than it accepts
    made: Column = untyped(read, kind)(body)
    return made
