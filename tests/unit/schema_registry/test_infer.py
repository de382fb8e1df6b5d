"""A schema from samples: what each kind of value becomes, the law that samples fit their schema,
and files as samples."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import CallerError, ConfigError
from hub.schema_registry.folder.infer import infer
from hub.schema_registry.folder.inference.shapes import Inferred
from hub.schema_registry.folder.samples import format_of, samples
from hub.schema_registry.formats.avro import schema as avro
from hub.schema_registry.formats.avro.types import named_types
from hub.schema_registry.formats.json_schema import schema as json_schema


def types(*values: Any, text_only: bool = False) -> dict[str, str]:
    return {each.path: each.type for each in infer(values, text_only=text_only).fields}


def a(*values: Any, **more: Any) -> str:
    return types(*({"a": each} for each in values), **more)["a"]


UUIDS = [f"{n:08d}-1111-4222-8333-444444444444" for n in range(3)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, False], "boolean"),
        ([1, 2], "long"),
        ([1, 2.5], "double"),
        ([2**63], "double"),
        (["x", "y"], "string"),
        ([None], "nullable string"),
        ([1, None], "nullable long"),
        ([1, "x"], "long or string"),
        ([1, "x", None, True], "nullable boolean or long or string"),
        (["2024-02-29"], "date"),
        (["2024-02-30"], "string"),
        (["2024-02-29", "x"], "string"),
        (["2024-01-01T10:00:00Z"], "timestamp-millis"),
        (["2024-01-01T10:00:00Z", "2024-01-01T10:00:00.123456+02:00"], "timestamp-micros"),
        (["2024-01-01 10:00"], "local-timestamp-millis"),
        (["2024-01-01T25:00:00Z"], "string"),
        (UUIDS, "uuid"),
        (["a@b.example"], "string"),
        (["placed", "shipped"] * 10, "enum of placed, shipped"),
        (["placed", "shipped"] * 9, "string"),
        (["placed"] * 30, "string"),
        (["not placed", "shipped"] * 20, "string"),
        ([[1], [2, 3]], "array of long"),
        ([[], []], "array of nullable string"),
        ([[1], ["x"]], "array of long or string"),
        ([{}], "map of nullable string"),
        ([{"x": 1}, {"x": 2}], "record"),
        ([{f"u-{n}7": n} for n in range(3)], "map of long"),
        ([{f"2024-01-{n:02d}": 1.5} for n in range(1, 9)], "map of double"),
        ([{chr(97 + n) * 3: n} for n in range(25)], "map of long"),
        ([{chr(97 + n) * 3: n for n in range(25)}] * 2, "record"),
    ],
)
def test_what_values_become(values: list[Any], expected: str) -> None:
    assert a(*values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "2"], "long"),
        (["1", "2.5"], "double"),
        (["007", "8"], "string"),
        (["true", "false"], "boolean"),
        (["1", "x"], "string"),
        ([["1", "2"], "3"], "array of long"),
    ],
)
def test_formats_that_know_text_only_have_numbers_in_it(values: list[Any], expected: str) -> None:
    assert a(*values, text_only=True) == expected


def test_a_number_of_milliseconds_under_a_times_name_is_a_time() -> None:
    found = types({"updated_at": 1_700_000_000_000, "amount": 1_700_000_000_000})
    assert found == {"updated_at": "timestamp-millis", "amount": "long"}


def test_a_field_that_is_missing_somewhere_is_nullable_and_what_speaks_for_it_is_told() -> None:
    made = infer([{"a": 1, "b": "x@y.example"}, {"a": 2}, {"a": 3, "b": None}, {"a": "four"}], "shop.Order")
    first, second = made.fields
    assert (first.samples, first.of, first.nulls, dict(first.types)) == (4, 4, 0, {"long": 3, "string": 1})
    assert first.confidence == 0.6 and first.examples == ("1", "2", "3")
    assert (second.samples, second.of, second.nulls, second.confidence) == (2, 4, 1, 0.5)
    assert "looks like email" in second.remark
    assert made.avro["namespace"] == "shop" and made.avro["name"] == "Order"
    assert made.avro["fields"][1] == {"name": "b", "type": ["null", "string"], "default": None}
    assert made.json_schema["required"] == ["a"]
    assert made.json_schema["properties"]["b"] == {"type": ["string", "null"], "format": "email"}


def test_keys_that_are_no_names_get_some_and_nested_types_have_names_of_their_own() -> None:
    made = infer(
        [{"first-name": "A", "first_name": "B", "1": 2, "to": {"x": {"y": 1}}, "from": {"x": {"y": 1}}}], "r"
    )
    assert [each["name"] for each in made.avro["fields"]] == ["first_name", "first_name2", "_1", "to", "from"]
    assert made.conform({"first-name": "A", "1": 2})["first_name"] == "A"
    assert {"RTo", "RToX", "RFrom", "RFromX"} < set(named_types([made.avro]))
    assert '"first-name" is not a name in Avro' in made.fields[0].remark


def test_keys_and_names_that_are_names_stay_as_they_are() -> None:
    """Regression: `_id` was silently renamed to `id`, so that a producer's `_id` had no field."""
    made = infer([{"_id": 1, "id": 2, "_deleted": False, "__v": 3}], "_raw.order_line")
    assert [each["name"] for each in made.avro["fields"]] == ["_id", "id", "_deleted", "__v"]
    assert (made.avro["namespace"], made.avro["name"]) == ("_raw", "order_line")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-01T10:00:00Z", "date-time"),
        ("2024-01-01T10:00:00.123456+02:00", "date-time"),
        ("2024-01-01 10:00:00Z", None),
        ("2024-01-01T10:00Z", None),
        ("2024-01-01T10:00:00+0200", None),
    ],
)
def test_a_date_time_of_json_schema_is_one_as_its_validators_have_it(
    value: str, expected: str | None
) -> None:
    assert infer([{"a": value}]).json_schema["properties"]["a"].get("format") == expected


def test_no_sample_is_refused() -> None:
    for values in ([], [None]):
        with pytest.raises(CallerError, match="no sample"):
            infer(values)
    with pytest.raises(CallerError, match="not JSON: bytes"):
        infer([{"a": b""}])
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(CallerError, match="nested deeper"):
        infer([deep])


# ---- the law: samples fit their schema

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["placed", "shipped", "2024-01-01", "2024-01-01T10:00:00Z", "9999-12-31T23:59:59-10:00",
    "12",
                     "0001-01-01T00:00:00+10:00", "true", "a@b.example", "2024-01-01 10:00:00.123456",
                     *UUIDS]),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.sampled_from([0, 1, 2**63 - 1, -(2**63), 2**63, 1_700_000_000_000]),
        st.floats(allow_nan=False, allow_infinity=False),
        TEXTS,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.sampled_from(["a", "b", "at", "id-1", "id-2", "x y"]), TEXTS), inner, max_size=4
        ),
    ),
    max_leaves=12,
)
RECORDS = st.dictionaries(
    st.one_of(st.sampled_from(["a", "b", "created_at", "c-d", "c_d"]), TEXTS), VALUES, max_size=5
)


def fits(made: Inferred, values: list[Any]) -> None:
    avro.parse(json.dumps(made.avro))
    schema = fastavro.parse_schema(made.avro)
    for each in values:
        value = made.conform(each)
        assert fastavro.validate(value, schema, raise_errors=True)
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, value)
        body.seek(0)
        fastavro.schemaless_reader(body, schema, None)


@given(st.lists(RECORDS, min_size=1, max_size=6))
@settings(max_examples=fast_or(20, 100), deadline=None)
def test_samples_fit_the_schema_that_they_gave(values: list[Any]) -> None:
    made = infer(values, "shop.Order")
    fits(made, values)
    json_schema.parse(json.dumps(made.json_schema))
    for each in values:
        jsonschema.validate(each, made.json_schema)
    assert infer(values, "shop.Order") == made
    assert all(0 <= each.confidence <= 1 for each in made.fields)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), TEXTS.filter(bool)), min_size=1, max_size=30))
@settings(deadline=None)
def test_samples_of_text_fit_too(values: list[Any]) -> None:
    fits(infer(values, text_only=True), values)


@given(st.lists(st.sampled_from(["a", "b", "c d", "e"]), min_size=20, max_size=60))
def test_an_enum_takes_every_text_that_was_seen(texts: list[str]) -> None:
    values = [{"a": each} for each in texts]
    fits(infer(values), values)


# ---- files as samples


def read(kind: str, content: str | bytes) -> list[Any]:
    return list(samples(content.encode() if isinstance(content, str) else content, kind, "f"))


def test_json_a_document_or_a_list_json_lines_a_line_each() -> None:
    assert read("json", '{"a": 1}') == [{"a": 1}]
    assert read("json", '\ufeff[{"a": 1}, {"a": 2}]') == [{"a": 1}, {"a": 2}]
    assert read("jsonl", '{"a": "\u2028"}\n\n{"a": 2}\n') == [{"a": "\u2028"}, {"a": 2}]


def test_half_a_character_is_no_text_and_ends_nothing() -> None:
    """A text that was cut within an emoji: the report on it could not be written."""
    assert read("jsonl", '{"a\\uD83d": "b\\ud83d", "c": "\\ud83d\\ude00"}') == [
        {"a?": "b?", "c": "\U0001f600"}
    ]


def test_csv_takes_its_names_from_the_first_line_and_empty_is_missing() -> None:
    assert read("csv", 'id;name\r\n1;"a;b"\r\n2;\r\n') == [{"id": "1", "name": "a;b"}, {"id": "2"}]


def test_xml_records_are_the_children_of_the_root() -> None:
    text = """<?xml version="1.0"?><orders xmlns:o="urn:o"><o:order id="1"><item>a</item><item>b</item><note/></o:order>
    <order id="2"><item>c</item><price currency="NOK">5.5</price></order></orders>"""  # noqa: E501
    first, second = read("xml", text)
    assert first == {"id": "1", "item": ["a", "b"], "note": None}
    assert second == {"id": "2", "item": "c", "price": {"currency": "NOK", "text": "5.5"}}
    made = infer([first, second], "shop.Order", text_only=True)
    assert {each.path: each.type for each in made.fields}["item"] == "array of string"
    fits(made, [first, second])
    assert read("xml", "<one><a>1</a><b>2</b></one>") == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("kind", "content", "where", "what"),
    [
        ("json", '{"a": 1,\n "b"}', "f:2:5", "not JSON"),
        ("json", '{"a": 1}\n{"a": 2}', "f:2:1", "Extra data"),
        ("json", '{"a": NaN}', "f:1:1", "NaN is not a JSON number"),
        ("json", "[" * 100_000, "f:1:1", "nested too deep"),
        ("json", "[" * 100 + "]" * 100, "f:1:1", "nested deeper than 64"),
        ("jsonl", '{"a": 1}\n{"a": }\n', "f:2:7", "not JSON"),
        ("csv", "a,b\n1,2,3\n", "f:2:1", "3 values, but 2 names"),
        ("csv", 'a,b\n1,"2\n', "f:2:1", "no CSV"),
        ("csv", "a,a\n", "f:1:1", '"a" occurs twice'),
        ("csv", "", "f:1:1", "no names of columns"),
        ("csv", b"a\n\xff\n", "f:2:1", "not UTF-8"),
        ("xml", "<a>\n<b></a>", "f:2:6", "mismatched tag"),
        ("xml", "", "f:1:1", "no element found"),
        ("xml", "<a>" * 100, "f:1", "nested deeper than 64"),
    ],
)
def test_what_is_no_sample_is_told_with_its_place(
    kind: str, content: str | bytes, where: str, what: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read(kind, content)
    assert refused.value.message.startswith(f"{where}:") and what in refused.value.message


@pytest.mark.parametrize(
    "document",
    [
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><a>&b;</a>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    ],
)
def test_document_types_and_entities_are_refused(document: str) -> None:
    with pytest.raises(ConfigError, match="a document type or an entity is declared"):
        read("xml", document)


def test_a_files_name_tells_its_format() -> None:
    names = ("a.JSON", "b.ndjson", "c.tsv", "d.xml", "e.txt")
    assert [format_of(each) for each in names] == ["json", "jsonl", "csv", "xml", None]
