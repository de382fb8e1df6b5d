"""Rules that only warn: a header on registration, ``hub schema explain`` in a project, and no refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from hub.cli import main
from hub.log import MemoryCluster
from hub.schema_registry.http.routes import create_router
from hub.schema_registry.policy.policy import Policies
from hub.schema_registry.registry.rulebook import Rulebook
from hub.schema_registry.registry.snapshot import (
    ParsedSchema,
    RegistryState,
    SubjectState,
    SubjectVersion,
    parsed_version,
)
from hub.schema_registry.server.node import RegistryNode

RULES: dict[str, Any] = {
    "shop": {
        "doc": "record",
        "naming": {"fields": "snake_case"},
        "owner": "required",
        "severity": {"doc": "warn", "naming": "warn"},
    },
    "strict": {"doc": "record"},
    "tagged": {"pii": {"mail": "PII"}},
}


def record(*fields: str, **more: Any) -> str:
    listed = [{"name": each, "type": "int", "default": 0} for each in fields]
    return json.dumps({"type": "record", "name": "R", "fields": listed, **more})


# ---- over HTTP


@pytest.fixture
def http() -> Iterator[TestClient]:
    book = Rulebook(Policies.of(RULES), {"shop.orders": "orders"})
    node = RegistryNode(MemoryCluster(), rules=lambda: book)
    assert node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    yield TestClient(app)
    node.stop()


def test_rules_are_asked_with_the_metadata_that_registration_inherits(http: TestClient) -> None:
    """The later version has no owner of its own and inherits that of the first."""
    subject = "shop.returns-value"
    owned = {"schema": record("a", doc="x"), "metadata": {"properties": {"owner": "ann"}}}
    assert http.post(f"/subjects/{subject}/versions", json=owned).status_code == 200
    later = {"schema": record("a", "b", doc="x")}
    asked = http.post(f"/compatibility/subjects/{subject}/versions?verbose=true", json=later).json()
    answer = http.post(f"/subjects/{subject}/versions", json=later)
    assert (asked["is_compatible"], answer.status_code) == (True, 200), (asked, answer.text)


def judged(http: TestClient, subject: str, body: dict[str, Any]) -> bool:
    """Return whether the compatibility check and the registration accept the schema; both must agree."""
    asked = http.post(f"/compatibility/subjects/{subject}/versions?verbose=true", json=body).json()
    answer = http.post(f"/subjects/{subject}/versions", json=body)
    assert asked["is_compatible"] is answer.is_success, (asked, answer.text)
    assert answer.is_success or "fix: " in asked["messages"][0]
    return answer.is_success


def test_what_the_rules_refuse_is_not_called_compatible(http: TestClient) -> None:
    assert not judged(http, "strict.x-value", {"schema": record("a")})  # nor of a first version
    assert judged(http, "strict.x-value", {"schema": record("a", doc="x")})
    assert not judged(http, "strict.x-value", {"schema": record("a", "b")})
    tags = [{"schemaEntity": {"entityPath": "R.mail", "entityType": "sr_field"}, "tags": ["PII"]}]
    for fields in (["mail"], ["mail", "b"]):
        assert not judged(http, "tagged.x-value", {"schema": record(*fields)})
        assert judged(http, "tagged.x-value", {"schema": record(*fields), "schemaTagsToAdd": tags})


def test_an_older_version_of_what_is_frozen_may_not_become_the_latest() -> None:
    books = [Rulebook(Policies.of({})), Rulebook(Policies.of({"a": {"freeze": True}}))]
    node = RegistryNode(MemoryCluster(), rules=lambda: books[0])
    assert node.start()
    app = FastAPI()
    app.include_router(create_router(node))
    http = TestClient(app)
    for fields in (["a"], ["a", "b"]):
        assert judged(http, "a-value", {"schema": record(*fields)})
    del books[0]
    assert not judged(http, "a-value", {"schema": record("a"), "version": -1})
    assert judged(http, "a-value", {"schema": record("a")})
    assert judged(http, "a-value", {"schema": record("a", "b"), "version": -1})
    node.stop()


def test_a_registration_is_answered_with_confluent_s_body_and_the_warnings_beside_it(
    http: TestClient,
) -> None:
    for _ in range(2):  # a repeated registration warns again
        answer = http.post("/subjects/shop.orders-value/versions", json={"schema": record("aB")})
        assert answer.status_code == 200 and set(answer.json()) == {"id", "version", "guid", "schema"}
        doc, naming = sorted(json.loads(answer.headers["Hub-Warnings"]))
        assert doc.startswith("doc at R:") and "(set by shop)" in doc
        assert naming.startswith("naming.fields at aB:")
    inside = http.post("/contexts/.c/subjects/shop.orders-value/versions", json={"schema": record("aB")})
    assert "Hub-Warnings" in inside.headers


@pytest.mark.parametrize(
    ("subject", "text", "status"),
    [
        ("shop.orders-value", record("a", doc="A record."), 200),  # nothing warns
        ("other-value", record("aB"), 200),  # no rule
        ("strict.x-value", record("a"), 422),  # the rule blocks, and the body has the reason
        ("shop.web-value", record("aB"), 422),  # another rule blocks
        ("shop.orders-value", "{", 422),
        ("shop.orders-value", "", 422),
    ],
)
def test_no_header_where_nothing_warns_or_nothing_is_registered(
    http: TestClient, subject: str, text: str, status: int
) -> None:
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": text})
    assert answer.status_code == status and "Hub-Warnings" not in answer.headers


def test_many_and_long_warnings_fit_into_a_header(http: TestClient) -> None:
    names = [f"aBø{'x' * 300}{n}".replace("ø", "o") for n in range(30)]
    text = record(*names, doc="ø\n")
    answer = http.post("/subjects/shop.orders-value/versions", json={"schema": text})
    assert answer.status_code == 200
    said = answer.headers["Hub-Warnings"]
    found = json.loads(said)
    assert said.isascii() and len(said) < 4_096 and len(found) == 11
    assert found[-1] == "and 20 more" and found[0].endswith("...")


def test_what_no_level_sees_is_told_whatever_the_rules(http: TestClient) -> None:
    fields = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    micros = [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]
    first, second = (
        {"schema": json.dumps({"type": "record", "name": "R", "fields": f})} for f in (fields, micros)
    )
    assert "Hub-Warnings" not in http.post("/subjects/free-value/versions", json=first).headers
    asked = http.post("/compatibility/subjects/free-value/versions?verbose=true", json=second).json()
    assert asked["is_compatible"] is True
    answer = http.post("/subjects/free-value/versions", json=second)
    (said,) = json.loads(answer.headers["Hub-Warnings"])
    assert answer.status_code == 200 and said.startswith("LOGICAL_TYPE_CHANGED at at: was timestamp-millis")
    assert asked["messages"] == [f"warning: {said}"]
    again = http.post("/subjects/free-value/versions", json=second)
    assert "Hub-Warnings" not in again.headers  # the same version, so there is no change to report


# ---- hub schema explain

Run = Callable[..., tuple[int, str, str]]
POLICIES = """
policies:
  shop:
    doc: record
    owner: required
    registrars: [team:orders]
    severity: {doc: warn}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("HUB_PROJECT", str(tmp_path))
    (tmp_path / "policies.yaml").write_text(POLICIES)
    (tmp_path / "topics.yaml").write_text("topics: {shop: {owner: o, topics: {orders: {}}}}")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "shop.orders-value.avsc").write_text(
        json.dumps({"type": "record", "name": "O", "fields": [{"name": "i", "type": "Item"}]})
    )
    (tmp_path / "schemas" / "item.avsc").write_text(json.dumps(json.loads(record("a")) | {"name": "Item"}))
    (tmp_path / "schemas" / "shop.web.x-value.avsc").write_text("{")

    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["schema", "explain", *arguments])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


def test_explain_tells_what_the_project_s_schema_breaks(run: Run, tmp_path: Path) -> None:
    for name in ("shop.orders", "shop.orders-value"):
        code, out, err = run(name)
        assert code == 0 and "Judged: " in err and "shop.orders-value.avsc" in err
        assert [line.partition(":")[0] for line in out.splitlines() if line[:2] in ("! ", "x ")] == [
            "! doc at O"
        ]
    rows = {each["rule"]: each for each in json.loads(run("shop.orders", "-o", "json")[1])}
    assert [each["path"] for each in rows["doc"]["violations"]] == ["O"]
    assert rows["doc"]["violations"][0]["severity"] == "warn"
    assert rows["owner"]["violations"] == [] and rows["registrars"]["violations"] == []
    (tmp_path / "topics.yaml").write_text("topics: {shop: {topics: {orders: {}}}}")
    assert "\nx owner: " in run("shop.orders")[1]


def test_what_is_registered_does_not_break_a_freeze(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies.yaml").write_text("policies: {shop: {freeze: true}}")
    assert "\nx freeze: " in run("shop.orders-value")[1]
    state = RegistryState({"shop.orders-value": SubjectState((SubjectVersion(1, record("a")),))})

    class Registered:
        def __init__(self, url: str) -> None: ...

        def numbers(self, subject: str) -> list[int]:
            return [1]

        def version(self, subject: str, number: int) -> SubjectVersion:
            return state.subjects[subject].versions[0]

        def parsed(self, version: SubjectVersion) -> ParsedSchema:
            return parsed_version(state, version)

        def close(self) -> None: ...

    monkeypatch.setattr("hub.schema_registry.client.remote.RemoteRegistry", Registered)
    code, out, err = run("shop.orders-value", "--registered")
    assert code == 0 and "Checked: version 1" in err and "x freeze" not in out


def test_explain_says_when_there_is_no_schema_to_judge(run: Run) -> None:
    code, _, err = run("shop.orders-key")
    assert code == 0 and "the project has none of shop.orders-key" in err
    code, _, err = run("shop.web.x-value")
    assert code == 0 and "No schema is checked: not JSON" in err
