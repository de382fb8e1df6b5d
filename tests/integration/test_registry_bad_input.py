"""A real server against what no client should send:
a clear refusal, nothing stored, and the server answers on."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

TYPE = "application/vnd.schemaregistry.v1+json"
MEBIBYTE = 1_048_576
RECORD = '{"type":"record","name":"R","fields":[]}'


@pytest.fixture
def http(hub_server: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hub_server, timeout=60.0) as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_stored(http: httpx.Client) -> Iterator[None]:
    """The stored state is the same after each test, and a well-formed request is answered."""
    before = stored(http)
    yield
    assert stored(http) == before
    assert http.get("/health").json() == {"status": "up"}
    good = http.post(f"/compatibility/subjects/{name()}/versions", json={"schema": RECORD})
    assert good.json() == {"is_compatible": True}


def stored(http: httpx.Client) -> list[Any]:
    every = ("/subjects?deleted=true", "/schemas?deleted=true", "/config", "/mode", "/contexts")
    answers = [http.get(path) for path in every]
    assert [each.status_code for each in answers] == [200] * len(every)
    return [each.json() for each in answers]


def name() -> str:
    return f"bad-{uuid.uuid4().hex[:8]}"


def refused(answer: httpx.Response, status: int, code: int, *says: str) -> None:
    """The right status, the right code and a message that names what is wrong,
    and is no longer than a line."""
    assert answer.status_code == status, answer.text[:500]
    body = answer.json()
    assert (set(body), body["error_code"]) == ({"error_code", "message"}, code)
    assert all(each in body["message"] for each in says), body["message"][:500]
    assert "Traceback" not in body["message"] and len(body["message"]) < 2_000


def refused_everywhere(http: httpx.Client, body: dict[str, Any], *says: str, code: int = 42201) -> None:
    """To register it, to check it, and (of a subject that is there) to look it up."""
    for path in (
        f"/subjects/{name()}/versions",
        f"/compatibility/subjects/{name()}/versions",
        f"/subjects/{name()}",
    ):
        refused(http.post(path, json=body), 422, code, *says)


# ---- bodies


@pytest.mark.parametrize(
    "kind", ["text/xml", "text/plain; charset=utf-8", "application/x-protobuf", "", "/", "é"]
)
def test_a_body_of_another_type(http: httpx.Client, kind: str) -> None:
    body = json.dumps({"schema": RECORD}).encode()
    headers = {"content-type": kind.encode("utf-8")}
    for method, path in (("POST", f"/subjects/{name()}/versions"), ("PUT", f"/config/{name()}")):
        refused(http.request(method, path, content=body, headers=headers), 415, 415, "Unsupported Media Type")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"schema": "\xff\xfe"}', "UTF-8"),
        (b'{"schema": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"schema": "\\ud800"}', "not JSON"),
        ('{"schema": "x"}'.encode("utf-16"), "UTF-8"),
        (b'\xef\xbb\xbf{"schema": ""}', "not JSON"),
        (b'{"schema": NaN}', "not JSON"),
        (b'{"schema": "a"} x', "not JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'["schema"]', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"schema=%7B%7D", "not JSON"),
    ],
    ids=lambda each: repr(each[:20]),
)
def test_a_body_that_is_no_json(http: httpx.Client, content: bytes, says: str) -> None:
    for method, path in (
        ("POST", f"/subjects/{name()}/versions"),
        ("POST", f"/subjects/{name()}"),
        ("PUT", f"/config/{name()}"),
        ("PUT", f"/mode/{name()}"),
    ):
        refused(http.request(method, path, content=content, headers={"content-type": TYPE}), 400, 400, says)


def test_a_huge_body(http: httpx.Client) -> None:
    """Over four mebibytes no body is read, announced or not; a schema of more than one is refused as one."""
    path, headers = f"/subjects/{name()}/versions", {"content-type": TYPE}
    piece = b" " * 65_536
    for content in (piece * 80, iter([piece] * 80)):
        refused(http.post(path, content=content, headers=headers), 413, 413, "too large")
    refused_everywhere(http, {"schema": '"' + "x" * MEBIBYTE + '"'}, "1048576 are allowed", code=42209)


@pytest.mark.parametrize(
    "body",
    [
        {"schema": 5},
        {"schema": {"type": "string"}},
        {"schema": RECORD, "schemaType": ["AVRO"]},
        {"schema": RECORD, "references": {}},
        {"schema": RECORD, "references": [1]},
        {"schema": RECORD, "references": [{"name": "x"}]},
        {
            "schema": RECORD,
            "version": 10**30,
            "references": [{"name": "x", "subject": "y", "version": 10**30}],
        },
        {"schema": RECORD, "metadata": []},
        {"schema": RECORD, "metadata": {"properties": {"a": {}}}},
        *(
            {"schema": RECORD, field: value}
            for field in ("id", "version")
            for value in (-2, 2**31, 10**30, 1.5, "1")
        ),
        {"schema": RECORD, "id": True},
    ],
    ids=str,
)
def test_fields_that_are_not_of_their_type(http: httpx.Client, body: dict[str, Any]) -> None:
    wrong = next(each for each in body if each != "schema" or len(body) == 1)
    refused_everywhere(http, body, wrong, code=422)


def test_a_rule_set_that_no_client_reads(http: httpx.Client) -> None:
    for rules in ([], "all", {"domainRules": {}}, {"domainRules": [{"name": "r", "expr": {}}]}):
        refused_everywhere(http, {"schema": RECORD, "ruleSet": rules}, "Invalid rule set", code=42210)


# ---- Avro


def nested(opening: str, closing: str, inside: str, times: int) -> str:
    return opening * times + inside + closing * times


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested('{"type":"array","items":', "}", '"int"', 10_000), "depth limit"),
        (nested('{"type":"map","values":', "}", '"int"', 100), "nested"),
        (nested("[", "]", '"int"', 10_000), "depth limit"),
        (nested('{"type":', "}", '"int"', 10_000), "depth limit"),
        ('{"type":"array","items":' * 10_000, "JSON"),
        (
            json.dumps({"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(60_000)]}),
            "50000 are allowed",
        ),
        (json.dumps({"type": "enum", "name": "E", "symbols": ["A", "A"]}), "Avro"),
        (
            json.dumps(
                {
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": f"f{n}", "type": "int"} for n in range(6_000)],
                }
            ),
            "5000 are allowed",
        ),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"Nowhere"}]}', "Nowhere"),
        ('{"type":"fixed","name":"F","size":1e400}', "JSON"),
        ('{"type":"fixed","name":"F","size":-1}', "Avro"),
        ("", "Empty"),
        ("\x00", "JSON"),
        ("5", "Avro"),
    ],
    ids=lambda each: each[:24],
)
def test_avro_that_is_none_or_too_much(http: httpx.Client, text: str, says: str) -> None:
    for path in (f"/subjects/{name()}/versions", f"/compatibility/subjects/{name()}/versions"):
        refused(http.post(path, json={"schema": text}), 422, 42201, says)


# ---- references


def test_references_that_lead_nowhere_or_in_a_circle(http: httpx.Client) -> None:
    subject = name()
    for schema_type, text in (("AVRO", RECORD), ("JSON", "{}"), ("PROTOBUF", 'syntax = "proto3";')):
        for version in (1, -1, 2**31 - 1):
            reference = {"name": "itself", "subject": subject, "version": version}
            body = {"schema": text, "schemaType": schema_type, "references": [reference]}
            for path in (f"/subjects/{subject}/versions", f"/compatibility/subjects/{subject}/versions"):
                refused(http.post(path, json=body), 422, 42201, 'no schema for reference "itself"')
    circle = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    answer = http.post(
        f"/compatibility/subjects/{subject}/versions",
        json={"schema": json.dumps(circle), "schemaType": "JSON"},
    )
    assert answer.status_code in (200, 422), answer.text


# ---- JSON Schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"pattern": "("}, "not a pattern"),
        ({"pattern": "a" * 1_001}, "1000 are allowed"),
        ({"pattern": "(" * 499 + ")" * 499}, "pattern"),
        ({"pattern": "x{9999999999}"}, "pattern"),
        ({"patternProperties": {"[": {}}}, "not a pattern"),
        ({"patternProperties": {f"{'a' * 990}{n}": {} for n in range(150)}}, "patterns"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "http://127.0.0.1:1/schema.json"),
        ({"$ref": "https://example.com/schema.json"}, "https://example.com/schema.json"),
        ({"$ref": "file:///etc/passwd"}, "file:///etc/passwd"),
        ({"$ref": "/etc/passwd"}, "/etc/passwd"),
        ({"$ref": "../../../etc/passwd"}, "etc/passwd"),
        ({"$ref": "#/nowhere"}, "#/nowhere"),
        ({"$ref": 5}, "5"),
        ({"type": "nothing"}, "nothing"),
        ({"enum": list(range(20_000))}, "10000 are allowed"),
        ({"items": [{"const": n} for n in range(40_000)]}, "30000"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_json_schema_that_is_none_or_too_much(http: httpx.Client, schema: Any, says: str) -> None:
    refused_json_schema(http, json.dumps(schema), says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (nested('{"not":', "}", "{}", 10_000), "nested"),
        (nested("[", "]", "", 10_000), ""),
        ("{", ""),
        ("5", ""),
    ],
    ids=lambda each: each[:20],
)
def test_json_schema_text(http: httpx.Client, text: str, says: str) -> None:
    refused_json_schema(http, text, says)


def refused_json_schema(http: httpx.Client, text: str, says: str) -> None:
    body = {"schema": text, "schemaType": "JSON"}
    for path in (f"/subjects/{name()}/versions", f"/compatibility/subjects/{name()}/versions"):
        refused(http.post(path, json=body), 422, 42201, "Invalid schema", says)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*$", "(.*)*x", "((a{1,999}){1,999}){1,999}$"])
def test_a_pattern_is_never_run_without_end(http: httpx.Client, pattern: str) -> None:
    """To compare two schemas a pattern is tried on names of properties, within a number of steps."""
    subject = name()
    old = {
        "type": "object",
        "properties": {"a" * 200 + "b": {"type": "integer"}},
        "additionalProperties": True,
    }
    new = {"type": "object", "patternProperties": {pattern: {"type": "string"}}}
    made = http.post(f"/subjects/{subject}/versions", json={"schema": json.dumps(old), "schemaType": "JSON"})
    assert made.status_code == 200, made.text
    try:
        answer = http.post(
            f"/compatibility/subjects/{subject}/versions?verbose=true",
            json={"schema": json.dumps(new), "schemaType": "JSON"},
        )
        assert answer.status_code in (200, 422), answer.text
    finally:
        for permanent in ("false", "true"):
            http.delete(f"/subjects/{subject}?permanent={permanent}").raise_for_status()


def test_the_meta_schema_that_a_schema_names_is_never_fetched(http: httpx.Client) -> None:
    body = {"schema": '{"$schema":"http://127.0.0.1:1/meta.json"}', "schemaType": "JSON"}
    assert http.post(f"/compatibility/subjects/{name()}/versions", json=body).json() == {
        "is_compatible": True
    }


# ---- Protobuf


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('syntax = "proto3"; import "/etc/passwd"; message M {}', "/etc/passwd"),
        ('syntax = "proto3"; import "../../../etc/passwd"; message M {}', "etc/passwd"),
        ('syntax = "proto3"; import "nowhere.proto"; message M {}', "nowhere.proto"),
        ('syntax = "proto3"; import "schema.proto"; message M {}', "schema.proto"),
        ('syntax = "proto3"; message M {', "Protobuf"),
        ('syntax = "proto9"; message M {}', "proto9"),
        ('syntax = "proto3"; message M { int32 a = 0; }', "Protobuf"),
        ('syntax = "proto3"; message M { int32 a = 99999999999999999999; }', "Protobuf"),
        ('syntax = "proto3"; ' + nested("message M {", "}", "", 1_000), ""),
        ('syntax = "proto3"; message M { Nowhere a = 1; }', "Nowhere"),
        ("\x00", "null byte"),
        ("AAAA", ""),
        ("{}", "Protobuf"),
    ],
    ids=lambda each: each[:60],
)
def test_protobuf_that_is_none_or_reaches_out(http: httpx.Client, text: str, says: str) -> None:
    body = {"schema": text, "schemaType": "PROTOBUF"}
    for path in (f"/subjects/{name()}/versions", f"/compatibility/subjects/{name()}/versions"):
        answer = http.post(path, json=body)
        refused(answer, 422, 42201, "Invalid schema", says)
        assert "root:" not in answer.text and "/tmp/" not in answer.text


# ---- paths and methods that no route has


def test_a_path_that_is_none_is_answered_as_confluents_registry_does(http: httpx.Client) -> None:
    for path in (
        "/nothing",
        "/subject",
        "/schema/ids/1",
        "/v1",
        "/v1/nothing",
        "/subjects/s/nothing",
        "/dek-registry/v1/nothing",
    ):
        for method in ("GET", "POST"):
            answer = http.request(method, path)
            assert answer.status_code == 404, (method, path, answer.text)
            assert answer.json() == {"error_code": 404, "message": "HTTP 404 Not Found"}
            assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    for method, path in (
        ("PUT", "/subjects/s/versions"),
        ("PATCH", "/config"),
        ("DELETE", "/topics"),
        ("PUT", "/health"),
    ):
        answer = http.request(method, path)
        assert answer.status_code == 405, (method, path, answer.text)
        assert answer.json() == {"error_code": 405, "message": "HTTP 405 Method Not Allowed"}
        assert "GET" in answer.headers["allow"]
    page = http.get("/nothing", headers={"Accept": "text/html,*/*;q=0.8"})  # a person gets a page
    assert page.status_code == 404 and page.headers["content-type"].startswith("text/html")


# ---- numbers in paths


@pytest.mark.parametrize(
    "version", ["0", "-2", "2147483648", "abc", "1" + "0" * 30, "1.0", "%20", "9" * 5_000, "%D9%A1"]
)
def test_versions_out_of_range(http: httpx.Client, version: str) -> None:
    for method, path in (
        ("GET", f"/subjects/s/versions/{version}"),
        ("GET", f"/subjects/s/versions/{version}/schema"),
        ("GET", f"/subjects/s/versions/{version}/referencedby"),
        ("DELETE", f"/subjects/s/versions/{version}"),
        ("DELETE", f"/subjects/s/versions/{version}?permanent=true"),
        ("POST", f"/compatibility/subjects/s/versions/{version}"),
    ):
        body = {"schema": RECORD} if method == "POST" else None
        refused(http.request(method, path, json=body), 422, 42202, "is not a valid version id")


@pytest.mark.parametrize(
    "schema_id", ["0", "-2", "2147483648", "abc", "1" + "0" * 30, "1.0", "%20", "9" * 5_000, "%D9%A1"]
)
def test_ids_out_of_range(http: httpx.Client, schema_id: str) -> None:
    for path in ("", "/schema", "/subjects", "/versions", "?fetchMaxId=true"):
        answer = http.get(f"/schemas/ids/{schema_id}{path}")
        refused(
            answer, 404, 40403 if schema_id == "0" else 404, "ot found" if schema_id == "0" else "Not Found"
        )


@pytest.mark.parametrize("number", ["abc", "1.5", "1e3", "9" * 5_000, ""])
def test_pages_that_are_no_numbers(http: httpx.Client, number: str) -> None:
    for path in ("/subjects", "/schemas", "/contexts"):
        for parameter in ("offset", "limit"):
            refused(http.get(path, params={parameter: number}), 422, 422, f"{parameter}: ", "not a number")


def test_subjects_that_are_none(http: httpx.Client) -> None:
    for subject in ("%00", "a%0Ab", "%C2%80", "__GLOBAL", "__EMPTY", ":.ctx:", "x" * 1_025, ":.ctx:__EMPTY"):
        refused(
            http.post(f"/subjects/{subject}/versions", json={"schema": RECORD}),
            422,
            42208,
            "subject",
            "not a valid",
        )
    refused(http.get("/subjects/%FF/versions"), 400, 400, "UTF-8")
    refused(http.get("/subjects?subjectPrefix=%FF"), 400, 400, "UTF-8")


def test_a_request_that_breaks_off(hub_server: str) -> None:
    """A client that announces more than it sends, and one that speaks no HTTP."""
    place = urlsplit(hub_server)
    assert place.hostname is not None and place.port is not None
    head = (
        f"POST /subjects/{name()}/versions HTTP/1.1\r\nHost: x\r\nContent-Type: "
        f"{TYPE}\r\nContent-Length: 900\r\n\r\n"
    )
    for sent in (head.encode() + b'{"schema": "', b"\x00\x01\x02\r\n\r\n", b"GET /subjects HTTP/9\r\n\r\n"):
        with socket.create_connection((place.hostname, place.port), timeout=10) as connection:
            connection.sendall(sent)
