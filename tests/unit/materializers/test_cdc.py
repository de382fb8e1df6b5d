"""Schemas of change events as schemas of rows, and what a view's file may say of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from hub.materializers.definition.entity_view import EntitySource, View
from hub.materializers.definition.schema_impact import impacts
from hub.materializers.definition.sql_view import SqlSource
from hub.materializers.types import cdc
from hub.materializers.types.avro_types import field_types, kind
from hub.schema_registry.registry.snapshot import parse

SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [{"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": ["null", "long"]}],
}


def envelope(*fields: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": list(fields)}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "a.b",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "a.b.Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
        ],
    }


@pytest.mark.parametrize(
    ("of", "name", "seen"),
    [
        ("int", "io.debezium.time.Date", "date"),
        ("long", "io.debezium.time.Timestamp", "timestamp"),
        ("long", "io.debezium.time.MicroTimestamp", "timestamp"),
        ("long", "io.debezium.time.NanoTimestamp", "timestamp"),
        ("string", "io.debezium.time.ZonedTimestamp", "timestamp"),
        ("long", "io.debezium.time.MicroTime", "string"),
        ("int", "org.apache.kafka.connect.data.Date", "date"),
        ("string", "io.debezium.data.Json", "string"),
        ("int", "some.other.Name", "integer"),
    ],
)
def test_types_of_connect_are_types_of_sql(of: str, name: str, seen: str) -> None:
    field = {"name": "x", "type": ["null", {"type": of, "connect.name": name}]}
    assert kind(field_types(cdc.unwrapped(envelope(field)))["x"]) == seen


def test_a_row_has_the_columns_of_the_table_and_three_of_the_envelope() -> None:
    seen = cdc.unwrapped(envelope({"name": "id", "type": "int"}))
    assert list(field_types(seen)) == ["id", "_op", "_lsn", "_changed_at"]
    assert cdc.envelope_of(seen) == envelope({"name": "id", "type": "int"})
    assert cdc.envelope_of(envelope()) is None


def test_text_may_be_left_out_and_converted_values_may_not() -> None:
    seen = cdc.unwrapped(
        envelope(
            {"name": "bio", "type": "string"},
            {"name": "blob", "type": "bytes"},
            {"name": "at", "type": {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}},
            {"name": "n", "type": "long"},
        )
    )
    assert cdc.may_be_unavailable(seen) == {"bio", "blob"}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("string", "not a record"),
        (
            {"type": "record", "name": "x", "fields": [{"name": "op", "type": "string"}]},
            "before, after, source",
        ),
        (
            {
                **envelope(),
                "fields": [{"name": n, "type": "string"} for n in ("op", "before", "after", "source")],
            },
            "`after`",
        ),
    ],
)
def test_other_events_are_no_envelope(schema: Any, said: str) -> None:
    with pytest.raises(cdc.NotAnEnvelope, match=said):
        cdc.unwrapped(schema)


def test_what_contradicts_cdc_is_said() -> None:
    with pytest.raises(ValidationError, match="format csv has no change event"):
        EntitySource.model_validate(
            {"topic": "t", "key": "id", "cdc": "debezium", "format": "csv", "schema": {"id": "int"}}
        )
    with pytest.raises(ValidationError, match="rows of a table"):
        SqlSource.model_validate({"topic": "t", "cdc": "debezium"})
    with pytest.raises(ValidationError, match="not change events"):
        SqlSource.model_validate({"view": "v", "cdc": "debezium"})
    with pytest.raises(ValidationError, match="debezium"):
        EntitySource.model_validate({"topic": "t", "key": "id", "cdc": "maxwell"})


def test_a_column_that_the_table_loses_breaks_the_view() -> None:
    def schema(*columns: str) -> Any:
        fields = ({"name": each, "type": ["null", "string"], "default": None} for each in columns)
        return parse("AVRO", orjson.dumps(envelope(*fields)).decode())

    source = {"topic": "t", "cdc": "debezium", "key": "id"}
    view = View.model_validate(
        {"view": "v", "sources": {"c": source}, "fields": {"name": "c.name", "op": "c._op", "at": "c._lsn"}}
    )
    assert impacts([view], "t", schema("id", "name"), schema("id", "name", "city"), 2) == []
    (found,) = impacts([view], "t", schema("id", "name"), schema("id"), 2)
    assert found.column == "c.after.name"
