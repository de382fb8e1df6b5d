"""Facts for masks from a registry, a tree and a store: all versions' tags, keys, and origins of columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub.access.masking.facts import ColumnOrigin
from hub.api.masking.facts import LiveMaskFacts
from hub.errors import PeerError
from hub.log import MemoryCluster
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.stores.sql_store import Store
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.server.node import RegistryNode
from hub.topics.tree.tree import LiveTree


def record(name: str, **fields: list[str]) -> str:
    made = [{"name": field, "type": "string", "confluent:tags": tags} for field, tags in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": made})


@pytest.fixture
def facts(tmp_path: Path) -> Iterator[LiveMaskFacts]:
    node = RegistryNode(MemoryCluster())
    assert node.start()
    node.submit(RegisterSchema("shop.orders-value", record("Order", mail=["PII"], total=[])))
    node.submit(RegisterSchema("shop.orders-key", record("Key", who=["SECRET"])))
    (tmp_path / "topics.yaml").write_text("topics: {shop: {topics: {orders: {key: total}, other: {}}}}\n")
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    yield LiveMaskFacts(node, LiveTree(tmp_path / "topics.yaml"), store)
    store.close()
    node.stop()


def reported(facts: LiveMaskFacts, *views: View | SqlView) -> None:
    """Let a materializer report these as the versions of one view."""
    versions: list[dict[str, Any]] = [{"body": body_of(each), "state": "served"} for each in views]
    facts.store.apply([], {f"versions:{views[0].view}": {"versions": versions}})


def test_a_topic_has_the_tags_of_its_schemas_and_the_key_of_the_tree(facts: LiveMaskFacts) -> None:
    found = facts.topic("shop.orders")
    assert found.fields == {("mail",): {"PII"}, ("total",): frozenset(), ("_key", "who"): {"SECRET"}}
    assert found.key == "total"
    assert facts.topic("shop.other").fields == {} and facts.topic("nowhere").key is None


def test_a_view_has_the_origins_of_all_its_versions_and_unknown_columns_are_unknown(
    facts: LiveMaskFacts,
) -> None:
    with pytest.raises(PeerError, match="not known, so they cannot be masked"):
        facts.view("v")
    sources = {"o": {"topic": "shop.*", "key": "total"}}
    views = [
        View.model_validate({"view": "v", "sources": sources, "fields": {"a": column}})
        for column in ("o.total", "o.mail")
    ]
    reported(facts, *views)
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in NESTED.items()]
    facts.store.ensure_view("v", {"type": "record", "name": "v", "fields": fields}, [], "t1")
    found = facts.view("v")
    paths = {each.path for each in found.columns["a"] or () if each.topic == "shop.orders"}
    assert paths == {("total",), ("mail",)}
    assert found.columns["later"] is None and found.nested == {"later"}
    assert {"shop.*", "shop.orders", "shop.other"} <= {*found.sources}
    assert ColumnOrigin("shop.orders", ("total",)) in (found.key or ())


NESTED = {"a": "string", "later": {"type": "array", "items": "string"}}


def test_a_sql_view_has_its_declared_key_else_all_columns(facts: LiveMaskFacts) -> None:
    declared = {
        "view": "s",
        "sources": {"o": {"topic": "shop.orders"}},
        "sql": "SELECT upper(mail) AS m, total AS t, _key AS k FROM o",
        "key": ["t"],
    }
    reported(facts, SqlView.model_validate(declared))
    found = facts.view("s")
    assert found.key_columns == ("t",) and found.key is None
    assert ColumnOrigin("shop.orders", ("mail",)) in (found.columns["m"] or ())
    assert ColumnOrigin("shop.orders", ("_key",)) in (found.columns["k"] or ())
    reported(facts, SqlView.model_validate({**declared, "key": []}))
    assert {*facts.view("s").key_columns} == {"m", "t", "k"}
