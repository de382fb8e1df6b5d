"""Events of several schema versions are one table:
with the newest version's names and defaults, in every engine."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import httpx2
from avro_evolutions import EVOLUTIONS, OURS, Evolution, record
from pipeline import Pipeline, wait_until
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from hub.materializers.definition.entity_plan import SourcePlan
from hub.materializers.golden.values import encoder_of
from hub.materializers.spark.formats.decode import Input, SchemaAnswers, WriterSchema, judged
from hub.materializers.spark.sql_rows import EVENTS
from hub.materializers.types.json_defaults import filled
from hub.materializers.types.source_formats import of_registry
from hub.record import NewRecord
from hub.schema_registry.compat.resolved_schema import SchemaSource


def written(schema: Any, value: Any) -> bytes:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def plain(value: Any) -> Any:
    match value:
        case bytearray():
            return bytes(value)
        case list():
            return [plain(each) for each in value]
        case dict():
            return {key: plain(each) for key, each in value.items()}
    return plain(value.asDict()) if hasattr(value, "asDict") else value


def without_logical(schema: Any) -> Any:
    """Values are compared as they are written."""
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if isinstance(schema, dict):
        return {key: without_logical(each) for key, each in schema.items() if key != "logicalType"}
    return schema


def test_the_matrix_is_what_avro_for_java_makes_of_it(spark_session: SparkSession) -> None:
    """The oracle: Java's library with both schemas as they are."""
    events = spark_session.createDataFrame([(0,)], "n int")
    columns = []
    for n, of in enumerate(EVOLUTIONS):
        options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(of.reader)}
        body = F.lit(written(of.writer, of.value))
        columns.append(from_avro(body, json.dumps(of.writer), options).alias(f"f{n}"))
    found = events.select(*columns).collect()[0]
    differing = []
    for n, of in enumerate(EVOLUTIONS):
        row = plain(found[f"f{n}"])
        # A value that Avro refuses is a row of nulls to Spark.
        made = None if row is None or all(each is None for each in row.values()) else row
        if made != of.expected and of.expected != {"f": None}:
            differing.append((of.name, made, of.expected))
    assert differing == []


def test_views_decode_every_evolution_as_avro_resolves_it(spark_session: SparkSession) -> None:
    every: list[Evolution] = [*EVOLUTIONS, *OURS]
    inputs, rows = [], []
    for n, of in enumerate(every):
        names = tuple(sorted(each["name"] for each in of.reader["fields"]))
        shaped = SourcePlan(f"s{n}", f"t{n}", names, "", None, False, None, None)
        inputs.append(Input(shaped, (f"t{n}",), (WriterSchema(n + 1, of.writer),), of.reader))
        rows.append(
            (
                f"t{n}",
                0,
                n,
                None,
                b"k",
                WriterSchema(n + 1, None).head + written(without_logical(of.writer), of.value),
            )
        )
    found = judged(spark_session.createDataFrame(rows, EVENTS), inputs, SchemaAnswers()).collect()
    differing = []
    for row in found:
        of = every[row["_offset"]]
        made = plain(row[f"e_s{row['_offset']}"])
        if row["_why"] is None:
            made = {name: made[name] for name in made if name != "_decoded"}
            if of in OURS and "time" in of.name and hasattr(made.get("f"), "timestamp"):
                made["f"] = round(made["f"].timestamp() * 1000)
            if made != of.expected:
                differing.append((of.name, made, of.expected))
        elif of.expected is not None or of.problem not in row["_why"]:
            differing.append((of.name, row["_why"], of.expected))
    assert differing == []


ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "cur": {"type": "string", "default": "EUR"},
        "note": {"type": ["string", "null"], "default": "none"},
        "qty": {"type": "integer", "default": "many"},  # none of its type: no default applies
        "at": {"$ref": "#/$defs/at"},
        "to": {
            "type": "object",
            "default": {"city": "Oslo"},
            "properties": {
                "city": {"type": "string"},
                "country": {"type": "string", "default": "NO"},
                "zip": {"type": ["string", "null"], "default": "0"},
            },
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer", "default": 1},
                    "tag": {"type": ["string", "null"], "default": "x"},
                },
            },
        },
        "by": {"type": "object", "additionalProperties": {
            "type": "object", "properties": {"v": {"type": "number", "default": 0.5}}}},
    },
    "$defs": {"at": {"type": "string", "format": "date", "default": "2024-01-01"}},
}  # fmt: skip
TO = {"city": "Oslo", "country": "NO", "zip": "0"}
JSON: list[tuple[str, dict[str, Any]]] = [
    ('{"id": 1}', {"id": 1, "cur": "EUR", "note": "none", "at": "2024-01-01", "to": TO}),
    ('{"cur": null, "note": null}', {"cur": "EUR", "note": None, "at": "2024-01-01", "to": TO}),
    ('{"cur": "USD", "note": "a", "at": "2024-03-01", "qty": 5, "to": {}}',
     {"cur": "USD", "note": "a", "at": "2024-03-01", "qty": 5, "to": {"city": None, "country": "NO",
     "zip": "0"}}),
    (('{"to": {"zip": null, "country": "DK"}, "lines": [{}, {"n": 5, "tag": null}], "by": '
    '{"a": {}, "b": {"v": 2}}}'),
     {"cur": "EUR", "note": "none", "at": "2024-01-01", "to": {"city": None, "country": "DK", "zip": None},
      "lines": [{"n": 1, "tag": "x"}, {"n": 5, "tag": None}], "by": {"a": {"v": 0.5}, "b": {"v": 2.0}}}),
    ('{"lines": [], "by": {}}', {"cur": "EUR", "note": "none", "at": "2024-01-01", "to": TO, "lines": [],
    "by": {}}),
]  # fmt: skip
PROTO_1 = """syntax = "proto2"; package shop;
message Order { optional int64 id = 1; optional string amt = 2; }"""
PROTO_2 = """syntax = "proto2"; package shop;
message Order { optional int64 id = 1; optional string amount = 2; optional string cur = 3 [default = "EUR"];
  enum State { OPEN = 0; PAID = 1; } optional State state = 4 [default = PAID]; optional Line line = 5; optional bytes raw = 6; }
message Line { optional int32 n = 1 [default = 7]; optional string note = 2; }"""  # noqa: E501


def test_properties_that_are_missing_have_their_schema_s_default(spark_session: SparkSession) -> None:
    shape = of_registry(SchemaSource.of("JSON", json.dumps(ORDER)))
    names = tuple(sorted(ORDER["properties"]))  # type: ignore[arg-type]
    shaped = SourcePlan("s", "t", names, "", None, False, None, None)
    head = WriterSchema(1, None).head
    rows = [("t", 0, n, None, None, head + text.encode()) for n, (text, _) in enumerate(JSON)]
    given = Input(shaped, ("t",), (WriterSchema(1, {}),), shape)
    found = judged(spark_session.createDataFrame(rows, EVENTS), [given], SchemaAnswers())
    differing = []
    for row in found.select("_offset", "_why", "e_s").collect():
        text, wanted = JSON[row["_offset"]]
        made = row["_why"]
        if made is None:
            made = plain(row["e_s"])
            made["at"] = str(made["at"])
            made = {name: made[name] for name in made if made[name] is not None or name in wanted}
        python = filled(json.loads(text), shape)
        same = all(python.get(name) == wanted[name] for name in wanted if name != "to")
        if made != wanted or not same or {"city": None, **python["to"]} != wanted["to"]:
            differing.append((text, made, python, wanted))
    assert differing == []


def test_messages_have_the_names_and_defaults_of_the_newest_file(spark_session: SparkSession) -> None:
    """Read by number, like Protobuf's runtime."""
    shape = of_registry(SchemaSource.of("PROTOBUF", PROTO_2))
    first = encoder_of(of_registry(SchemaSource.of("PROTOBUF", PROTO_1)))
    second = encoder_of(shape)
    bodies = [
        first({"id": 1, "amt": "5"}),
        second({"id": 2, "cur": "USD", "state": "OPEN", "line": {"note": "x"}}),
    ]
    shaped = SourcePlan(
        "s", "t", ("amount", "cur", "id", "line", "raw", "state"), "", None, False, None, None
    )
    rows = [("t", 0, n, None, None, WriterSchema(n + 1, None).head + body) for n, body in enumerate(bodies)]
    given = Input(shaped, ("t",), (WriterSchema(1, {}), WriterSchema(2, {})), shape)
    found = (
        judged(spark_session.createDataFrame(rows, EVENTS), [given], SchemaAnswers())
        .orderBy("_offset")
        .collect()
    )
    assert [row["_why"] for row in found] == [None, None]
    assert [{name: of for name, of in plain(row["e_s"]).items() if name != "_broken"} for row in found] == [
        {"id": 1, "amount": "5", "cur": "EUR", "state": "PAID", "line": None, "raw": None},
        {"id": 2, "amount": None, "cur": "USD", "state": "OPEN", "line": {"n": 7, "note": "x"}, "raw": None},
    ]


# ---- a whole hub

V1 = record("Sale", id="long", g="string", amt="long")
V2 = record("Sale", id="long", g="string", amt="long", cur=("string", {"default": "EUR"}))
V3 = record(
    "Sale", id="long", g="string", amount=("long", {"aliases": ["amt"]}), cur=("string", {"default": "EUR"})
)
V4 = record(
    "Sale", id="long", g="string", amount=("long", {"aliases": ["amt"]}), cur=("string", {"default": "DKK"})
)
SALES = [(1, "a", 5, None), (2, "a", 8, "EUR"), (3, "a", 2, "USD")]


def put(pipeline: Pipeline, **views: str) -> None:
    for name, text in views.items():
        (pipeline.views / f"{name}.yaml").write_text(text)


def create(pipeline: Pipeline, topic: str) -> None:
    pipeline.cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)


def write(pipeline: Pipeline, topic: str, schema_id: int, *bodies: bytes) -> None:
    head = WriterSchema(schema_id, None).head
    pipeline.writer.append([NewRecord(topic, b"k", head + body) for body in bodies])


def sums(pipeline: Pipeline, view: str, *group: str) -> dict[Any, int]:
    return {tuple(row[each] for each in group): row["total"] for row in pipeline.rows(view).values()}


def test_a_field_that_is_added_has_its_default_in_every_kind_of_view_and_in_sql(pipeline: Pipeline) -> None:
    topic = "evo.sales"
    create(pipeline, topic)
    subject = f"{topic}-value"
    pipeline.registry.set_compatibility(subject, "NONE") if hasattr(
        pipeline.registry, "set_compatibility"
    ) else None
    first = pipeline.registry.register(subject, json.dumps(V1))
    write(
        pipeline,
        topic,
        first,
        *(written(V1, {"id": n, "g": g, "amt": amt}) for n, g, amt, cur in SALES if cur is None),
    )
    second = pipeline.registry.register(subject, json.dumps(V2))
    write(pipeline, topic, second, *(
        written(V2, {"id": n, "g": g, "amt": amt, "cur": cur}) for n, g, amt, cur in SALES if cur is not None
    ))  # fmt: skip
    with pipeline.own_views():
        put(
            pipeline,
            evo_by=f"view: evo_by\nsources: {{s: {{topic: {topic}}}}}\n"
            "sql: SELECT g, cur, sum(amt) AS total FROM s GROUP BY g, cur\n",
            evo_entity=f"view: evo_entity\nsources: {{s: {{topic: {topic}, key: cur}}}}\nfields: "
            f"{{total: sum(s.amt)}}\n",
            evo_once=f"view: evo_once\nsources: {{s: {{topic: {topic}, key: cur, unique_by: id}}}}\n"
            "fields: {total: sum(s.amt)}\n",
            evo_delta=f"view: evo_delta\nsources: {{s: {{topic: {topic}, table: {{key: id}}}}}}\n"
            "sql: SELECT g, cur, sum(amt) AS total FROM s GROUP BY g, cur HAVING sum(amt) > 0\n",
        )
        for view in ("evo_by", "evo_entity", "evo_once", "evo_delta"):
            pipeline.covers(view, [topic])
        wanted = {("a", "EUR"): 13, ("a", "USD"): 2}
        assert sums(pipeline, "evo_by", "g", "cur") == wanted
        assert sums(pipeline, "evo_delta", "g", "cur") == wanted
        for view in ("evo_entity", "evo_once"):
            assert {key: row["total"] for key, row in pipeline.rows(view).items()} == {"EUR": 13, "USD": 2}
        asked = httpx2.post(
            f"{pipeline.url}/query",
            json={"sql": f'SELECT cur, sum(amt) AS total FROM "{topic}" GROUP BY cur ORDER BY cur'},
            timeout=60.0,
        ).json()
        assert asked["rows"] == [{"cur": "EUR", "total": 13}, {"cur": "USD", "total": 2}]

        # A version that renames: the view's SQL names the new column, and events of all three versions have
        # it.
        third = pipeline.registry.register(subject, json.dumps(V3))
        write(pipeline, topic, third, written(V3, {"id": 4, "g": "a", "amount": 1, "cur": "USD"}))
        renamed = "SELECT g, cur, sum(amount) AS total FROM s GROUP BY g, cur"
        put(pipeline, evo_by=f"view: evo_by\nsources: {{s: {{topic: {topic}}}}}\nsql: {renamed}\n")
        after = {("a", "EUR"): 13, ("a", "USD"): 3}
        wait_until(
            lambda: sums(pipeline, "evo_by", "g", "cur") == after,
            240.0,
            lambda: str(pipeline.state("evo_by")),
        )
        asked = httpx2.post(
            f"{pipeline.url}/query", json={"sql": f'SELECT sum(amount) AS n FROM "{topic}"'}, timeout=60.0
        ).json()
        assert asked["rows"] == [{"n": 16}]

        # A version with another default has another meaning: a version of the view is built and swapped in as
        # a whole.
        def served() -> int:
            return next(
                each["number"] for each in pipeline.state("evo_by")["versions"] if each["state"] == "served"
            )

        number = served()
        fourth = pipeline.registry.register(subject, json.dumps(V4))
        write(pipeline, topic, fourth, written(V4, {"id": 5, "g": "a", "amount": 1, "cur": "EUR"}))
        changed = {("a", "DKK"): 5, ("a", "EUR"): 9, ("a", "USD"): 3}
        seen = set()

        def swapped() -> bool:
            found = sums(pipeline, "evo_by", "g", "cur")
            seen.add(tuple(sorted(found.items())))
            return found == changed

        wait_until(swapped, 240.0, lambda: str(pipeline.state("evo_by")))
        assert served() > number
        before = {("a", "EUR"): 14, ("a", "USD"): 3}
        assert seen <= {tuple(sorted(each.items())) for each in (after, before, changed)}
