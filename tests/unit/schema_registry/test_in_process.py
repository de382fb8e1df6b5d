"""The registry's port: the same answers from the server's own node as over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from patience import patient

from hub.errors import CallerError, Conflict, NotFound
from hub.log import MemoryCluster
from hub.schema_registry.client.in_process import InProcessRegistry
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.commands import RegisterSchema, SetLevel
from hub.schema_registry.server.node import RegistryNode

ONE = '{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}'
TWO = (
    '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"b","type":"int","default":0}]}'
)
BROKEN = '{"type":"record","name":"r","fields":[{"name":"a","type":"string"}]}'
REFERS = '{"type":"record","name":"o","fields":[{"name":"r","type":"r"}]}'


@pytest.fixture
def node() -> Iterator[RegistryNode]:
    made = RegistryNode(MemoryCluster(), timeout_s=patient(5.0))
    assert made.start()
    yield made
    made.stop()


class OverHttp(RegistryClient):
    """The client, with the requests passed to the app of a node."""

    def __init__(self, node: RegistryNode) -> None:
        super().__init__("http://registry")
        app = FastAPI()
        app.include_router(create_router(node))
        self._http = TestClient(app, base_url="http://registry")  # type: ignore[assignment]


def both(question: Callable[[SchemaRegistry], Any], node: RegistryNode) -> Any:
    """Return the answer of both implementations, which must be equal, errors included."""

    def asked(registry: SchemaRegistry) -> Any:
        try:
            return question(registry)
        except (NotFound, Conflict, CallerError) as error:
            return type(error), error.message, error.hint

    here, there = asked(InProcessRegistry(node)), asked(OverHttp(node))
    assert here == there
    return here


def test_both_implementations_answer_alike(node: RegistryNode) -> None:
    own = InProcessRegistry(node)
    first = own.register("t-value", ONE)
    second = own.register("t-value", TWO)
    rules = {
        "domainRules": [{"name": "n", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}]
    }
    referring = RegisterSchema(
        "o-value", REFERS, references=(Reference("r", "t-value", 1),),
        metadata={"properties": {"owner": "x"}},
        rule_set=rules,
    )  # fmt: skip
    third = node.submit(referring)[0].schema_id
    other = node.submit(RegisterSchema(":.shop:s-value", ONE))[0].schema_id
    node.submit(SetLevel("alias-value", {"alias": "t-value"}))
    node.submit(SetLevel("t-value", {"compatibility": "FULL"}))

    assert both(lambda registry: registry.subjects(), node) == [":.shop:s-value", "o-value", "t-value"]
    for subject in ("t-value", "alias-value", "s-value", "none-value"):
        both(lambda registry, name=subject: registry.latest(name), node)  # type: ignore[misc]
        both(lambda registry, name=subject: registry.known_latest(name), node)  # type: ignore[misc]
        both(lambda registry, name=subject: registry.versions(name), node)  # type: ignore[misc]
        both(lambda registry, name=subject: registry.version(name, 1), node)  # type: ignore[misc]
        both(lambda registry, name=subject: registry.version(name, 9), node)  # type: ignore[misc]
        both(lambda registry, name=subject: registry.compatibility(name), node)  # type: ignore[misc]
    assert own.latest("alias-value").id == second and own.latest("s-value").id == other
    assert own.compatibility("t-value") == "FULL"
    for schema_id in (first, second, third, 99):
        both(lambda registry, id=schema_id: registry.subjects_of(id), node)  # type: ignore[misc]
        source = both(lambda registry, id=schema_id: registry.source(id), node)  # type: ignore[misc]
        if schema_id == third:
            assert (source.rule_set, source.metadata) == (rules, {"properties": {"owner": "x"}})
    assert both(lambda registry: registry.register("t-value", TWO), node) == second
    assert both(lambda registry: registry.register("t-value", BROKEN), node)[0] is Conflict
    assert both(lambda registry: registry.register("t-value", "{"), node)[0] is CallerError


def test_deleted_versions_are_listed_and_are_not_the_latest(node: RegistryNode) -> None:
    own = InProcessRegistry(node)
    first = own.register("t-value", ONE)
    OverHttp(node).delete("t-value")
    assert own.known_latest("t-value") is None
    assert both(lambda registry: registry.latest("t-value"), node)[0] is NotFound
    assert [each.id for each in both(lambda registry: registry.versions("t-value"), node)] == [first]
    assert both(lambda registry: registry.subjects_of(first), node) == {"t-value"}
    assert both(lambda registry: registry.subjects(), node) == []


def test_a_version_of_another_node_is_found_before_it_is_unknown() -> None:
    """A node that follows late reads its log to the end before it answers "unknown"."""
    cluster = MemoryCluster()
    leader, follower = RegistryNode(cluster), RegistryNode(cluster)
    assert leader.start() and follower.start()
    try:
        writes, reads = InProcessRegistry(leader), InProcessRegistry(follower)
        for number in range(20):
            subject = f"s{number}-value"
            schema_id = writes.register(
                subject, json.dumps({"type": "fixed", "name": "f", "size": number + 1})
            )
            assert writes.known_latest(subject) is not None  # at once on the node that registered it
            match number % 4:
                case 0:
                    assert reads.latest(subject).id == schema_id
                case 1:
                    assert subject in reads.subjects_of(schema_id)
                case 2:
                    assert [each.id for each in reads.versions(subject)] == [schema_id]
                case _:
                    reads.catch_up()
                    found = reads.known_latest(subject)
                    assert found is not None and found.id == schema_id
    finally:
        leader.stop()
        follower.stop()
