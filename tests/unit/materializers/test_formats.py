"""Schemas of other formats as columns: Spark's DDL, JSON Schema, Protobuf; their declarations in a view's
file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from event_schemas import PROTO

from hub.errors import ConfigError
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of, files_of, load_view, view_of
from hub.materializers.engine.plans.fingerprints import entity_fingerprint
from hub.materializers.spark.formats.decode import Input
from hub.materializers.types.avro_types import spark_types
from hub.materializers.types.ddl import UnknownType, columns_ddl, ddl_of, of_ddl
from hub.materializers.types.json_schema_types import ADMITS_NULL
from hub.materializers.types.named_files import EventSchemaFile, PythonFile
from hub.materializers.types.source_formats import declared, of_registry, reading_of, without_defaults
from hub.record import Record
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.formats import InvalidSchema
from hub.topics.dead_letters.record_format import dead_letter_of


@pytest.mark.parametrize(
    "text",
    [
        *("string", "boolean", "int", "bigint", "float", "double", "binary", "date", "timestamp"),
        *("timestamp_ntz", "decimal(12,2)", "array<string>", "map<string,array<bigint>>"),
        "struct<`a`:int,`b c`:struct<`d`:array<struct<`e`:date>>>>",
    ],
)
def test_a_type_is_read_and_written_back(text: str) -> None:
    assert ddl_of(of_ddl(text)) == text


def test_other_spellings_of_types_are_the_same_types() -> None:
    assert ddl_of(of_ddl(" STRUCT< a : LONG, b short > ")) == "struct<`a`:bigint,`b`:int>"
    assert ddl_of(of_ddl("decimal")) == "decimal(10,0)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strnig", "type `strnig` does not exist"),
        ("array<int", "`>` is missing at its end"),
        ("array<int>>", "`>` is too much"),
        ("map<int, string>", "a map's keys are text"),
        ("decimal(39,2)", "up to 38 digits"),
        ("decimal(x)", "`x` is not a number"),
        ("int; drop", "`; drop` is not read here"),
        ("", "a type is missing"),
        ("array<" * 40 + "int" + ">" * 40, "nested deeper"),
    ],
)
def test_what_is_no_type_is_told(text: str, said: str) -> None:
    with pytest.raises(UnknownType, match=said):
        of_ddl(text)


def test_a_declared_schema_says_how_it_is_read() -> None:
    schema = declared("csv", {"id": "bigint", "at": "timestamp"}, separator=";", null="-")
    reading = reading_of(schema)
    assert reading is not None
    assert (reading.form, reading.framed, reading.separator, reading.null) == ("csv", False, ";", "-")
    assert spark_types(schema) == {"id": "bigint", "at": "timestamp"}
    assert columns_ddl(schema, ["at"]) == ["`at`:timestamp"]
    assert reading_of(orjson.loads(orjson.dumps(schema))) == reading  # it is stored with a checkpoint


# ---- JSON Schema


def of_json(schema: dict[str, Any], named: tuple[tuple[str, SchemaSource], ...] = ()) -> dict[str, str]:
    return spark_types(of_registry(SchemaSource.of("JSON", orjson.dumps(schema).decode(), named)))


def of_property(node: Any, **beside: Any) -> str:
    return of_json({"type": "object", "properties": {"v": node}, **beside})["v"]


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "bigint"),
        ({"type": "integer", "connect.type": "int32"}, "int"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"enum": ["a", "b"]}, "string"),
        ({"const": 5}, "string"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": ["string", "integer"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, "struct<a:bigint>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"type": "object"}, "string"),
        (True, "string"),
        ({"$ref": "#/definitions/money"}, "struct<cents:bigint>"),
        ({"allOf": [{"$ref": "#/definitions/money"}, {"properties": {"of": {"type": "string"}}}]},
         "struct<cents:bigint,of:string>"),
        ({"oneOf": [{"$ref": "#/definitions/money"}, {"type": "object",
        "properties": {"of": {"type": "string"}}}]},
         "struct<cents:bigint,of:string>"),
        ({"$ref": "#/definitions/tree"}, "struct<of:array<string>>"),
    ],
)  # fmt: skip
def test_a_property_of_json_schema_is_a_column(node: Any, wanted: str) -> None:
    definitions = {
        "money": {"type": "object", "properties": {"cents": {"type": "integer"}}},
        "tree": {
            "type": "object",
            "properties": {"of": {"type": "array", "items": {"$ref": "#/definitions/tree"}}},
        },
    }
    assert of_property(node, definitions=definitions) == wanted


def test_a_reference_to_another_schema_is_followed() -> None:
    text = '{"type": "object", "properties": {"city": {"type": "string"}}}'
    other = SchemaSource.of("JSON", text)
    found = of_json(
        {"type": "object", "properties": {"home": {"$ref": "address.json"}}}, (("address.json", other),)
    )
    assert found == {"home": "struct<city:string>"}


def test_a_schema_of_no_object_has_no_columns() -> None:
    with pytest.raises(InvalidSchema, match="no object"):
        of_json({"type": "array", "items": {"type": "string"}})


# ---- Protobuf

LINE = "struct<product:string,price:double>"


def test_a_protobuf_message_is_columns() -> None:
    schema = of_registry(SchemaSource.of("PROTOBUF", PROTO))
    assert spark_types(schema) == {
        "id": "string",
        "big": "decimal(20,0)",
        "small": "int",
        "number": "bigint",
        "flag": "boolean",
        "status": "string",
        "lines": f"array<{LINE}>",
        "card": "string",
        "voucher": LINE,
        "by_number": f"map<string,{LINE}>",
        "at": "timestamp",
        "maybe": "bigint",
        "any": "string",
        "raw": "binary",
        "nothing": "boolean",
        "f": "float",
    }
    reading = reading_of(schema)
    assert reading is not None
    assert (reading.message, reading.framed) == ("shop.Order", True)


def test_a_file_without_a_message_has_no_columns() -> None:
    with pytest.raises(InvalidSchema, match="no message"):
        of_registry(SchemaSource.of("PROTOBUF", 'syntax = "proto3"; enum E { A = 0; }'))


# ---- the view's file


def view(path: Path, source: str, rest: str = "fields: {n: count(s.id)}") -> Any:
    file = path / "v.yaml"
    file.write_text(f"view: v\nsources:\n  s:\n    topic: t\n    key: id\n{source}\n{rest}\n")
    return load_view(file)


JSON = "    format: json\n    schema:\n      id: bigint\n      at: timestamp"


def test_a_view_says_what_its_events_are(tmp_path: Path) -> None:
    found = view(tmp_path, JSON)
    assert isinstance(found, View)
    source = found.sources["s"]
    assert source.declared == declared("json", {"id": "bigint", "at": "timestamp"})
    assert shape(found, {"s": source.declared}).sources[0].columns == ("id",)
    assert view_of(body_of(found)) == found


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("    format: jsn\n    schema: {id: bigint}", 6, "json"),
        ("    format: json", 4, "format: json requires a schema"),
        ("    schema: {id: bigint}", 4, "write also format: json"),
        ("    format: json\n    schema:\n      id: bigint\n      at: tmestamp", 9, "did you mean timestamp?"),
        ("    format: json\n    schema: {id: bigint, _key: string}", 4, "the hub's own"),
        ("    format: json\n    schema: {id: bigint, ID: string}", 4, "two columns"),
        ("    format: csv\n    schema: {id: 'array<int>'}", 4, "plain values"),
        (
            "    format: json\n    schema: {id: bigint}\n    csv: {separator: ';'}",
            4,
            "belongs to format: csv",
        ),
        ("    format: csv\n    schema: {id: bigint}\n    csv: {seperator: ';'}", 8, "separator"),
        ("    format: xml\n    schema: {id: bigint}", 4, "xml: {root: NAME}"),
        ("    format: json\n    schema: {id: bigint}\n    xml: {root: a}", 4, "xml: {root: NAME}"),
        ("    format: xml\n    schema: {id: 'map<string,int>'}\n    xml: {root: a}", 4, "XML holds no map"),
        ("    format: xml\n    schema: {id: 'array<binary>'}\n    xml: {root: a}", 4, "unbase64()"),
        ("    format: raw\n    schema: {id: bigint}", 4, "{text: string} or {bytes: binary}"),
        ("    format: raw\n    schema: {id: string, more: string}", 4, "one column"),
        ("    format: avro", 4, "schema_file: formats/NAME.avsc"),
        ("    format: avro\n    schema_file: formats/a.proto", 4, "schema_file: formats/NAME.avsc"),
        ("    format: avro\n    schema_file: {file: f/a.avsc, message: A}", 4, "names a message of Protobuf"),
        ("    format: avro\n    schema_file: ../a.avsc", 7, "schema_file"),
        ("    format: avro\n    schema_file: formats/none.avsc", 7, "found from the project folder"),
        ("    format: json\n    schema: {id: int}\n    schema_file: a.avsc", 4, "belongs to format: avro"),
        ("    schema_file: formats/a.avsc", 4, "`schema_file` belongs to events without a schema id"),
        ("    transform: value", 4, "`transform` belongs to events without a schema id"),
        (
            "    cdc: debezium\n    format: xml\n    schema: {id: int}\n    xml: {root: a}",
            4,
            "no change event",
        ),
    ],
)
def test_what_is_wrong_with_it_is_said_with_its_line(
    tmp_path: Path, source: str, line: int, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        view(tmp_path, source)
    assert f":{line}:" in (raised.value.where or "")
    assert said in f"{raised.value.message} {raised.value.hint}"


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        ("unbase64(", "is not a SQL expression"),
        ("id", 'there is no column "id" before an event is decoded'),
        ("max(value)", "aggregates"),
        ("unbase46(value)", "did you mean unbase64()?"),
        ("concat(value, rand())", "rand"),
        ("(SELECT value)", "without subquery"),
    ],
)
@pytest.mark.parametrize("rest", ["    key: id\nfields: {n: count(s.id)}", "sql: SELECT id FROM s\nkey: id"])
def test_a_transform_is_computed_from_the_bytes_of_one_event(
    tmp_path: Path, transform: str, said: str, rest: str
) -> None:
    file = tmp_path / "v.yaml"
    file.write_text(
        f'view: v\nsources:\n  s:\n    topic: t\n    format: json\n    transform: "{transform}"\n'
        f"    schema: {{id: bigint}}\n{rest}\n"
    )

    def checked() -> None:
        found = load_view(file)
        shape(found, {"s": found.sources["s"].declared})

    with pytest.raises(ConfigError) as raised:
        checked()
    assert 'source "s": transform' in raised.value.message
    assert said in f"{raised.value.message} {raised.value.hint}"


def test_a_transform_is_part_of_how_a_source_is_read(tmp_path: Path) -> None:
    source = view(tmp_path, JSON + "\n    transform: unbase64(value)").sources["s"]
    reading = reading_of(orjson.loads(orjson.dumps(source.declared)))
    assert reading is not None and reading.transform == "unbase64(value)"
    assert "transform" not in view(tmp_path, JSON).sources["s"].declared["hub"]  # notes of before stay equal


def test_an_unknown_column_of_a_declared_schema_is_told_with_the_nearest(tmp_path: Path) -> None:
    found = view(tmp_path, JSON, "fields: {n: max(s.att)}")
    with pytest.raises(ConfigError) as raised:
        shape(found, {"s": found.sources["s"].declared})
    assert raised.value.hint == 'did you mean "at"?'


@pytest.mark.parametrize(
    ("detail", "word", "everywhere"),
    [
        ("its bytes do not fit its schema id 7", "undecodable", True),
        ("it does not fit its schema id 7: its a is not a valid bigint", "unfitting", False),
        ("its schema id 7 does not resolve to the schema that the view reads with: a", "unfitting", False),
        ("its a is not a valid bigint", "unfitting", False),
        ("no JSON object of its columns", "unfitting", False),
        ("no line of CSV with exactly its columns (a, b)", "unfitting", False),
        ("no XML document <a> with values of its columns (id bigint)", "unfitting", False),
        ("its transform gives null", "unfitting", False),
        ("not UTF-8, which a text is", "unfitting", False),
        ("its schema id 7 is not a record schema of the registry", "unknown_schema", True),
    ],
)
def test_what_one_view_refuses_another_may_have_taken(detail: str, word: str, everywhere: bool) -> None:
    """A replay of such an event names the views that it is for: else the others would count it twice."""
    headers = [("hub.dlq.reason", detail.encode()), ("hub.dlq.view", b"v")]
    letter = dead_letter_of(Record("t.dlq", 0, 0, 0, b"k", b"v", tuple(headers)))
    assert (letter.reason, letter.everywhere) == (word, everywhere)


def test_defaults_of_properties_and_whether_null_is_a_value_beside_them() -> None:
    def properties(**of: Any) -> dict[str, Any]:
        return {"type": "object", "properties": of}

    schema = properties(
        plain={"type": "string"},
        cur={"type": "string", "default": "EUR"},
        note={"type": ["string", "null"], "default": "x"},
        either={"oneOf": [{"type": "null"}, {"type": "integer"}], "default": 5},
        there={"$ref": "#/$defs/there"},
        own={"$ref": "#/$defs/there", "default": 2},
        both={"allOf": [{"type": "integer", "default": 3}]},
        none={"type": ["string", "null"], "default": None},
    ) | {"$defs": {"there": {"type": "integer", "default": 1}}}
    fields = {
        each["name"]: each
        for each in of_registry(SchemaSource.of("JSON", orjson.dumps(schema).decode()))["fields"]
    }
    assert {name: each["default"] for name, each in fields.items() if each["default"] is not None} == {
        "cur": "EUR", "note": "x", "either": 5, "there": 1, "own": 2, "both": 3,
    }  # fmt: skip
    assert {name for name, each in fields.items() if each.get(ADMITS_NULL)} == {"note", "either"}


def test_a_view_that_began_before_defaults_were_known_goes_on_without_them() -> None:
    """A note in its checkpoint keeps its meaning: columns without defaults, as in its state."""
    avro = {"type": "record", "name": "O", "fields": [
        {"name": "a", "type": "long", "aliases": ["b"]}, {"name": "c", "type": "string",
        "default": "EUR"}]}  # fmt: skip
    plain = without_defaults(avro)["fields"]
    assert plain == [
        {"name": "a", "type": "long", "default": None},
        {"name": "c", "type": "string", "default": None},
    ]
    text = 'syntax = "proto2"; message O { optional string cur = 1 [default = "EUR"]; }'
    with_default = of_registry(SchemaSource.of("PROTOBUF", text))
    before = of_registry(SchemaSource.of("PROTOBUF", text.replace(' [default = "EUR"]', "")))
    assert with_default["fields"][0]["default"] == "EUR"
    assert without_defaults(with_default) == before


AVSC = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
BINARY = "    format: avro\n    schema_file: formats/r.avsc"


def project_of(path: Path, name: str, text: str) -> Path:
    """Return the folder of views of a project with a schema file."""
    for folder in ("formats", "views"):
        (path / folder).mkdir(exist_ok=True)
    (path / "formats" / name).write_text(text)
    return path / "views"


def test_a_schema_file_is_stored_with_the_view_and_belongs_to_its_definition(tmp_path: Path) -> None:
    folder = project_of(tmp_path, "r.avsc", AVSC)
    found = view(folder, BINARY)
    assert view_of(body_of(found)) == found and "long" in body_of(found)
    assert spark_types(found.sources["s"].declared) == {"id": "bigint"}
    assert [each.name for each in files_of(folder / "v.yaml")] == ["v.yaml", "r.avsc"]
    (tmp_path / "formats" / "r.avsc").unlink()
    assert view_of(body_of(found)).sources["s"].declared == found.sources["s"].declared


PROTOBUF_FILE = "    format: protobuf\n    schema_file: {file: formats/p.proto, message: AA}"


@pytest.mark.parametrize(
    ("name", "text", "source", "said"),
    [
        ("r.avsc", '"string"', BINARY, "an event is a record"),
        ("r.avsc", "{", BINARY, "JSON"),
        ("p.proto", "syntax = 'proto3'; message A {}", PROTOBUF_FILE, "did you mean"),
        ("p.proto", "message", PROTOBUF_FILE, ""),
    ],
)
def test_a_schema_file_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, text: str, source: str, said: str
) -> None:
    folder = project_of(tmp_path, name, text)
    with pytest.raises(ConfigError) as raised:
        view(folder, source)
    assert name in (raised.value.where or "") and raised.value.code == "HUB-1115"
    assert said in f"{raised.value.message} {raised.value.hint}"


def test_a_changed_schema_file_makes_another_version(tmp_path: Path) -> None:
    folder = project_of(tmp_path, "r.avsc", AVSC)
    one = fingerprint(view(folder, BINARY))
    assert fingerprint(view(folder, BINARY)) == one
    (tmp_path / "formats" / "r.avsc").write_text(AVSC.replace("[{", '[{"name": "new", "type": "int"}, {'))
    assert fingerprint(view(folder, BINARY)) != one  # the bytes before `id` are others now


def fingerprint(of: View) -> str:
    schema = of.sources["s"].declared
    compiled = shape(of, {"s": schema})
    return entity_fingerprint(compiled, (Input(compiled.sources[0], ("t",), (), schema),))


@pytest.mark.parametrize(
    ("kind", "ending"), [(PythonFile, "py"), (EventSchemaFile, "avsc"), (EventSchemaFile, "proto")]
)
def test_a_named_file_lies_in_its_folder_or_below_it(kind: Any, ending: str) -> None:
    assert kind(file=f"below/a..b.{ending}").file == f"below/a..b.{ending}"
    for outside in (f"a/../../b.{ending}", f"below/../b.{ending}"):
        with pytest.raises(ValueError, match="must not contain"):
            kind(file=outside)
