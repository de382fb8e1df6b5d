"""Events other than Avro, by Spark's own parsers and through a whole hub: rows, dead-letter records,
functions, versions."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from pipeline import EXAMPLES, Pipeline, plain, wait_until
from pyspark.sql import SparkSession

from hub.cli.view.schemas_source import schemas_of
from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.definition.load import load_view
from hub.materializers.golden.values import encoder_of
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, judged
from hub.materializers.spark.sql_rows import EVENTS
from hub.materializers.types.source_formats import declared
from hub.record import NewRecord

COLUMNS = {
    "a": "bigint", "i": "int", "s": "string", "t": "timestamp", "d": "double", "o": "struct<c: string>",
    "l": "array<string>",
    "m": "map<string, bigint>", "n": "decimal(10, 2)", "b": "binary", "day": "date", "bo": "boolean",
    "ns": "array<decimal(10, 2)>",
}  # fmt: skip
NO_OBJECT, NO_LINE = "no JSON object of its columns", "no line of CSV with exactly its columns"
NO_DOCUMENT = "no XML document <r> with values of its columns"

# A text, and the columns that it has besides nulls, or why it cannot be taken.
JSON: list[tuple[bytes, dict[str, Any] | str]] = [
    (b"{}", {}),
    (b' {"a": 1, "extra": {"x": [1]}} ', {"a": 1}),
    (b'{"a": null, "s": null, "o": null}', {}),
    (b'{"A": 1}', {}),
    (b'{"a": 1, "a": 2}', {"a": 2}),
    (b'{"a": 9223372036854775807, "i": -5}', {"a": 2**63 - 1, "i": -5}),
    (b'{"a": 9223372036854775808}', "its a is not a valid bigint"),
    (b'{"i": 3000000000}', "its i is not a valid int"),
    (b'{"a": "1"}', "its a is not a valid bigint"),
    (b'{"a": 1.5}', "its a is not a valid bigint"),
    (b'{"a": true}', "its a is not a valid bigint"),
    (b'{"s": 5}', {"s": "5"}),
    (b'{"s": {"x": [1, "y"]}}', {"s": '{"x":[1,"y"]}'}),
    (b'{"s": true}', {"s": "true"}),
    (b'{"d": 1}', {"d": 1.0}),
    (b'{"d": "1.5"}', "its d is not a valid double"),
    (b'{"n": 1.255}', {"n": "1.26"}),
    (b'{"n": "1.25"}', {"n": "1.25"}),
    (b'{"n": 123456789012.5}', "its n is not a valid decimal(10,2)"),
    (b'{"n": 125e-2, "s": "1e20240"}', {"n": "1.25", "s": "1e20240"}),
    (b'{"n": 1, "s": " \\"n\\": 1e20240, "}', {"n": "1.00", "s": ' "n": 1e20240, '}),
    (b'{"n" : 1e100000000}', NO_OBJECT),
    (b'{"n": -1.5E-100000000}', NO_OBJECT),
    (b'{"n": "1e100000000"}', NO_OBJECT),
    (b'{"n": "1,e1,00000000"}', NO_OBJECT),
    (b'{"n": "1\\u0065100000000"}', NO_OBJECT),
    (b'{"n": "1e\\u003100000000"}', NO_OBJECT),
    (b'{"ns": [1e2, 3456, "1e2"]}', {"ns": [Decimal(100), Decimal(3456), Decimal(100)]}),
    (b'{"ns": [1, 1e100000000]}', NO_OBJECT),
    (b'{"t": "2024-01-01T10:00:00.123456+02:00"}', {"t": "2024-01-01 08:00:00.123456"}),
    (b'{"t": 1700000000}', {"t": "2023-11-14 22:13:20"}),
    (b'{"t": "soon"}', "its t is not a valid timestamp"),
    (b'{"day": "2024-01-01"}', {"day": "2024-01-01"}),
    (b'{"day": 19000}', "its day is not a valid date"),
    (b'{"bo": "true"}', "its bo is not a valid boolean"),
    (b'{"b": "aGk="}', {"b": "hi"}),
    ((b'{"o": {"c": "x", "z": 1}, "l": ["a", '
    b'null], "m": {"k": 1}}'), {"o": ["x"], "l": ["a", None], "m": {"k": 1}}),
    (b'{"o": "x"}', "its o is not a valid struct<`c`:string>"),
    (b'{"l": "x"}', "its l is not a valid array<string>"),
    (b'{"m": {"k": "x"}}', "its m is not a valid map<string,bigint>"),
    (b'{"a": 1} {"a": 2}', NO_OBJECT),
    (b'{"a": 1}, {"a": 2}', NO_OBJECT),
    (b'{"a": 1} rest', NO_OBJECT),
    (b'{"a": 1', NO_OBJECT),
    (b"{'a': 1}", NO_OBJECT),
    (b'[{"a": 1}]', NO_OBJECT),
    (b"null", NO_OBJECT),
    (b"5", NO_OBJECT),
    (b"", NO_OBJECT),
    (b'{"s": "\xff"}', NO_OBJECT),
]  # fmt: skip
LINE = {"a": "bigint", "s": "string", "t": "timestamp", "n": "decimal(10, 2)"}
CSV: list[tuple[bytes, dict[str, Any] | str]] = [
    (b"1;x;2024-01-01T10:00:00Z;1.5", {"a": 1, "s": "x", "t": "2024-01-01 10:00:00", "n": "1.50"}),
    (b";;;", {}),
    (b'1;"a;""b""";;\r\n', {"a": 1, "s": 'a;"b"'}),
    (b'1;"a\nb";;', {"a": 1, "s": "a\nb"}),
    (b"1;x;", NO_LINE),
    (b"1;x;;;", NO_LINE),
    (b"one;x;;", NO_LINE),
    (b" 1;x;;", NO_LINE),
    (b"a;s;t;n", NO_LINE),
    (b"1;a;;\n2;b;;", NO_LINE),
    (b"", NO_LINE),
    (b"\n", NO_LINE),
    (b"\r\n", NO_LINE),
    (b'1;"a;""b"";";;125e-2', {"a": 1, "s": 'a;"b";', "n": "1.25"}),
    (b"1;1e20240;;1e2", {"a": 1, "s": "1e20240", "n": "100.00"}),
    (b"1;x;;1e100000000", NO_LINE),
    (b'1;"a;""b"";";;1,0e-1,00000000', NO_LINE),
    (b'1;x";;"1e100000000"', NO_LINE),
    (b";" * 20_480, NO_LINE),
    (b"1;\xff;;", NO_LINE),
]


ELEMENTS = {
    "a": "bigint", "s": "string", "t": "timestamp", "n": "decimal(10, 2)", "o": "struct<c: string, _x: int>",
    "l": "array<struct<q: int, _unit: string, _p: decimal(5,1)>>", "_id": "int", "bo": "boolean",
    "ns": "array<decimal(10,2)>",
}  # fmt: skip
ENTITIES = b"<!DOCTYPE r [<!ENTITY x 'boom'>]>"
XML: list[tuple[bytes, dict[str, Any] | str]] = [
    (b"<r/>", {}),
    (b"<r><a> 1 </a><s> x y </s><other>1</other></r>", {"a": 1, "s": "x y"}),
    (b"<r><a/><s/></r>", {"s": ""}),
    (b"<r id='4'><o x='5'><c>hi</c></o></r>", {"_id": 4, "o": ["hi", 5]}),
    (b"<r><l unit='kg'><q>1</q></l><l><q>2</q></l></r>", {"l": [[1, "kg", None], [2, None, None]]}),
    (b"<r><a>1</a><a>2</a></r>", {"a": 2}),
    (b"<r><s>&lt;&#65;<![CDATA[<b>]]></s></r>", {"s": "<A<b>"}),
    (b"<r><s><z>1</z></s></r>", {"s": "<z>1</z>"}),
    (b'<?xml version="1.0" encoding="UTF-8"?>\n<!-- c --><r><a>7</a></r>\n', {"a": 7}),
    (b"\xef\xbb\xbf<?xml version='1.0'?><r><a>7</a></r>", {"a": 7}),
    (b"<p:r xmlns:p='urn:x'><p:a>9</p:a></p:r>", {"a": 9}),
    (b"<r><t>2024-01-01T10:00:00.123456+02:00</t></r>", {"t": "2024-01-01 08:00:00.123456"}),
    (b"<r><bo>true</bo><n>1.255</n></r>", {"bo": True, "n": "1.26"}),
    (b"<r><n>1e2</n><s>1e20240</s></r>", {"n": "100.00", "s": "1e20240"}),
    (b"<r><a>x</a></r>", NO_DOCUMENT),
    (b"<r><a>1.5</a></r>", NO_DOCUMENT),
    (b"<r><a>9223372036854775808</a></r>", NO_DOCUMENT),
    (b"<r><n>123456789012</n></r>", NO_DOCUMENT),
    (b"<r><n>1e100000000</n></r>", NO_DOCUMENT),
    (b"<r><ns>1e2</ns><ns>2</ns><s k='1e20240'/></r>", {"ns": [Decimal(100), Decimal(2)], "s": ""}),
    (b"<r><ns>1</ns><ns> 1e100000000</ns></r>", NO_DOCUMENT),
    (b"<r xmlns:x='u'><x:n k='>'>1e100000000</x:n></r>", NO_DOCUMENT),
    (b"<r><l p = '1e100000000'/></r>", NO_DOCUMENT),
    (b"<r><l p='&#49;e100000000'/></r>", NO_DOCUMENT),
    (b"<r><N>1e100000000</N></r>", NO_DOCUMENT),
    (
        b"<r><n k='>' >5</n><l p='1.5' unit='1e20240'/><ns/></r>",
        {"n": "5.00", "l": [[None, "1e20240", Decimal("1.5")]], "ns": [None]},
    ),
    (b"<r><n><!-- x -->1e100000000</n></r>", NO_DOCUMENT),
    (b"<r><n><![CDATA[1e100000000]]></n></r>", NO_DOCUMENT),
    (b"<r><n>1&#101;100000000</n></r>", NO_DOCUMENT),
    (b"<r><bo>yes</bo></r>", NO_DOCUMENT),
    (b"<r><l><q>x</q></l></r>", NO_DOCUMENT),
    (b"<q><a>1</a></q>", NO_DOCUMENT),
    (b"<r><a>1</a>", NO_DOCUMENT),
    (b"<r><a>1</a></r><r><a>2</a></r>", NO_DOCUMENT),
    (b"<r><a>1</a></r> rest", NO_DOCUMENT),
    (b"</hub><hub><r><a>1</a></r>", NO_DOCUMENT),
    (b"text", NO_DOCUMENT),
    (b"", NO_DOCUMENT),
    (b"<r><s>\xff</s></r>", NO_DOCUMENT),
    (ENTITIES + b"<r><s>&x;</s></r>", NO_DOCUMENT),
    (ENTITIES.replace(b"'boom'", b"SYSTEM 'file:///etc/hostname'") + b"<r><s>&x;</s></r>", NO_DOCUMENT),
]
PACKED: list[tuple[bytes, dict[str, Any] | str]] = [
    (b"eyJhIjogMX0=", {"a": 1}),
    (b"eyJhIjogIngifQ==", "its a is not a valid bigint"),
    (b"e30=", {}),
    (b"!", "its transform gives null"),
]


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return bytes(value).decode()
        case tuple() | list():
            return [_plain(each) if isinstance(each, tuple) else each for each in value]
        case None | int() | float() | str() | dict():
            return value
        case _:
            return str(value)


@pytest.mark.parametrize(
    ("schema", "cases"),
    [
        (declared("json", COLUMNS), JSON),
        (declared("csv", LINE, separator=";"), CSV),
        (declared("xml", ELEMENTS, root="r"), XML),
        (
            declared("raw", {"s": "string"}),
            [(b"x\n", {"s": "x\n"}), (b"", {"s": ""}), (b"\xff", "not UTF-8, which a text is")],
        ),
        (declared("raw", {"b": "binary"}), [(b"hi", {"b": "hi"})]),
        (
            declared("json", {"a": "bigint"}, transform="try_to_binary(CAST(value AS STRING), 'base64')"),
            PACKED,
        ),
    ],
    ids=["json", "csv", "xml", "text", "bytes", "transform"],
)
def test_what_becomes_of_a_text(
    spark_session: SparkSession, schema: Any, cases: list[tuple[bytes, dict[str, Any] | str]]
) -> None:
    names = [field["name"] for field in schema["fields"]]
    shaped = SourcePlan("s", "t", tuple(sorted(names)), "e_s.a", None, False, None, None)
    events = spark_session.createDataFrame(
        [("t", 0, n, None, None, text) for n, (text, _) in enumerate(cases)], EVENTS
    )
    found = judged(events, [Input(shaped, ("t",), (), schema)], SchemaAnswers())
    differing = []
    for row in found.select("_offset", "value", "e_s", "_why").collect():
        text, wanted = cases[row["_offset"]]
        made = row["_why"]
        if made is None:
            every = {name: _plain(row["e_s"][name]) for name in names}
            made = {name: value for name, value in every.items() if value is not None}
        else:
            made = re.split(r" \((?:a, |a bigint[,)])", made)[0]
        if made != wanted:
            differing.append((text, made, wanted))
    assert differing == [], differing


# ---- a whole hub


def write(pipeline: Pipeline, topic: str, *values: bytes | None) -> None:
    writer = pipeline.cluster.writer()
    writer.append([NewRecord(topic, b"k", value) for value in values])
    writer.close()


def create(pipeline: Pipeline, *topics: str) -> None:
    for topic in topics:
        if topic not in pipeline.cluster.topics():
            pipeline.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def letters(pipeline: Pipeline, topic: str) -> list[tuple[bytes | None, str]]:
    """Return the refused events of a topic with their reasons."""
    reader = pipeline.cluster.reader()
    try:
        end = pipeline.cluster.end_offsets([f"{topic}.dlq"])
        reader.assign(pipeline.cluster.beginning_offsets([f"{topic}.dlq"]))
        found = []
        while not reader.position().covers(end):
            for record in reader.poll(100, 1.0):
                headers = dict(record.headers or ())
                found.append((record.value, (headers["hub.dlq.reason"] or b"").decode()))
        return sorted(found, key=lambda each: (each[0] or b"", each[1]))
    finally:
        reader.close()


def put(pipeline: Pipeline, **views: str) -> None:
    for name, text in views.items():
        (pipeline.settings.project / "views" / f"{name}.yaml").write_text(text)


def test_four_formats_make_one_row_and_what_does_not_fit_is_kept(pipeline: Pipeline) -> None:
    example = EXAMPLES / "formats"
    found = load_view(example / "views" / "customers.yaml")
    schemas, _ = schemas_of(example, found)
    names = {
        "crm": "fmt.customers",
        "orders": "fmt.orders",
        "clicks": "fmt.clicks",
        "balances": "fmt.balances",
    }
    text = (
        (example / "views" / "customers.yaml").read_text().replace("view: customers", "view: fmt_customers")
    )
    for source, topic in names.items():
        text = text.replace(f"topic: {found.sources[source].topic}", f"topic: {topic}")
    create(pipeline, *names.values())
    proto = (example / "schemas" / "shop.orders-value.proto").read_text()
    crm = pipeline.registry.register(
        "fmt.customers-value", (example / "schemas" / "crm.customers-value.json").read_text(), "JSON"
    )
    orders = pipeline.registry.register("fmt.orders-value", proto, "PROTOBUF")
    order, at = encoder_of(schemas["orders"]), "2024-03-01T10:00:00Z"
    bad = framed(orders, b"\x00\xff")
    write(pipeline, names["orders"],
        framed(orders, order({"order_id": "o1", "customer_id": 7, "card": "visa", "placed_at": at,
        "labels": {"channel": "web"}})),
        bad,
        framed(orders, b"\x02\x02"),
        framed(crm, b"{}"),
    )  # fmt: skip
    write(pipeline, names["crm"],
        framed(crm, b'{"customer_id": 7, "name": "Ada", "tier": "gold", "address": {"city": "Oslo"}, '
        b'"updated_at": "2024-03-01T10:00:00Z"}'),
        framed(crm, b'{"customer_id": "7"}'),
        b'{"customer_id": 7}',
    )  # fmt: skip
    write(pipeline, names["clicks"], b'{"user": {"id": 7, "agent": "firefox"}, "page": "/home"}', b"{", b"[]")
    write(pipeline, names["balances"], b"7;12.5;2024-03-01", b"7;12.5")
    put(pipeline, fmt_customers=text)
    pipeline.covers("fmt_customers", names.values(), 200.0)
    wanted = {
        "name": "Ada", "tier": "gold", "city": "Oslo", "orders": 1, "last_paid_by": "card",
        "last_channel": "web",
        "clicks": 1, "last_page": "/home", "agent": "firefox", "balance": "12.50",
    }  # fmt: skip
    row = {key: plain(each) for key, each in pipeline.rows("fmt_customers").items()}["7"]
    assert {**row, "balance": f"{float(row['balance']):.2f}"} == wanted
    refused = {topic: letters(pipeline, topic) for topic in names.values()}
    assert refused["fmt.orders"] == [
        (framed(crm, b"{}"), f"its schema id {crm} is not a record schema of the registry"),
        (bad, f"it does not fit its schema id {orders}: {refused['fmt.orders'][1][1].partition(': ')[2]}"),
        (framed(orders, b"\x02\x02"), (f"it does not fit its schema id {orders}: it is message [1] of its "
        "file; the view reads shop.Order, the file's first message")),
    ]  # fmt: skip
    assert [reason for _, reason in refused["fmt.customers"]] == [
        f"it does not fit its schema id {crm}: its customer_id is not a valid bigint",
        "not in the Confluent wire format (no magic byte 0 and schema id)",
    ]
    assert refused["fmt.clicks"] == [(b"[]", "no JSON object of its columns"), (b"{",
        "no JSON object of its columns")]  # fmt: skip
    assert refused["fmt.balances"] == [(b"7;12.5",
        "no line of CSV with exactly its columns (account, balance, booked_on)")]  # fmt: skip

    # One more field, with another schema id: the view continues, and earlier rows stay.
    newer = pipeline.registry.register("fmt.orders-value", proto.replace("placed_at = 8;",
        "placed_at = 8;\n  string note = 9;", 1), "PROTOBUF")  # fmt: skip
    assert newer != orders
    later = {"order_id": "o2", "customer_id": 7, "voucher": "v", "placed_at": "2024-03-02T10:00:00Z"}
    write(pipeline, names["orders"], framed(newer, order(later)))
    pipeline.covers("fmt_customers", names.values())
    row = pipeline.rows("fmt_customers")["7"]
    assert (row["orders"], row["last_paid_by"]) == (2, "voucher")
    (pipeline.settings.project / "views" / "fmt_customers.yaml").unlink()


WORDS = (
    "def kind(page: str | None) -> str | None:\n    return {0}\n"
    "def bare(value: bytes | None) -> bytes | None:\n"
    "    return value[1:] if value and value[:1] == b'#' else None\n"
)


def test_a_changed_function_makes_a_new_version_and_one_that_fails_is_named(pipeline: Pipeline) -> None:
    create(pipeline, "fmt.pages")
    code = pipeline.settings.project / "views" / "fmt_words.py"
    code.write_text(WORDS.format("page.upper()"))
    write(pipeline, "fmt.pages", b'#{"id": 1, "page": "a"}', b"#no JSON", b"{}", None)
    put(
        pipeline,
        fmt_pages="view: fmt_pages\ntransforms: fmt_words.py\n"
        "sources:\n  p:\n    topic: fmt.pages\n    transform: bare(value)\n    format: json\n"
        "    schema: {id: bigint, page: string}\n"
        "sql: SELECT p.id, kind(p.page) AS kind FROM p\nkey: id\n",
    )

    def kinds() -> dict[str, Any]:
        return {key: row["kind"] for key, row in pipeline.rows("fmt_pages").items()}

    pipeline.covers("fmt_pages", ["fmt.pages"], 200.0)
    assert kinds() == {"1": "A"}
    assert letters(pipeline, "fmt.pages") == [
        (b"#no JSON", "no JSON object of its columns"),
        (b"{}", "its transform gives null"),
    ]
    write(pipeline, "fmt.pages", b'#{"id": 2}')
    said = 'function "kind" failed, of (None,): AttributeError'
    wait_until(
        lambda: said in str(pipeline.state("fmt_pages").get("reason")),
        100.0,
        lambda: str(pipeline.state("fmt_pages")),
    )
    code.write_text(WORDS.format("page and page.lower()"))
    wait_until(lambda: kinds() == {"1": "a", "2": None}, 200.0, lambda: str(pipeline.state("fmt_pages")))
    (pipeline.settings.project / "views" / "fmt_pages.yaml").unlink()
    code.unlink()
