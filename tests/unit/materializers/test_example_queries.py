"""The queries of the examples are ones that the hub answers:
names, types and functions, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hub.alerts.config.alerts_yaml import ALERTS_FILE, QueryAlert, load_query_alert, query_files
from hub.alerts.config.read_entries import read_alerts
from hub.demo import customers
from hub.materializers.definition.load import load_view
from hub.materializers.queries.compiler import compile_query
from hub.materializers.queries.inspection import placeholders
from hub.materializers.queries.parser import parse
from hub.materializers.queries.relations import QueryRelation
from hub.materializers.queries.saved_queries import load_queries
from hub.materializers.queries.topic_columns import META, columns_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.topics.tree.tree import load

EXAMPLE = Path(__file__).parents[3] / "examples" / "customer-360"
QUERIES = load_queries(EXAMPLE)
KIND: Mapping[type, str] = {str: "string", int: "long", bool: "boolean", float: "double"}


class Tables:
    """The example's view, typed by rows of its plain computation, and its topics, typed by their schemas."""

    def __init__(self) -> None:
        kinds: dict[str, str] = {"key": "string"}
        for row in customers.fold(customers.generate(1, 50, 2_000)).values():
            kinds |= {name: KIND[type(value)] for name, value in row.items() if value is not None}
        kinds["last_seen"] = "timestamp"
        view = load_view(EXAMPLE / "views" / "customer_360.yaml")
        assert set(view.columns) <= set(kinds)
        self.known = {view.name: QueryRelation(view.name, "view", '"v"', kinds)}
        for file in (EXAMPLE / "schemas").glob("*.avsc"):
            found = columns_of(SchemaSource.of("AVRO", json.dumps(json.loads(file.read_text()))).parsed())
            self.known[file.stem] = QueryRelation(file.stem, "topic", '"t"', {**found, **META})

    def relation(self, name: str, at_ms: int | None = None) -> QueryRelation | None:
        return self.known.get(name)

    def names(self) -> Iterable[str]:
        return self.known


@pytest.mark.parametrize("query", QUERIES, ids=[each.name for each in QUERIES])
@pytest.mark.parametrize("postgres", [False, True])
def test_an_example_is_answered(query: object, postgres: bool) -> None:
    saved = next(each for each in QUERIES if each is query)
    assert saved.doc
    statement = parse(saved.sql)
    parameters = dict.fromkeys(placeholders(statement), "x")
    compiled = compile_query(statement, Tables(), postgres=postgres, parameters=parameters, now_ms=0)
    assert len(compiled.columns) > 3


ALERTS = [load_query_alert(path) for path in query_files(EXAMPLE)]


@pytest.mark.parametrize("alert", ALERTS, ids=[each.alert for each in ALERTS])
@pytest.mark.parametrize("postgres", [False, True])
def test_a_query_that_is_an_alert_is_answered(alert: QueryAlert, postgres: bool) -> None:
    compiled = compile_query(parse(alert.query), Tables(), postgres=postgres, parameters={}, now_ms=0)
    assert compiled.columns
    assert alert.doc and alert.owner and set(alert.by) <= set(compiled.columns)


def test_the_example_makes_promises_and_says_who_is_told() -> None:
    """An alerts page of the demo that has something of everything."""
    topics = load(EXAMPLE / "topics.yaml").topics
    for objective in ("lag_ms", "latency_ms", "freshness_ms"):
        assert any(getattr(each.slo, objective) is not None for each in topics), objective
    assert load_view(EXAMPLE / "views" / "customer_360.yaml").slo.freshness_ms is not None
    reading = read_alerts(EXAMPLE / ALERTS_FILE)
    file = reading.file
    assert not reading.faults
    assert file.channels and file.as_routes() and ALERTS


def test_there_are_examples() -> None:
    assert {"cities", "customers_to_call", "orders_of_the_hour"} <= {each.name for each in QUERIES}
