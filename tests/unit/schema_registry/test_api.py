"""Confluent's REST API, path by path: exact status, error code and body,
over the HTTP app and the in-memory log."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.log import MemoryCluster
from hub.record import NewRecord
from hub.schema_registry.formats import InvalidSchema, SchemaDifference, known
from hub.schema_registry.http import asgi as http_asgi
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, SchemaStored
from hub.schema_registry.model.subject_names import DEFAULT_CONTEXT
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server.node import RegistryNode

TYPE = "application/vnd.schemaregistry.v1+json"


def schema(*fields: str, **more: Any) -> str:
    """A record of ints, each with a default, as it is stored."""
    every = [{"name": name, "type": "int", "default": 0} for name in fields]
    return json.dumps({"type": "record", "name": "R", "fields": every, **more}, separators=(",", ":"))


A, AB, ABC = schema("a"), schema("a", "b"), schema("a", "b", "c")
BROKEN = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "string"}]})


class Http:
    """HTTP client whose assertions show the error message."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return self.client.request(method, path, json=body, headers=headers)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self(method, path, body)
        assert answer.status_code == 200, (method, path, answer.text)
        assert answer.headers["content-type"] == TYPE
        return answer.json()

    def fails(self, status: int, code: int, method: str, path: str, body: Any = None) -> str:
        answer = self(method, path, body)
        assert (answer.status_code, answer.json().get("error_code")) == (status, code), (path, answer.text)
        assert set(answer.json()) == {"error_code", "message"}
        return str(answer.json()["message"])

    def register(self, subject: str, text: str, **more: Any) -> int:
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int(self.ok("POST", path, {"schema": text, **more})["id"])


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def serving(cluster: MemoryCluster) -> Iterator[Callable[[], Http]]:
    nodes: list[RegistryNode] = []

    def start() -> Http:
        node = RegistryNode(cluster)
        assert node.start()
        nodes.append(node)
        app = FastAPI()
        app.include_router(create_router(node))
        return Http(TestClient(app))

    yield start
    for node in nodes:
        node.stop()


@pytest.fixture
def http(serving: Callable[[], Http]) -> Http:
    return serving()


# ---- registering, looking up, reading


def test_a_registration_answers_with_all_that_was_stored(http: Http) -> None:
    answer = http(
        "POST", "/subjects/s/versions", {"schema": json.dumps(json.loads(A), indent=2), "future": 1}
    )
    body = answer.json()
    assert body == {"id": 1, "version": 1, "guid": body["guid"], "schema": A}
    assert str(uuid.UUID(body["guid"])) == body["guid"]
    assert (answer.headers["Hub-Offset"], answer.headers["Hub-Position"]) == ("0", "_schemas:0:1")
    again = http("POST", "/subjects/s/versions", {"schema": A})
    assert (again.json(), again.headers["Hub-Position"]) == (body, "_schemas:0:1")
    described = {"subject": "s", "version": 1, **body}
    assert http.ok("POST", "/subjects/s", {"schema": A}) == described
    for path in ("/subjects/s/versions/1", "/subjects/s/versions/latest", "/subjects/s/versions/-1"):
        assert http.ok("GET", path) == described
    assert http.ok("GET", "/schemas/ids/1") == {"guid": body["guid"], "schema": A}
    assert http.ok("GET", "/schemas/ids/1?subject=s") == {
        "subject": "s",
        "version": 1,
        "guid": body["guid"],
        "schema": A,
    }
    assert http.ok("GET", "/schemas/ids/1?fetchMaxId=true")["maxId"] == 1
    for path in ("/schemas/ids/1/schema", "/subjects/s/versions/1/schema"):
        assert http.ok("GET", path) == json.loads(A)
    assert http.ok("GET", f"/schemas/guids/{body['guid']}") == {"guid": body["guid"], "schema": A}
    assert http.ok("GET", f"/schemas/guids/{body['guid']}/ids") == [{"context": ".", "id": 1}]


@pytest.mark.parametrize(
    ("status", "code", "method", "path", "body"),
    [
        (404, 40401, "GET", "/subjects/none/versions", None),
        (404, 40401, "GET", "/subjects/none/versions/1", None),
        (404, 40401, "GET", "/subjects/none/versions/latest", None),
        (404, 40402, "GET", "/subjects/s/versions/9", None),
        (404, 40402, "GET", "/subjects/s/versions/2147483647", None),
        (422, 42202, "GET", "/subjects/s/versions/2147483648", None),
        (422, 42202, "GET", "/subjects/s/versions/0", None),
        (422, 42202, "GET", "/subjects/s/versions/newest", None),
        (422, 42202, "GET", "/subjects/s/versions/1_0", None),
        (422, 42202, "GET", "/subjects/s/versions/%201", None),
        (422, 42202, "DELETE", "/subjects/s/versions/newest", None),
        (404, 40403, "GET", "/schemas/ids/99", None),
        (404, 40403, "GET", "/schemas/ids/99/schema", None),
        (404, 40403, "GET", "/schemas/ids/99/subjects", None),
        (404, 40403, "GET", "/schemas/ids/99/versions", None),
        (404, 404, "GET", "/schemas/ids/2147483648", None),
        (404, 404, "GET", "/schemas/ids/one", None),
        (404, 40403, "GET", "/schemas/guids/none", None),
        (404, 40403, "GET", f"/schemas/guids/{uuid.UUID(int=0)}/ids", None),
        (404, 40401, "POST", "/subjects/none", {"schema": A}),
        (404, 40403, "POST", "/subjects/s", {"schema": AB}),
        (422, 42201, "POST", "/subjects/none", {"schema": "{"}),
        (422, 42201, "POST", "/subjects/s/versions", {"schema": "{"}),
        (422, 42201, "POST", "/subjects/new/versions", {"schema": ""}),
        (422, 42201, "POST", "/subjects/s/versions", {"schema": A, "schemaType": "XML"}),
        (422, 42201, "POST", "/subjects/s/versions", {"schema": AB, "version": 7}),
        (422, 422, "POST", "/subjects/s/versions", {"schema": 7}),
        (422, 422, "POST", "/subjects/s/versions", {"schema": AB, "id": 2**31}),
        (422, 422, "POST", "/subjects/s/versions", {"schema": AB, "references": [{"name": "x"}]}),
        (422, 422, "POST", "/subjects/s/versions", {"schema": AB, "metadata": {"properties": {"a": 1}}}),
        (422, 42210, "POST", "/subjects/s/versions", {"schema": AB, "ruleSet": {"domainRules": [{}]}}),
        (422, 42210, "POST", "/subjects/s/versions", {"schema": AB, "ruleSet": []}),
        (422, 42210, "POST", "/subjects/new/versions", {"schema": AB, "ruleSet": "all"}),
        (422, 42210, "POST", "/compatibility/subjects/s/versions", {"schema": AB, "ruleSet": 1}),
        (422, 42209, "POST", "/subjects/s/versions", {"schema": schema("a", doc="x" * 1_048_576)}),
        (422, 42205, "POST", "/subjects/s/versions", {"schema": AB, "id": 7}),
        (409, 40901, "POST", "/subjects/s/versions", {"schema": BROKEN}),
        (422, 42208, "POST", "/subjects/a%0Ab/versions", {"schema": A}),
        (422, 42208, "POST", "/subjects/:.ctx:/versions", {"schema": A}),
        (422, 42208, "PUT", "/config/__GLOBAL", {"compatibility": "NONE"}),
        (404, 40401, "DELETE", "/subjects/none", None),
        (404, 40401, "DELETE", "/subjects/none/versions/1", None),
        (404, 40402, "DELETE", "/subjects/s/versions/9", None),
        (404, 40405, "DELETE", "/subjects/s?permanent=true", None),
        (404, 40407, "DELETE", "/subjects/s/versions/1?permanent=true", None),
        (404, 40408, "GET", "/config/s", None),
        (404, 40409, "GET", "/mode/s", None),
        (404, 40401, "DELETE", "/config/s", None),
        (404, 40401, "DELETE", "/mode/s", None),
        (422, 42203, "PUT", "/config/s", {"compatibility": "SOMETIMES"}),
        (422, 42203, "PUT", "/config", {"compatibilityPolicy": "LAX"}),
        (422, 422, "PUT", "/config", {"normalize": "yes"}),
        (422, 42210, "PUT", "/config", {"defaultRuleSet": {"domainRules": "all"}}),
        (422, 422, "PUT", "/config", {"defaultMetadata": {"tags": {"R.a": 1}}}),
        (422, 42204, "PUT", "/mode", {"mode": "OFF"}),
        (422, 42204, "PUT", "/mode", {}),
        (404, 40402, "POST", "/compatibility/subjects/s/versions/9", {"schema": A}),
        (404, 40402, "POST", "/compatibility/subjects/none/versions/1", {"schema": A}),
        (422, 42202, "POST", "/compatibility/subjects/s/versions/x", {"schema": A}),
        (422, 42201, "POST", "/compatibility/subjects/s/versions", {"schema": "{"}),
        (422, 42201, "POST", "/compatibility/subjects/none/versions/latest", {"schema": "{"}),
        (422, 42201, "POST", "/compatibility/subjects/s/versions", {}),
        (404, 40401, "GET", "/subjects/none/metadata?key=a&value=b", None),
        (404, 40403, "GET", "/subjects/s/metadata?key=a&value=b", None),
        (404, 404, "GET", "/subjects/s/nothing", None),
        (404, 404, "GET", "/schemas/nothing/at/all", None),
        (405, 405, "PATCH", "/subjects/s", None),
        (405, 405, "DELETE", "/schemas", None),
        (422, 422, "GET", "/subjects?limit=many", None),
        (400, 400, "GET", "/subjects/%FF/versions", None),
    ],
)
def test_refusals(http: Http, status: int, code: int, method: str, path: str, body: Any) -> None:
    http.register("s", A)
    http.fails(status, code, method, path, body)
    assert http.ok("GET", "/subjects?deleted=true") == ["s"]


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"{", TYPE, 400),
        (b"\xff", TYPE, 400),
        (b"[]", TYPE, 400),
        (b'{"schema": "\\ud800"}', TYPE, 400),
        (b"{}", "text/xml", 415),
        (json.dumps({"schema": A}).encode(), "application/json; charset=utf-8", 200),
        (json.dumps({"schema": A}).encode(), "application/octet-stream", 200),
        (b" " * (http_asgi.MOST_BODY_BYTES + 1), TYPE, 413),
    ],
)
def test_bodies_that_cannot_be_read(http: Http, content: bytes, content_type: str, status: int) -> None:
    headers = {"content-type": content_type}
    answer = http.client.post("/subjects/s/versions", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    streamed = http.client.post("/subjects/s/versions", content=iter([content]), headers=headers)
    assert streamed.status_code == status
    if status != 200:
        assert answer.json()["error_code"] == status and set(answer.json()) == {"error_code", "message"}


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("*/*", TYPE),
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
        (f"{TYPE}, application/vnd.schemaregistry+json, application/json", TYPE),
        ("application/json;q=0.9, application/vnd.schemaregistry+json;q=0.1", "application/json"),
        ("text/html, nonsense;q=x", TYPE),
    ],
)
def test_answers_are_of_the_type_that_is_asked_for(http: Http, accept: str, answered: str) -> None:
    assert http("GET", "/subjects", accept=accept).headers["content-type"] == answered


def test_ids_and_versions_are_served_with_a_tag(http: Http) -> None:
    http.register("s", A)
    for path, caching in (
        ("/schemas/ids/1", "max-age=86400, immutable"),
        ("/subjects/s/versions/latest", "no-cache"),
    ):
        first = http("GET", path)
        assert first.headers["cache-control"] == caching
        tag = first.headers["etag"]
        for asked in (tag, f'"other", W/{tag}', "*"):
            same = http("GET", path, **{"if-none-match": asked})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert http("GET", path, **{"if-none-match": '"other"'}).json() == first.json()
        assert http.client.head(path).content == b""
    http.register("s", AB)
    changed = http("GET", "/subjects/s/versions/latest", **{"if-none-match": tag})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)


def test_a_slash_in_a_subject_is_escaped_and_one_at_the_end_is_nothing(http: Http) -> None:
    http.register("a/b", A)
    assert http.ok("GET", "/subjects/") == ["a/b"]
    assert http.ok("GET", "/subjects/a%2Fb/versions/") == [1]
    http.fails(404, 404, "GET", "/subjects/a/b/versions")
    http.register("a/versions/1", A)
    assert http.ok("GET", "/subjects/a%2Fversions%2F1/versions/1")["subject"] == "a/versions/1"


# ---- deleting


def test_the_two_deletes_of_a_version(http: Http) -> None:
    http.register("s", A)
    http.register("s", AB)
    assert http.ok("DELETE", "/subjects/s/versions/latest") == 2
    http.fails(404, 40406, "DELETE", "/subjects/s/versions/2")
    http.fails(404, 40402, "GET", "/subjects/s/versions/2")
    assert http.ok("GET", "/subjects/s/versions/latest?deleted=true")["version"] == 1
    assert http.ok("GET", "/subjects/s/versions/2?deleted=true")["deleted"] is True
    assert http.ok("GET", "/schemas/ids/2")["schema"] == AB
    assert http.ok("GET", "/schemas/ids/2/versions") == []
    assert http.ok("GET", "/schemas/ids/2/versions?deleted=true") == [{"subject": "s", "version": 2}]
    for query, numbers in (("", [1]), ("deleted=true", [1, 2]), ("deletedOnly=true", [2])):
        assert http.ok("GET", f"/subjects/s/versions?{query}") == numbers
    assert http.ok("GET", "/subjects/s/versions?deletedAsNegative=true") == [1, -2]
    http.fails(404, 40403, "POST", "/subjects/s", {"schema": AB})
    assert http.ok("POST", "/subjects/s?deleted=true", {"schema": AB})["version"] == 2
    assert http.ok("DELETE", "/subjects/s/versions/2?permanent=true") == 2
    http.fails(404, 40403, "GET", "/schemas/ids/2")
    assert http.ok("POST", "/subjects/s/versions", {"schema": AB})["id"] == 3


def test_a_schema_that_comes_back_has_its_id_and_a_new_version(http: Http) -> None:
    http.register("s", A)
    http.register("s", AB)
    http.ok("DELETE", "/subjects/s/versions/1")
    again = http.ok("POST", "/subjects/s/versions", {"schema": A})
    assert (again["id"], again["version"]) == (1, 3)
    assert http.ok("GET", "/subjects/s/versions?deleted=true") == [2, 3]


def test_settings_outlive_a_soft_delete_and_go_with_the_hard_one(http: Http) -> None:
    http.register("s", A)
    http.ok("PUT", "/config/s", {"compatibility": "NONE"})
    http.ok("PUT", "/mode/s", {"mode": "READWRITE"})
    assert http.ok("DELETE", "/subjects/s") == [1]
    http.fails(404, 40404, "DELETE", "/subjects/s")
    assert http.ok("GET", "/config/s") == {"compatibilityLevel": "NONE"}
    assert http.ok("DELETE", "/subjects/s?permanent=true") == [1]
    http.fails(404, 40408, "GET", "/config/s")
    http.fails(404, 40409, "GET", "/mode/s")
    http.fails(404, 40401, "DELETE", "/subjects/s?permanent=true")


# ---- references


def referring(subject: str = "base", version: int = 1) -> dict[str, Any]:
    text = json.dumps({"type": "record", "name": "Top", "fields": [{"name": "r", "type": "R"}]})
    return {"schema": text, "references": [{"name": "R", "subject": subject, "version": version}]}


def test_references_are_followed_once_and_sixteen_levels_deep(http: Http) -> None:
    """Four references to the schema below, on each of sixteen levels,
    are four thousand million ways to the lowest."""
    http.register("l0", "{}", schemaType="JSON")

    def level(number: int) -> dict[str, Any]:
        below = [{"name": f"r{each}", "subject": f"l{number - 1}", "version": 1} for each in range(4)]
        return {"schema": f'{{"title":"{number}"}}', "schemaType": "JSON", "references": below}

    for number in range(1, 17):
        http.ok("POST", f"/subjects/l{number}/versions", level(number))
    message = http.fails(422, 42201, "POST", "/subjects/l17/versions", level(17))
    assert message == "Invalid schema: references nest deeper than 16"
    http.fails(422, 42201, "POST", "/compatibility/subjects/l17/versions", level(17))


def test_a_circle_of_references_is_refused(http: Http) -> None:
    """References become circular only when an import overwrites a referenced version."""
    http.ok("PUT", "/mode", {"mode": "IMPORT"})
    a = {"schema": "{}", "schemaType": "JSON", "id": 1, "version": 1}
    b = {
        **a,
        "id": 2,
        "references": [{"name": f"a{each}", "subject": "a", "version": 1} for each in range(4)],
    }
    around = {
        **a,
        "id": 3,
        "references": [{"name": f"b{each}", "subject": "b", "version": 1} for each in range(4)],
    }
    for subject, body in (("a", a), ("b", b)):
        http.ok("POST", f"/subjects/{subject}/versions", body)
    http("POST", "/subjects/a/versions", around)
    for path in ("/subjects/a/versions/1", "/subjects/b/versions/1"):
        assert http("GET", f"{path}?format=serialized").status_code in (200, 422)
    http.fails(422, 42201, "POST", "/subjects/c/versions", {**b, "id": 4, "references": around["references"]})


def test_what_is_referenced_cannot_be_deleted(http: Http) -> None:
    http.register("base", A)
    http.register("base", AB)
    http.fails(422, 42201, "POST", "/subjects/top/versions", referring("none"))
    latest = http.ok("POST", "/subjects/top/versions", referring(version=-1))
    assert latest["references"] == [{"name": "R", "subject": "base", "version": 2}]
    assert http.ok("POST", "/subjects/top/versions", referring(version=-1))["id"] == latest["id"]
    assert http.ok("POST", "/subjects/top", referring(version=2))["version"] == 1
    assert http.ok("GET", "/subjects/base/versions/2/referencedby") == [latest["id"]]
    assert http.ok("GET", "/subjects/base/versions/1/referencedby") == []
    http.fails(422, 42206, "DELETE", "/subjects/base")
    http.fails(422, 42206, "DELETE", "/subjects/base/versions/2")
    assert http.ok("DELETE", "/subjects/base/versions/1") == 1
    http.ok("DELETE", "/subjects/top")
    assert http.ok("GET", "/subjects/base/versions/2/referencedby") == []
    assert http.ok("GET", "/subjects/base/versions/2/referencedby?deleted=true") == [latest["id"]]
    assert http.ok("DELETE", "/subjects/base") == [2]


def test_what_is_nested_too_deep_to_be_written_is_refused(http: Http) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    rules = {"domainRules": [{"name": "r", "later": deep}]}
    http.fails(422, 422, "POST", "/subjects/s/versions", {"schema": A, "metadata": {"later": deep}})
    http.fails(422, 42210, "POST", "/subjects/s/versions", {"schema": A, "ruleSet": rules})
    http.fails(422, 422, "PUT", "/config/s", {"defaultMetadata": {"later": deep}})
    http.fails(422, 42210, "PUT", "/config/s", {"defaultRuleSet": rules})
    http.register("s", A)


def test_a_deleted_version_that_lost_what_it_refers_to_is_in_nobodys_way(http: Http) -> None:
    """Every look-up and every check of compatibility in its subject once was refused with 42201."""
    http.register("base", A)
    http.ok("POST", "/subjects/s/versions", referring())
    http.ok("DELETE", "/subjects/s/versions/1")
    for path in ("/subjects/base", "/subjects/base?permanent=true"):
        http.ok("DELETE", path)
    http.register("s", AB)
    other = {"schema": ABC}
    http.fails(404, 40403, "POST", "/subjects/s", other)
    assert http.ok("POST", "/compatibility/subjects/s/versions/latest", other) == {"is_compatible": True}
    assert http.ok("POST", "/subjects/s/versions", other)["version"] == 3


def test_a_reference_that_moves_is_compared_deeply(http: Http) -> None:
    http.register("base", A)
    http.ok("PUT", "/config/base", {"compatibility": "NONE"})
    http.register("base", BROKEN)
    http.ok("POST", "/subjects/top/versions", referring(version=1))
    message = http.fails(409, 40901, "POST", "/subjects/top/versions", referring(version=2))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message and "`r.x`" in message


# ---- listings


def test_lists_have_prefixes_and_pages(http: Http) -> None:
    for subject in ("a-1", "a-2", "b-1", ":.ctx:a-3"):
        http.register(subject, A)
    http.register("a-1", AB)
    http.ok("DELETE", "/subjects/a-2")
    assert http.ok("GET", "/subjects") == [":.ctx:a-3", "a-1", "b-1"]
    assert http.ok("GET", "/subjects?deleted=true") == [":.ctx:a-3", "a-1", "a-2", "b-1"]
    assert http.ok("GET", "/subjects?deletedOnly=true") == ["a-2"]
    assert http.ok("GET", "/subjects?subjectPrefix=a") == ["a-1"]
    assert http.ok("GET", "/subjects?subjectPrefix=:*:a") == [":.ctx:a-3", "a-1"]
    assert http.ok("GET", "/subjects?subjectPrefix=:.ctx:") == [":.ctx:a-3"]
    assert http.ok("GET", "/subjects?offset=1&limit=1") == ["a-1"]
    assert http.ok("GET", "/subjects?limit=0") == http.ok("GET", "/subjects")
    listed = http.ok("GET", "/schemas?subjectPrefix=a")
    assert [(each["subject"], each["version"], each["id"]) for each in listed] == [
        ("a-1", 1, 1),
        ("a-1", 2, 2),
    ]
    assert [each["version"] for each in http.ok("GET", "/schemas?subjectPrefix=a&latestOnly=true")] == [2]
    assert len(http.ok("GET", "/schemas?deleted=true")) == 5
    assert [each["subject"] for each in http.ok("GET", "/schemas?offset=3&limit=5")] == ["b-1"]
    assert http.ok("GET", "/subjects/a-1/versions?offset=1&limit=9") == [2]
    assert http.ok("GET", "/schemas/ids/1/subjects") == ["a-1", "b-1"]
    assert http.ok("GET", "/schemas/ids/1/subjects?deleted=true&limit=2") == ["a-1", "a-2"]


def test_the_server_tells_about_itself(http: Http) -> None:
    assert http.ok("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    assert set(http.ok("GET", "/v1/metadata/id")) == {"id", "scope"}
    assert http.ok("GET", "/v1/metadata/version")["version"].startswith("8.")
    assert http.ok("GET", "/contexts") == ["."]


# ---- contexts


def test_each_context_has_ids_of_its_own(http: Http) -> None:
    assert http.register("s", A) == 1
    assert http.register(":.ctx:s", AB) == 1
    assert http.register(":.ctx:s", ABC) == 2
    assert http.ok("GET", "/contexts") == [".", ".ctx"]
    assert http.ok("GET", "/contexts?contextPrefix=.c&limit=1") == [".ctx"]
    assert http.ok("GET", "/schemas/ids/1")["schema"] == A
    assert http.ok("GET", "/schemas/ids/1?subject=:.ctx:")["schema"] == AB
    assert http.ok("GET", "/schemas/ids/1?subject=:.ctx:&fetchMaxId=true")["maxId"] == 2
    http.fails(404, 40403, "GET", "/schemas/ids/2")
    # A consumer that knows the subject and not the context is helped.
    assert http.ok("GET", "/schemas/ids/2?subject=s")["subject"] == ":.ctx:s"
    assert http.ok("GET", "/subjects/s/versions/2")["subject"] == ":.ctx:s"
    assert http.ok("POST", "/subjects/s", {"schema": ABC})["subject"] == ":.ctx:s"
    assert http.ok("GET", "/schemas/ids/1/versions?subject=:.ctx:") == [{"subject": ":.ctx:s", "version": 1}]


def test_every_path_also_stands_below_a_context(http: Http) -> None:
    below = "/contexts/.ctx"
    assert http.ok("POST", f"{below}/subjects/s/versions", {"schema": A})["version"] == 1
    guid = http.ok("GET", f"{below}/subjects/s/versions/1")["guid"]
    http.register("s", AB)
    for path, expected in {
        "/subjects": [":.ctx:s"],
        "/subjects?subjectPrefix=s": [":.ctx:s"],
        "/subjects/s/versions": [1],
        "/subjects/:.ctx:s/versions": [1],
        "/schemas/ids/1": {"guid": guid, "schema": A},
        "/schemas/ids/1/subjects": [":.ctx:s"],
        "/schemas/types": ["JSON", "PROTOBUF", "AVRO"],
        "/config": {"compatibilityLevel": "BACKWARD"},
    }.items():
        if path == "/config":
            http.fails(404, 40408, "GET", f"{below}/config")
            http.ok("PUT", f"{below}/config", {"compatibility": "BACKWARD"})
        assert http.ok("GET", f"{below}{path}") == expected, path
    assert [each["subject"] for each in http.ok("GET", f"{below}/schemas")] == [":.ctx:s"]
    assert http.ok("POST", f"{below}/subjects/s", {"schema": A})["subject"] == ":.ctx:s"
    assert http.ok("POST", f"{below}/compatibility/subjects/s/versions", {"schema": AB})["is_compatible"]
    assert http.ok("PUT", "/contexts/ctx/mode/s", {"mode": "READONLY"}) == {"mode": "READONLY"}
    http.fails(422, 42205, "DELETE", f"{below}/subjects/s")
    assert http.ok("GET", "/mode/:.ctx:s") == {"mode": "READONLY"}
    http.fails(404, 404, "GET", f"{below}/nothing")


def test_an_empty_context_can_be_deleted(http: Http, serving: Callable[[], Http]) -> None:
    http.register(":.ctx:s", A)
    http.fails(422, 42211, "DELETE", "/contexts/.ctx")
    http.ok("DELETE", "/subjects/:.ctx:s")
    http.fails(422, 42211, "DELETE", "/contexts/.ctx")
    http.ok("DELETE", "/subjects/:.ctx:s?permanent=true")
    assert serving().ok("GET", "/contexts") == [".", ".ctx"]
    answer = http("DELETE", "/contexts/.ctx")
    assert (answer.status_code, answer.content) == (204, b"")
    assert http.ok("GET", "/contexts") == serving().ok("GET", "/contexts") == ["."]
    assert http.register(":.ctx:s", A) == 2


def test_references_stay_in_their_context(http: Http) -> None:
    http.register(":.ctx:base", A)
    http.fails(422, 42201, "POST", "/subjects/top/versions", referring())
    http.ok("POST", "/subjects/:.ctx:top/versions", referring())
    assert http.ok("GET", "/subjects/:.ctx:base/versions/1/referencedby") == [2]
    http.fails(422, 42206, "DELETE", "/subjects/:.ctx:base")


# ---- settings


def test_settings_come_from_the_subject_its_context_or_above(http: Http) -> None:
    level = "compatibilityLevel"
    assert http.ok("GET", "/config") == {level: "BACKWARD"}
    assert http.ok("PUT", "/config", {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert http.ok("GET", "/config") == {level: "FULL"}
    assert http.ok("GET", "/config/s?defaultToGlobal=true") == {level: "FULL"}
    assert http.ok("GET", "/config/:.ctx:s?defaultToGlobal=true") == {level: "BACKWARD"}
    http.ok("PUT", "/config/:.__GLOBAL:", {"compatibility": "FORWARD"})
    assert http.ok("GET", "/config/:.ctx:s?defaultToGlobal=true") == {level: "FORWARD"}
    assert http.ok("GET", "/config/s?defaultToGlobal=true") == {level: "FULL"}
    http.ok("PUT", "/config/:.ctx:", {"compatibility": "NONE"})
    assert http.ok("GET", "/config/:.ctx:s?defaultToGlobal=true") == {level: "NONE"}
    http.ok("PUT", "/config/:.ctx:s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert http.ok("GET", "/config/:.ctx:s") == {level: "BACKWARD_TRANSITIVE"}
    assert http.ok("DELETE", "/config/:.ctx:s") == {level: "BACKWARD_TRANSITIVE"}
    assert http.ok("DELETE", "/config") == {level: "FULL"}
    assert http.ok("GET", "/config") == {level: "FORWARD"}


def test_settings_are_changed_field_by_field_and_kept(http: Http, serving: Callable[[], Http]) -> None:
    every = {
        "alias": "t",
        "compatibilityGroup": "major",
        "normalize": True,
        "validateFields": False,
        "validateNames": True,
        "validateRules": True,
        "compatibilityPolicy": "LENIENT",
        "defaultMetadata": {"properties": {"owner": "me"}},
        "overrideMetadata": {"tags": {"R.a": ["PII"]}},
        "defaultRuleSet": {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE"}]},
        "overrideRuleSet": {"migrationRules": []},
    }
    assert http.ok("PUT", "/config/s", {"compatibility": "NONE", **every, "new": 1}) == {
        "compatibility": "NONE",
        **every,
    }
    assert http.ok("PUT", "/config/s", {"alias": None})["normalize"] is True
    del every["alias"]
    for each in (http, serving()):
        assert each.ok("GET", "/config/s") == {"compatibilityLevel": "NONE", **every}
    assert http.ok("GET", "/config/t?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}


def test_an_alias_stands_for_its_subject(http: Http) -> None:
    http.register("orders-v1", A)
    http.ok("PUT", "/config/orders", {"alias": "orders-v1"})
    assert http.ok("GET", "/subjects/orders/versions/latest")["subject"] == "orders-v1"
    http.register("orders", AB)
    assert http.ok("GET", "/subjects/orders-v1/versions") == [1, 2]
    assert http.ok("POST", "/subjects/orders", {"schema": A})["subject"] == "orders-v1"
    assert not http.ok("POST", "/compatibility/subjects/orders/versions", {"schema": BROKEN})["is_compatible"]
    assert http.ok("GET", "/config/orders") == {"alias": "orders-v1"}
    assert http.ok("GET", "/subjects") == ["orders-v1"]


def test_only_versions_of_the_same_group_bind(http: Http) -> None:
    def major(number: str) -> dict[str, Any]:
        return {"metadata": {"properties": {"major": number}}}

    http.register("s", A, **major("1"))
    http.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": BROKEN, **major("2")})
    http.ok("PUT", "/config/s", {"compatibilityGroup": "major"})
    assert http.register("s", BROKEN, **major("2")) == 2
    http.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": BROKEN, **major("1")})
    assert http.register("s", AB, **major("1")) == 3


def test_defaults_and_overrides_go_into_what_is_registered(http: Http) -> None:
    rule = {"name": "checked", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}
    http.ok(
        "PUT",
        "/config/s",
        {
            "defaultMetadata": {"properties": {"owner": "nobody", "team": "x"}, "tags": {"R.a": ["A"]}},
            "overrideMetadata": {"properties": {"team": "core"}, "tags": {"R.a": ["PII"]}},
            "defaultRuleSet": {"domainRules": [rule]},
            "overrideRuleSet": {"domainRules": [{**rule, "expr": "false"}]},
        },
    )
    given = {"schema": A, "metadata": {"properties": {"owner": "me"}}}
    stored = http.ok("POST", "/subjects/s/versions", given)
    assert stored["metadata"] == {
        "properties": {"owner": "me", "team": "core"},
        "tags": {"R.a": ["A", "PII"]},
    }
    assert stored["ruleSet"] == {"domainRules": [{**rule, "expr": "false"}]}
    assert http.ok("POST", "/subjects/s/versions", given)["version"] == 1
    assert (
        http.ok("POST", "/subjects/s/versions", {"schema": A})["version"] == 1
    )  # the latest's are taken over


def test_metadata_and_rules_make_a_version_and_survive_a_restart(
    http: Http, serving: Callable[[], Http]
) -> None:
    rules = {"migrationRules": [{"name": "up", "kind": "TRANSFORM", "mode": "UPGRADE"}]}
    gold, silver = ({"properties": {"tier": tier}} for tier in ("gold", "silver"))
    assert http.register("s", A, metadata=gold, ruleSet=rules) == 1
    assert http.register("s", A) == 1
    assert http.register("s", A, metadata=silver) == 2
    assert http.ok("GET", "/subjects/s/versions") == [1, 2]
    for each in (http, serving()):
        assert each.ok("GET", "/schemas/ids/1")["ruleSet"] == rules
        assert each.ok("GET", "/schemas/ids/2")["metadata"] == silver
        assert each.ok("GET", "/subjects/s/metadata?key=tier&value=gold")["version"] == 1
        assert each.ok("GET", "/subjects/s/metadata")["version"] == 2
    first, second = (http.ok("GET", f"/subjects/s/versions/{number}")["guid"] for number in (1, 2))
    assert first != second
    assert http.register(":.ctx:s", A, metadata=gold, ruleSet=rules) == 1
    assert http.ok("GET", f"/schemas/guids/{first}/ids") == [
        {"context": ".", "id": 1},
        {"context": ".ctx", "id": 1},
    ]


def test_an_empty_schema_is_the_latest_one(http: Http) -> None:
    http.register("s", A)
    assert http.ok("POST", "/subjects/s/versions", {"metadata": {"properties": {"a": "b"}}})["version"] == 2
    assert http.ok("GET", "/subjects/s/versions/2")["schema"] == A


def test_reserved_fields_are_kept_free_where_fields_are_validated(http: Http) -> None:
    reserved = {"metadata": {"properties": {"confluent:reserved": "b, z"}}}
    assert http.register("free", AB, **reserved) == 1
    http.ok("PUT", "/config", {"validateFields": True})
    message = http.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": AB, **reserved})
    assert "FIELD_CONFLICTS_WITH_RESERVED_FIELD" in message and "`b`" in message
    assert http.register("s", A, **reserved) == 2
    fewer = {"metadata": {"properties": {"confluent:reserved": "b"}}}
    message = http.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": A, **fewer})
    assert "RESERVED_FIELD_REMOVED" in message and "`z`" in message


PROTO_AB = 'syntax = "proto3"; message P {int32 a = 1;} message Q {int32 b = 1; oneof one {int32 c = 2;}}'


@pytest.mark.parametrize(
    ("form", "text", "taken", "free"),
    [
        (
            "JSON",
            '{"type": "object", "properties": {"b": {"type": "object", "properties": {"c": {}}}}}',
            "b",
            "c",
        ),
        (
            "JSON",
            (
                '{"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"c": {}}}}, '
                '"properties": {"b": {}}}'
            ),
            "b",
            "c",
        ),
        ("PROTOBUF", PROTO_AB, "a", "z"),
        ("PROTOBUF", PROTO_AB, "b", "c"),
    ],
)
def test_reserved_fields_are_kept_free_in_every_format(
    http: Http, form: str, text: str, taken: str, free: str
) -> None:
    """At the top: properties of a JSON Schema, fields of each message of a file."""
    http.ok("PUT", "/config", {"validateFields": True})
    body = {"schema": text, "schemaType": form, "metadata": {"properties": {"confluent:reserved": taken}}}
    message = http.fails(409, 40901, "POST", "/subjects/s/versions", body)
    assert "FIELD_CONFLICTS_WITH_RESERVED_FIELD" in message and f"`{taken}`" in message
    body["metadata"] = {"properties": {"confluent:reserved": free}}
    assert http.ok("POST", "/subjects/s/versions", body)["version"] == 1


# ---- modes


def test_modes_hold_for_a_subject_its_context_or_all(http: Http) -> None:
    http.register("s", A)
    assert http.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert http.ok("PUT", "/mode", {"mode": "readonly"}) == {"mode": "READONLY"}
    for method, path, body in (
        ("POST", "/subjects/s/versions", {"schema": AB}),
        ("DELETE", "/subjects/s", None),
        ("DELETE", "/subjects/s/versions/1", None),
        ("PUT", "/config/s", {"compatibility": "NONE"}),
        ("DELETE", "/config", None),
    ):
        assert "read-only mode" in http.fails(422, 42205, method, path, body)
    assert http.register("s", A) == 1  # nothing is written
    assert http.ok("GET", "/mode/s?defaultToGlobal=true") == {"mode": "READONLY"}
    assert http.register(":.ctx:s", A) == 1  # another context
    http.ok("PUT", "/mode/s", {"mode": "READWRITE"})
    assert http.register("s", AB) == 2
    http.ok("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})
    http.fails(422, 42205, "POST", "/subjects/s/versions", {"schema": ABC})
    assert http.ok("DELETE", "/mode") == {"mode": "READONLY_OVERRIDE"}
    assert http.ok("DELETE", "/mode/s") == {"mode": "READWRITE"}
    http.fails(404, 40401, "DELETE", "/mode/s")
    http.ok("PUT", "/mode/s", {"mode": "READONLY"})
    http.ok("PUT", "/mode?recursive=true", {"mode": "READWRITE"})
    http.fails(404, 40409, "GET", "/mode/s")
    http.ok("PUT", "/mode/:.ctx:s", {"mode": "READONLY"})
    http.ok("PUT", "/mode/:.ctx:", {"mode": "READONLY"})
    assert http.ok("DELETE", "/mode/:.ctx:?recursive=true") == {"mode": "READONLY"}
    assert http.register(":.ctx:s", AB) == 2


def test_an_import_brings_ids_and_versions_along(http: Http, serving: Callable[[], Http]) -> None:
    http.register("s", A)
    http.fails(422, 42205, "PUT", "/mode", {"mode": "IMPORT"})
    http.fails(422, 42205, "PUT", "/mode/s", {"mode": "IMPORT"})
    assert http.ok("PUT", "/mode?force=true", {"mode": "IMPORT"}) == {"mode": "IMPORT"}
    there = {"schema": BROKEN, "id": 70, "version": 5}
    assert http.ok("POST", "/subjects/s/versions", there)["id"] == 70  # compatibility is not asked
    again = http("POST", "/subjects/s/versions", there)
    assert (again.json()["version"], again.headers["Hub-Offset"]) == (5, "2")
    assert "Overwrite" in http.fails(422, 42205, "POST", "/subjects/t/versions", {"schema": AB, "id": 70})
    http.fails(422, 42205, "POST", "/subjects/t/versions", {"schema": AB})
    assert http.ok("POST", "/subjects/t/versions", {"schema": BROKEN, "id": 70})["version"] == 1
    http.ok("PUT", "/mode", {"mode": "READWRITE"})
    for each in (http, serving()):
        assert each.ok("GET", "/subjects/s/versions") == [1, 5]
        assert each.ok("GET", "/schemas/ids/70/subjects") == ["s", "t"]
    http.ok("PUT", "/config/s", {"compatibility": "NONE"})
    following = http.ok("POST", "/subjects/s/versions", {"schema": ABC})
    assert (following["id"], following["version"]) == (71, 6)


def test_an_import_starts_without_what_was_only_soft_deleted(http: Http) -> None:
    http.register("s", A)
    http.ok("DELETE", "/subjects/s")
    http.ok("PUT", "/mode/s", {"mode": "IMPORT"})
    assert http.ok("GET", "/subjects?deleted=true") == []
    assert http.ok("POST", "/subjects/s/versions", {"schema": AB, "id": 1, "version": 1})["id"] == 1
    http.ok("PUT", "/mode/s", {"mode": "FORWARD"})
    http.fails(422, 42205, "POST", "/subjects/s/versions", {"schema": ABC})
    assert http.ok("POST", "/subjects/s/versions", {"schema": ABC, "id": 9})["version"] == 2


# ---- compatibility


def test_a_schema_is_tried_against_one_version_or_all(http: Http) -> None:
    wide = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]})
    http.register("s", A)
    http.register("s", schema("b"))
    every, first = "/compatibility/subjects/s/versions", "/compatibility/subjects/s/versions/1?verbose=true"
    assert http.ok("POST", every, {"schema": wide}) == {"is_compatible": True}
    verdict = http.ok("POST", first, {"schema": wide})
    assert verdict["is_compatible"] is False and "fix: give `b` a default" in verdict["messages"][0]
    http.ok("PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert http.ok("POST", every, {"schema": wide}) == {"is_compatible": False}
    assert http.ok("POST", f"{every}/latest?verbose=true", {"schema": wide}) == {
        "is_compatible": True,
        "messages": [],
    }
    assert http.ok("POST", "/compatibility/subjects/none/versions/latest", {"schema": A})["is_compatible"]


@pytest.mark.parametrize("of", ["versions", "versions/latest", "versions/-1"])
@pytest.mark.parametrize("around", ["", ":.ctx:"])
def test_compatibility_is_judged_with_the_metadata_that_registration_inherits(
    http: Http, around: str, of: str
) -> None:
    grouped, kept = f"{around}grouped", f"{around}kept"
    http.ok("PUT", f"/config/{grouped}", {"compatibilityGroup": "major"})
    http.register(grouped, A, metadata={"properties": {"major": "1"}})
    question = f"/compatibility/subjects/{grouped}/{of}"
    assert http.ok("POST", question, {"schema": BROKEN}) == {"is_compatible": False}
    assert not http.ok("POST", f"{question}?normalize=true", {"schema": BROKEN})["is_compatible"]
    assert http.ok("POST", f"{question}?verbose=true", {"schema": BROKEN})["messages"]
    http.fails(409, 40901, "POST", f"/subjects/{grouped}/versions", {"schema": BROKEN})
    other = {"schema": BROKEN, "metadata": {"properties": {"major": "2"}}}
    assert http.ok("POST", question, other) == {"is_compatible": True}

    http.ok("PUT", f"/config/{kept}", {"validateFields": True})
    http.register(kept, A, metadata={"properties": {"confluent:reserved": "c"}})
    question = f"/compatibility/subjects/{kept}/{of}"
    assert not http.ok("POST", question, {"schema": ABC})["is_compatible"]
    http.fails(409, 40901, "POST", f"/subjects/{kept}/versions", {"schema": ABC})
    assert http.ok("POST", question, {"schema": AB})["is_compatible"]
    http.register(kept, AB)


def test_compatibility_of_an_import_is_judged_as_it_is(http: Http) -> None:
    """An import inherits no metadata from earlier versions or settings."""
    http.ok("PUT", "/config/s", {"compatibilityGroup": "major"})
    http.register("s", A, metadata={"properties": {"major": "1"}})
    http.ok("PUT", "/mode/s?force=true", {"mode": "IMPORT"})
    assert http.ok("POST", "/compatibility/subjects/s/versions", {"schema": BROKEN})["is_compatible"]


@pytest.mark.parametrize("seed", range(3))
def test_what_compatibility_says_of_a_new_schema_is_what_registration_does(http: Http, seed: int) -> None:
    """With any settings and metadata.
    A schema that is a version already is not judged when it is registered again."""
    chance = random.Random(seed)
    settings: list[dict[str, Any]] = [
        {"compatibilityGroup": "major"},
        {"validateFields": True},
        {"defaultMetadata": {"properties": {"major": "1"}}},
        {"overrideMetadata": {"properties": {"confluent:reserved": "c"}}},
        *({"compatibility": level} for level in ("BACKWARD", "FULL_TRANSITIVE", "NONE")),
    ]
    judged = 0
    for _ in range(80):
        subject = chance.choice(["s", ":.ctx:s"])
        if chance.random() < 0.2:
            http.ok("PUT", f"/config/{subject}", chance.choice(settings))
        fields = [
            {"name": name, "type": "int", **({"default": 0} if chance.random() < 0.5 else {})}
            for name in chance.sample("abcd", chance.randint(0, 3))
        ]
        asked: dict[str, Any] = {"schema": json.dumps({"type": "record", "name": "R", "fields": fields})}
        if chance.random() < 0.4:
            of = {"major": chance.choice("12"), "confluent:reserved": chance.choice("abcd")}
            asked["metadata"] = {"properties": dict(chance.sample(sorted(of.items()), chance.randint(0, 2)))}
        if http("POST", f"/subjects/{subject}", asked).status_code == 200:
            continue
        judged += 1
        said = http.ok("POST", f"/compatibility/subjects/{subject}/versions?verbose=true", asked)
        done = http("POST", f"/subjects/{subject}/versions", asked)
        assert said["is_compatible"] == (done.status_code == 200), (asked, said, done.text)
    assert judged > 20


# ---- other formats, by one entry each


class Words:
    """A format of words: a reader has to know the writer's. Lenient: one of them."""

    @staticmethod
    def parse(text: str, named: Mapping[str, Any]) -> frozenset[str]:
        if not text.isascii():
            raise InvalidSchema("no words")
        return frozenset(text.split()).union(*named.values())

    @staticmethod
    def canonical(words: frozenset[str]) -> str:
        return " ".join(sorted(words, reverse=True))

    @staticmethod
    def normalized(words: frozenset[str]) -> str:
        return " ".join(sorted(words))

    @staticmethod
    def differences(
        reader: frozenset[str], writer: frozenset[str], lenient: bool = False
    ) -> list[SchemaDifference]:
        missing = sorted(writer - reader)
        if lenient and reader & writer:
            return []
        return [SchemaDifference("WORD_MISSING", "/", each, f"no {each}", f"say {each}") for each in missing]

    @staticmethod
    def serialized(words: frozenset[str]) -> str:
        return f"<{len(words)}>"


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch, http: Http) -> Http:
    monkeypatch.setattr(
        "hub.schema_registry.compat.resolved_schema.FORMATS", {**known.FORMATS, "JSON": Words}
    )
    monkeypatch.setattr("hub.schema_registry.formats.known.FORMATS", {**known.FORMATS, "JSON": Words})
    return http


def test_a_format_is_asked_through_its_protocol_only(words: Http) -> None:
    assert words.ok("GET", "/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
    stored = words.ok("POST", "/subjects/s/versions", {"schema": "a b", "schemaType": "JSON"})
    assert (stored["schemaType"], stored["schema"]) == ("JSON", "b a")
    words.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": "a c", "schemaType": "JSON"})
    words.ok("PUT", "/config/s", {"compatibilityPolicy": "LENIENT"})
    assert words.register("s", "a c", schemaType="JSON") == 2
    assert words.ok("GET", "/schemas/ids/1?format=serialized")["schema"] == "<2>"
    assert words.ok("GET", "/subjects/s/versions/1?format=serialized")["schema"] == "<2>"
    words.fails(422, 42201, "POST", "/subjects/t/versions", {"schema": "ä", "schemaType": "JSON"})
    assert words.ok("GET", "/schemas/ids/1")["schema"] == "b a"


def test_normalize_is_asked_for_or_set(words: Http) -> None:
    body = {"schema": "b a", "schemaType": "JSON"}
    words.fails(404, 40401, "POST", "/subjects/s?normalize=true", body)
    stored = words.ok("POST", "/subjects/s/versions?normalize=true", body)
    assert stored["schema"] == "a b"
    words.fails(404, 40403, "POST", "/subjects/s", body)
    assert words.ok("POST", "/subjects/s?normalize=true", body)["id"] == stored["id"]
    words.ok("PUT", "/config", {"normalize": True})
    assert words.ok("POST", "/subjects/s", body)["id"] == stored["id"]


def test_a_schema_of_another_type_never_follows(words: Http) -> None:
    words.register("s", A)
    message = words.fails(409, 40901, "POST", "/subjects/s/versions", {"schema": "a", "schemaType": "JSON"})
    assert "SCHEMA_TYPE_CHANGED" in message
    words.ok("PUT", "/config/s", {"compatibility": "NONE"})
    assert words.register("s", "a", schemaType="JSON") == 2


# ---- the log


def test_a_taken_over_log_is_read_with_its_old_keys_and_cleaned_by_them(
    cluster: MemoryCluster, serving: Callable[[], Http]
) -> None:
    cluster.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    guid = str(uuid.uuid4())
    value = {"subject": "s", "version": 1, "id": 5, "schema": A, "deleted": False, "guid": guid, "md5": "x"}
    legacy = b'{"magic":0,"keytype":"SCHEMA","version":1,"subject":"s"}'
    config = b'{"magic":0,"subject":"s","keytype":"CONFIG"}'
    cluster.writer().append(
        [
            NewRecord(SCHEMAS_TOPIC, legacy, json.dumps(value).encode()),
            NewRecord(SCHEMAS_TOPIC, config, b'{"compatibilityLevel":"NONE","alias":null}'),
            NewRecord(SCHEMAS_TOPIC, b'{"keytype":"FUTURE","magic":0}', b"{}"),
            NewRecord(SCHEMAS_TOPIC, b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":9}', b"{}"),
            NewRecord(SCHEMAS_TOPIC, b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"ODD"}'),
        ]
    )
    node = RegistryNode(cluster)
    assert node.start()
    assert node.read(lambda registry: (registry.unreadable_count, registry.conflict_count)) == (3, 0)
    node.stop()
    http = serving()
    assert http.ok("GET", f"/schemas/guids/{guid}")["schema"] == A
    assert http.ok("GET", "/config/s") == {"compatibilityLevel": "NONE"}
    http.ok("DELETE", "/subjects/s/versions/1")
    http.ok("DELETE", "/subjects/s/versions/1?permanent=true")
    last: dict[bytes | None, bytes | None] = {
        record.key: record.value for record in cluster.logs[SCHEMAS_TOPIC][0]
    }
    assert last[legacy] is None and last[config] is None  # compaction leaves nothing that could come back
    assert not [
        key for key, value in last.items() if key and value and b'"SCHEMA"' in key and b'"magic":1' in key
    ]
    assert serving().ok("GET", "/subjects?deleted=true") == []
    assert http.register("t", A) == 6


def test_a_topic_that_would_lose_schemas_is_served_with_a_warning(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"cleanup.policy": "delete"}
    cluster.create_topic(SCHEMAS_TOPIC, partitions=2, config=config, replication_factor=1)
    node = RegistryNode(cluster)
    assert node.start()
    assert '"delete": schemas will vanish' in caplog.text and "2 partitions" in caplog.text
    node.stop()


def test_compaction_does_not_bring_an_id_back(cluster: MemoryCluster, serving: Callable[[], Http]) -> None:
    http = serving()
    http.register("s", A)
    http.register("s", AB)
    http.ok("DELETE", "/subjects/s")
    http.ok("DELETE", "/subjects/s?permanent=true")
    (log,) = cluster.logs[SCHEMAS_TOPIC]
    newest = {record.key: record for record in log}
    compacted = MemoryCluster()
    compacted.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    compacted.writer().append(
        [NewRecord(SCHEMAS_TOPIC, each.key, each.value) for each in newest.values() if each.value is not None]
    )
    node = RegistryNode(compacted)
    assert node.start()
    assert node.read(lambda registry: registry.space_of(DEFAULT_CONTEXT).highest_id) == 2
    node.stop()


def test_one_record_that_cannot_be_applied_does_not_end_the_registry(
    http: Http, serving: Callable[[], Http], monkeypatch: pytest.MonkeyPatch
) -> None:
    http.register("poison", A)
    http.register("s", AB)
    store = Registry._store

    def poisoned(registry: Registry, fact: SchemaStored) -> None:
        if fact.subject == "poison":
            raise RuntimeError("a bug of ours")
        store(registry, fact)

    monkeypatch.setattr(Registry, "_store", poisoned)
    assert serving().ok("GET", "/subjects") == ["s"]


# ---- the three formats, as clients send them


def test_json_schemas_are_compared_by_content_model_and_leniently_when_asked(http: Http) -> None:
    def send(**properties: Any) -> dict[str, Any]:
        return {"schema": json.dumps({"type": "object", "properties": properties}), "schemaType": "JSON"}

    http.ok("POST", "/subjects/j/versions", send(a={"type": "string"}))
    wider = send(a={"type": "string"}, b={"type": "integer"})
    refused = http.fails(409, 40901, "POST", "/subjects/j/versions", wider)
    assert "ADDED_TO_OPEN_CONTENT_MODEL" in refused and "#/properties/b" in refused
    http.ok("PUT", "/config/j", {"compatibilityPolicy": "LENIENT"})
    assert http.ok("POST", "/subjects/j/versions", wider)["id"] == 2
    http.fails(
        422, 42201, "POST", "/subjects/k/versions", {"schema": '{"$ref": "http://x/y"}', "schemaType": "JSON"}
    )


def test_json_schemas_refer_to_each_other(http: Http) -> None:
    money = {"schema": '{"type":"object","properties":{"cents":{"type":"integer"}}}', "schemaType": "JSON"}
    http.ok("POST", "/subjects/money/versions", money)
    order = {
        "schema": '{"type":"object","properties":{"total":{"$ref":"money.json"}}}',
        "schemaType": "JSON",
        "references": [{"name": "money.json", "subject": "money", "version": -1}],
    }
    stored = http.ok("POST", "/subjects/order/versions", order)
    assert http.ok("GET", f"/schemas/ids/{stored['id']}")["references"][0]["version"] == 1
    assert http.ok("GET", "/subjects/money/versions/1/referencedby") == [stored["id"]]
    http.fails(422, 42206, "DELETE", "/subjects/money")


def test_protobuf_is_compared_by_tag_and_told_as_text_or_descriptor(http: Http) -> None:
    first = 'syntax = "proto3"; package shop; message Order { string id = 1; int64 cents = 2; }'
    stored = http.ok("POST", "/subjects/p/versions", {"schema": first, "schemaType": "PROTOBUF"})
    text = http.ok("GET", f"/schemas/ids/{stored['id']}")["schema"]
    assert "message Order {" in text and text.startswith('syntax = "proto3";')
    descriptor = http.ok("GET", f"/schemas/ids/{stored['id']}?format=serialized")["schema"]
    body = {"schema": descriptor, "schemaType": "PROTOBUF"}  # what Python's client registers
    found = http.ok("POST", "/subjects/p", body)
    assert (found["id"], found["schema"]) == (stored["id"], descriptor)  # in the form that it came in
    worse = first.replace("int64 cents", "string cents")
    refused = http.fails(
        409, 40901, "POST", "/subjects/p/versions", {"schema": worse, "schemaType": "PROTOBUF"}
    )
    assert "FIELD_SCALAR_KIND_CHANGED" in refused and "#/Order/2" in refused
    http.fails(422, 42201, "POST", "/subjects/p/versions", {"schema": "message {", "schemaType": "PROTOBUF"})


def test_a_subject_does_not_change_its_format_but_with_none(http: Http) -> None:
    http.register("s", A)
    other = {"schema": '{"type":"string"}', "schemaType": "JSON"}
    http.fails(409, 40901, "POST", "/subjects/s/versions", other)
    http.ok("PUT", "/config/s", {"compatibility": "NONE"})
    assert http.ok("POST", "/subjects/s/versions", other)["schemaType"] == "JSON"
