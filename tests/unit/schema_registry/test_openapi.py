"""The registry's OpenAPI: every route is described and no other, and the registry answers as its description says."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hub.api import create_app
from hub.config import Settings
from hub.log import MemoryCluster
from hub.schema_registry import exchange
from hub.schema_registry.node import Node
from hub.schema_registry.openapi import MEANINGS, MEDIA_TYPES, OPERATIONS, TAG, pattern, with_registry
from hub.schema_registry.registry import Refused
from hub.schema_registry.routes import Api, create_router

EXAMPLES = 12
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = with_registry({"openapi": "3.1.0", "info": {"title": "registry", "version": "1"}, "paths": {}})
SUBJECTS = ["s", "json-value", "proto-value", "top", ":.ctx:s", "a/b", "gone"]
TEXTS = [
    '"string"',
    '{"type":"record","name":"R","fields":[]}',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0}]}',
    '{"type":"enum","name":"E","symbols":["A"]}',
    '{"type":"object","properties":{"a":{"type":"integer"}}}',
    'syntax = "proto3"; message M { int32 a = 1; }',
]


def described() -> set[tuple[str, str]]:
    return {(pattern(each.path), each.method) for each in OPERATIONS}


def test_every_route_is_described_and_no_other() -> None:
    routes = {(path, method) for path, methods in Api(Node(MemoryCluster())).table() for method in methods}
    assert described() == routes
    assert len(OPERATIONS) == len(routes)


def test_it_is_in_the_hubs_own_description(tmp_path: Any) -> None:
    app = create_app(Settings(home=tmp_path))
    document = app.openapi()
    ours = {
        (path, method.upper())
        for path, methods in document["paths"].items()
        for method, each in methods.items()
        if TAG in each.get("tags", ())
    }
    assert ours == {(each.path, each.method) for each in OPERATIONS}
    assert "/health" in document["paths"]
    assert document == app.openapi() == json.loads(json.dumps(document))
    names = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(set(names)) == len(names)
    assert set(MEDIA_TYPES) <= set(exchange.MEDIA_TYPES)


def test_a_document_without_our_routes_is_left_as_it_is() -> None:
    given_ = {"paths": {"/x": {}}, "components": {"schemas": {"X": {}}}, "tags": [{"name": "x"}]}
    before = copy.deepcopy(given_)
    merged = with_registry(given_)
    assert given_ == before
    assert merged["components"]["schemas"]["X"] == {} and len(merged["tags"]) == 2
    assert with_registry(merged) == merged


def test_every_error_code_has_a_meaning_and_is_used() -> None:
    assert {code for each in OPERATIONS for code in each.codes} == set(MEANINGS)


# ---- the description played against the registry


def with_names_that_are_there() -> dict[str, Any]:
    """The description narrowed to what is in the registry, so that more than refusals are seen."""
    document = copy.deepcopy(DOCUMENT)
    narrow = {
        "subject": {"enum": SUBJECTS},
        "id": {"type": "integer", "minimum": 1, "maximum": 6},
        "version": {"enum": ["latest", "-1", 1, 2, 3]},
    }
    for methods in document["paths"].values():
        for each in methods.values():
            for parameter in each["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in narrow:
                    parameter["schema"] = narrow[parameter["name"]]
    ours = document["components"]["schemas"]
    ours["RegistryRequest"]["properties"]["schema"] = {"enum": TEXTS}
    ours["RegistryReference"]["properties"]["subject"] = {"enum": SUBJECTS}
    return document


class Played:
    """A registry with some of everything in it, and the operations of both descriptions against it."""

    def __init__(self) -> None:
        self.node = Node(MemoryCluster())
        assert self.node.start()
        self.app = FastAPI()
        self.app.include_router(create_router(self.node))
        self.fill(TestClient(self.app))
        self.operations = {}
        for name, document in (("any", DOCUMENT), ("there", with_names_that_are_there())):
            loaded = schemathesis.openapi.from_dict(document)
            loaded.app = self.app
            for result in loaded.get_all_operations():
                operation = result.ok()
                self.operations[name, operation.method.upper(), operation.path] = operation

    @staticmethod
    def fill(client: TestClient) -> None:
        def register(subject: str, schema: str, **more: Any) -> None:
            answer = client.post(f"/subjects/{subject}/versions", json={"schema": schema, **more})
            assert answer.status_code == 200, answer.text

        register("s", TEXTS[1], metadata={"properties": {"a": "b"}, "tags": {"R": ["PII"]}})
        register("s", TEXTS[2])
        register(":.ctx:s", TEXTS[2], ruleSet={"domainRules": [{"name": "r", "kind": "CONDITION"}]})
        register("a%2Fb", TEXTS[0])
        register("json-value", TEXTS[4], schemaType="JSON")
        register("proto-value", TEXTS[5], schemaType="PROTOBUF")
        top = '{"type":"record","name":"T","fields":[{"name":"r","type":"R"}]}'
        register("top", top, references=[{"name": "R", "subject": "s", "version": 1}])
        register("gone", TEXTS[3])
        assert client.delete("/subjects/gone").status_code == 200


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    found = Played()
    logging.disable(logging.CRITICAL)
    yield found
    logging.disable(logging.NOTSET)
    found.node.stop()


@pytest.mark.parametrize("names", ["there", "any"])
@pytest.mark.parametrize("each", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_the_registry_answers_as_it_is_described(played: Played, names: str, each: Any) -> None:
    operation = played.operations[names, each.method, each.path]

    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def play(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    play()
