"""The registry's OpenAPI: it describes every route and no other, and answers match their description."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, seed, settings
from samples import fast_or
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hub.api import create_app
from hub.config import Settings
from hub.log import MemoryCluster
from hub.schema_registry.compat.compatibility import POLICIES
from hub.schema_registry.formats.inline_tags import KINDS as ENTITY_KINDS
from hub.schema_registry.formats.known import FORMATTED, TYPES_IN_ORDER
from hub.schema_registry.http import asgi as http_asgi
from hub.schema_registry.http.openapi import TAG, registry_document, with_registry
from hub.schema_registry.http.routes import Api, create_router
from hub.schema_registry.model.data_contract import KINDS, LISTS
from hub.schema_registry.model.data_contract import MODES as RULE_MODES
from hub.schema_registry.model.facts import HIGHEST_ID, MODES
from hub.schema_registry.model.levels import LEVELS
from hub.schema_registry.model.subject_names import LONGEST
from hub.schema_registry.server.node import RegistryNode

POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
EXAMPLES = 10 if "HUB_FAULT_SEEDS" in os.environ else fast_or(2, 6)  # of one seed: the same in every run
CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
DOCUMENT = with_registry({"openapi": "3.1.0", "info": {"title": "registry", "version": "1"}, "paths": {}})
SUBJECTS = ["s", "json-value", "proto-value", "top", ":.ctx:s", "a/b", "gone", "imported"]
GUID = "2e2b64ee-5a9e-56a1-84a5-8a1c1e6a6b5b"
TEXTS = [
    '"string"',
    '{"type":"record","name":"R","fields":[]}',
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0}]}',
    '{"type":"enum","name":"E","symbols":["A"]}',
    '{"type":"object","properties":{"a":{"type":"integer"}}}',
    'syntax = "proto3"; message M { int32 a = 1; }',
]


@dataclass(frozen=True)
class RouteOperation:
    """One method of one path, as the file describes it."""

    method: str
    path: str
    said: dict[str, Any]

    @property
    def query(self) -> list[str]:
        return [each["name"] for each in self.said["parameters"] if each["in"] == "query"]

    @property
    def body(self) -> dict[str, Any] | None:
        return self.said.get("requestBody")

    @property
    def codes(self) -> list[int]:
        """Every error_code of the operation."""
        return [code for _, answer in self.failures for code in codes_of(answer["description"])]

    @property
    def failures(self) -> list[tuple[str, dict[str, Any]]]:
        return [(status, each) for status, each in self.said["responses"].items() if int(status) >= 400]


def codes_of(description: str) -> list[int]:
    return [int(each.partition(": ")[0]) for each in description.split("; ")]


FILE = registry_document()
MEANINGS = {int(code): meaning for code, meaning in FILE["x-errors"].items()}
OPERATIONS = [
    RouteOperation(method.upper(), path, said)
    for path, methods in FILE["paths"].items()
    for method, said in methods.items()
]


def pattern(path: str) -> str:
    """The path in the form of the route table: ``subjects//versions``."""
    return re.sub(r"\{\w+\}", "", path)[1:]


def described() -> set[tuple[str, str]]:
    return {(pattern(each.path), each.method) for each in OPERATIONS}


def test_every_route_is_described_and_no_other() -> None:
    routes = {
        (path, method)
        for path, methods in Api(RegistryNode(MemoryCluster())).paths.paths
        for method in methods
    }
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
    media_types = {
        media_type
        for each in OPERATIONS
        for answer in each.said["responses"].values()
        for media_type in answer.get("content", ())
    }
    assert media_types <= set(http_asgi.MEDIA_TYPES)


def test_a_document_without_our_routes_is_left_as_it_is() -> None:
    given_ = {"paths": {"/x": {}}, "components": {"schemas": {"X": {}}}, "tags": [{"name": "x"}]}
    before = copy.deepcopy(given_)
    merged = with_registry(given_)
    assert given_ == before
    assert merged["components"]["schemas"]["X"] == {} and len(merged["tags"]) == 2
    assert with_registry(merged) == merged


def test_every_error_code_has_a_meaning_and_is_used() -> None:
    assert {code for each in OPERATIONS for code in each.codes} == set(MEANINGS)
    for each in OPERATIONS:
        for status, answer in each.failures:
            codes = codes_of(answer["description"])
            assert {str(code)[:3] for code in codes} == {status}
            assert answer["description"] == "; ".join(f"{code}: {MEANINGS[code]}" for code in codes) + "."
            example = {"error_code": codes[-1], "message": MEANINGS[codes[-1]]}
            assert all(one["example"] == example for one in answer["content"].values())


def test_every_operation_names_the_errors_that_its_path_and_its_body_imply() -> None:
    for each in OPERATIONS:
        wanted = {400, 500, 50001}
        wanted |= {404} if "{" in each.path else set()
        wanted |= {413, 415, 422} if each.body else set()
        wanted |= {50002, 42209} if each.method != "GET" else set()
        wanted |= {422} if "limit" in each.query else set()
        assert wanted <= set(each.codes), (each.method, each.path)
        assert re.findall(r"\{(\w+)\}", each.path) == [
            one["name"] for one in each.said["parameters"] if one["in"] == "path"
        ]


def test_the_files_enums_are_those_of_the_code() -> None:
    schemas = FILE["components"]["schemas"]

    def enum(schema: str, name: str) -> list[str]:
        found = schemas[f"Registry{schema}"]["properties"][name]
        return list(next(iter(found["anyOf"]))["enum"] if "anyOf" in found else found["enum"])

    assert enum("Rule", "kind") == list(KINDS) and enum("Rule", "mode") == list(RULE_MODES)
    assert enum("Entity", "entityType") == list(ENTITY_KINDS)
    assert enum("Request", "schemaType") == enum("Version", "schemaType") == list(TYPES_IN_ORDER)
    assert enum("Settings", "compatibilityLevel") == enum("SettingsChange", "compatibility") == list(LEVELS)
    assert enum("Settings", "compatibilityPolicy") == list(POLICIES)
    assert enum("Mode", "mode") == enum("ModeChange", "mode") == list(MODES)
    assert set(schemas["RegistryRuleSet"]["properties"]) == set(LISTS)
    shared = FILE["x-parameters"]
    assert shared["format"]["schema"]["enum"] == ["default", *FORMATTED]
    assert shared["path_subject"]["schema"]["maxLength"] == LONGEST
    assert shared["path_id"]["schema"]["maximum"] == HIGHEST_ID
    types = FILE["paths"]["/schemas/types"]["get"]["responses"]["200"]["content"]
    assert all(one["example"] == list(TYPES_IN_ORDER) for one in types.values())


# ---- the description played against the registry


def with_names_that_are_there() -> dict[str, Any]:
    """The description narrowed to what is in the registry, so that more than refusals are seen."""
    document = copy.deepcopy(DOCUMENT)
    narrow = {
        "subject": {"enum": SUBJECTS},
        "id": {"type": "integer", "minimum": 1, "maximum": 7},
        "guid": {"enum": [GUID]},
        "version": {"enum": ["latest", "-1", 1, 2]},
    }
    for methods in document["paths"].values():
        for each in methods.values():
            for parameter in each["parameters"]:
                if parameter["in"] == "path" and parameter["name"] in narrow:
                    parameter["schema"] = narrow[parameter["name"]]
    ours = document["components"]["schemas"]
    ours["RegistryRequest"]["properties"] |= {
        "schema": {"enum": TEXTS},
        "id": {"enum": [None, -1, 2]},
        "version": {"enum": [None, -1, 0, 1, 2]},
    }
    ours["RegistryReference"]["properties"]["subject"] = {"enum": SUBJECTS}
    return document


def fill(client: TestClient) -> None:
    """Some of everything."""

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
    assert client.put("/mode/imported", json={"mode": "IMPORT"}).status_code == 200
    assert client.put("/config/s", json={"compatibility": "FULL", "normalize": True}).status_code == 200


@contextmanager
def serving() -> Iterator[FastAPI]:
    node = RegistryNode(MemoryCluster())
    assert node.start()
    made = FastAPI()
    made.include_router(create_router(node))
    fill(TestClient(made))
    yield made
    node.stop()


@pytest.fixture(scope="module")
def unchanged() -> Iterator[FastAPI]:
    """For those who only ask."""
    with serving() as made:
        yield made


@pytest.fixture
def app() -> Iterator[FastAPI]:
    """For those who write."""
    with serving() as made:
        yield made


class Stage:
    """Operations of both descriptions, loaded once, on the app of the day: an operation remembers its app."""

    def __init__(self) -> None:
        self.app: FastAPI | None = None
        self.schemas = {}
        for names, document in (("any", DOCUMENT), ("there", with_names_that_are_there())):
            self.schemas[names] = schemathesis.openapi.from_dict(document)
            self.schemas[names].app = self

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self.app is not None
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def stage() -> Stage:
    return Stage()


PLAYED = [
    pytest.param(each, names, mode, id=f"{each.method} {each.path} {names} {mode.value}")
    for names, mode in (("there", POSITIVE), ("there", NEGATIVE), ("any", POSITIVE))
    for each in OPERATIONS
    if mode is POSITIVE or "{" in each.path or each.query or each.body  # else there is nothing to say wrongly
]


@pytest.mark.parametrize(("each", "names", "mode"), PLAYED)
def test_the_registry_answers_as_it_is_described(
    request: pytest.FixtureRequest, stage: Stage, each: RouteOperation, names: str, mode: GenerationMode
) -> None:
    stage.app = request.getfixturevalue("unchanged" if each.method == "GET" else "app")
    operation = stage.schemas[names][each.path][each.method]

    @seed(20)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def play(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    play()


# ---- regressions


def test_a_reference_to_a_schema_of_another_type_is_refused(app: FastAPI) -> None:
    client = TestClient(app)
    for schema_type, text, subject in (
        ("AVRO", TEXTS[1], "proto-value"),
        ("AVRO", TEXTS[1], "json-value"),
        ("PROTOBUF", TEXTS[5], "s"),
        ("JSON", TEXTS[4], "s"),
    ):
        body = {
            "schema": text,
            "schemaType": schema_type,
            "references": [{"name": "x", "subject": subject, "version": 1}],
        }
        for path in ("/subjects/new/versions", "/subjects/s", "/compatibility/subjects/s/versions"):
            answer = client.post(path, json=body)
            assert (answer.status_code, answer.json()["error_code"]) == (422, 42201), answer.text
            assert f"the schema of type {schema_type}" in answer.json()["message"]


@pytest.mark.parametrize(
    "rule",
    [{"expr": 5}, {"doc": {}}, {"tags": "PII"}, {"tags": [1]}, {"params": {"a": 1}}, {"disabled": "no"}],
)
def test_a_rule_that_no_client_could_read_is_refused(app: FastAPI, rule: dict[str, Any]) -> None:
    client, rules = TestClient(app), {"domainRules": [{"name": "r", "kind": "CONDITION", **rule}]}
    for method, path, body in (
        ("POST", "/subjects/s/versions", {"schema": TEXTS[2], "ruleSet": rules}),
        ("PUT", "/config", {"defaultRuleSet": rules}),
    ):
        answer = client.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42210), answer.text
        assert f"rule 'r': {next(iter(rule))}" in answer.json()["message"]
