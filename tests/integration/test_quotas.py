"""Quotas at a real server over a real Kafka: every way in and out, tenants, people with many tokens, forged
headers, a changed file, usage and metrics; and client quotas at a real Kafka with an authorizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from kafka_nodes import own_node
from pipeline import records_of, wait_until
from ports import free_ports
from processes import Server, call_hub
from secured_node import SecuredNode
from sql_cases import fill
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from hub.access.secrets import hash_of_password, hash_of_token
from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.kafka.protocol.client_quotas import ClientQuota
from hub.materializers.stores.sql_store import Store
from hub.topics.webhooks.signatures import Verification, signed_headers

PASSWORD, SECRET = "correct horse", "It's a Secret to Everybody"
ALL = '[{role: admin, topics: ["**"], views: ["**"], hub: true}]'
SERVICES = 60
# One admitted at once, the next one after a hundred seconds.
ONE = 0.01
QUOTAS = f"""\
quotas:
  refusal_delay_ms: 20
  defaults:
    queries_per_s: {ONE}
    events_in_per_s: {ONE}
    sql_seconds_per_min: 1
    registrations_per_min: 1
    subscriptions: 1
    connections: 3
  users:
    root: {{queries_per_s: unlimited, connections: unlimited, registrations_per_min: unlimited}}
  tokens:
    bytes: {{events_in_per_s: unlimited, bytes_in_per_s: 100}}
    slow: {{queries_per_s: unlimited, sql_seconds_per_min: 0.0001}}
    free1: {{queries_per_s: unlimited, events_in_per_s: unlimited, subscriptions: unlimited}}
    free2: {{queries_per_s: unlimited, events_in_per_s: unlimited, subscriptions: unlimited}}
  tenants:
    tenant.events: {{events_in_per_s: {ONE}}}
    tenant.open: {{connections: 1}}
    tenant.reads: {{topics: [tenant.reads], views: [customer], queries_per_s: {ONE}, subscriptions: 1}}
"""
TOPICS = (
    "quotas.in",
    "quotas.hooks",
    "tenant.events.a",
    "tenant.events.b",
    "tenant.open.a",
    "tenant.reads.a",
)


@dataclass
class Limited:
    """A server with quotas. ``service`` returns the credentials of a service that has used nothing yet."""

    settings: Settings
    url: str
    numbers: Iterator[int]

    def service(self) -> tuple[str, str]:
        name = f"s{next(self.numbers)}"
        return name, f"hubt_{name}"

    def client(self, token: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)

    def write(self, quotas: str) -> None:
        path = self.settings.project / "access.yaml"
        draft = path.with_suffix(".draft")
        draft.write_text(access_file() + quotas)
        draft.rename(path)

    def usage(self) -> list[dict[str, Any]]:
        answer = httpx2.get(f"{self.url}/api/usage", auth=("root", PASSWORD), timeout=60)
        rows: list[dict[str, Any]] = answer.json()["rows"]
        return rows


def access_file() -> str:
    named = [*(f"s{number}" for number in range(SERVICES)), "bytes", "slow", "free1", "free2"]
    services = "\n".join(
        f'  {name}: {{token: "{hash_of_token(f"hubt_{name}")}", grants: {ALL}}}' for name in named
    )
    return f"""\
contact: "#data-platform"
users:
  root: {{password: "{hash_of_password(PASSWORD, b"1" * 16)}", grants: {ALL}}}
  ana: {{password: "{hash_of_password(PASSWORD, b"2" * 16)}", grants: [{{role: read, views: ["**"]}}]}}
anonymous: [{{role: read, views: ["**"]}}]
tokens:
{services}
"""


@pytest.fixture(scope="module")
def limited(settings: Settings, kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    project = tmp_path_factory.mktemp("quotas")
    http, pgwire = free_ports(2)
    own = settings.model_copy(
        update={
            "project": project,
            "home": project / "home",
            "http_port": http,
            "pgwire_port": pgwire,
            "registry_url": None,
            "store_url": None,
        }
    )
    own.home.mkdir()
    made = Limited(own, own.url, count())
    made.write(QUOTAS)
    (project / "queries").mkdir()
    (project / "queries" / "one.sql").write_text("SELECT city FROM plant WHERE n = 0\n")
    (project / "webhooks.yaml").write_text(
        "webhooks:\n  github:\n    topic: quotas.hooks\n"
        '    verify: {scheme: github, secrets: ["${GITHUB_SECRET}"]}\n'
    )
    store = Store(own.store)
    fill(store)
    store.close()
    cluster = KafkaCluster(kafka)
    for topic in TOPICS:
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    server = Server(own, environment={"GITHUB_SECRET": SECRET})
    try:
        server.start()
        root = SchemaRegistryClient({"url": own.url, "basic.auth.user.info": f"root:{PASSWORD}"})
        for topic in TOPICS[:-1]:
            root.register_schema(f"{topic}-value", Schema('{"type": "object"}', "JSON"))
        yield made
    finally:
        server.stop(10.0)


def refused(answer: httpx2.Response, quota: str, of: str, source: str = "") -> None:
    """Assert that an answer names the quota, whose it is, its limit, and who can raise it."""
    assert answer.status_code == 429, answer.text
    body = answer.json()
    assert int(answer.headers["Retry-After"]) >= 1
    assert body.get("code", body["error_code"]) in ("HUB-1730", "HUB-1731")
    assert (body["quota"], body["used_by"]) == (quota, of), body
    assert f"{of}: the quota {quota} is used up" in body["message"]
    assert "ask #data-platform to raise quotas." in body["hint"] and source in body["hint"]


READS: dict[str, Callable[[httpx2.Client], httpx2.Response]] = {
    "by key": lambda http: http.get("/views/plant/p0"),
    "a list": lambda http: http.get("/views/plant?limit=1"),
    "a missing key": lambda http: http.get("/views/plant/nobody"),
    "SQL": lambda http: http.post("/query", json={"sql": "SELECT n FROM plant LIMIT 1"}),
    "a saved query": lambda http: http.get("/queries/one"),
    "a statement of the hub": lambda http: http.post("/query", json={"sql": "SHOW VIEWS"}),
    "messages": lambda http: http.get("/api/topics/quotas.in/messages"),
}


@pytest.mark.parametrize("way", READS)
def test_reads_are_counted_on_every_way(limited: Limited, way: str) -> None:
    name, token = limited.service()
    with limited.client(token) as http:
        first = READS[way](http)
        assert first.status_code in (200, 404), first.text
        for each in READS.values():
            refused(each(http), "queries_per_s", f"token {name}", "quotas.defaults.queries_per_s")


WRITES: dict[str, tuple[str, object]] = {
    "records": ("/v3/clusters/-/topics/quotas.in/records", {"value": {"data": {"a": 1}}}),
    "events": ("/topics/quotas.in/events", {"a": 1}),
    "one record": ("/topics/quotas.in/records", {"key": "k", "value": {"a": 1}}),
}


@pytest.mark.parametrize("way", WRITES)
def test_events_are_counted_on_every_way(limited: Limited, way: str) -> None:
    name, token = limited.service()
    cluster = KafkaCluster(limited.settings.bootstrap)
    with limited.client(token) as http:
        assert http.post(WRITES[way][0], json=WRITES[way][1]).status_code == 200
        before = len(records_of(cluster, "quotas.in"))
        for path, body in WRITES.values():
            refused(http.post(path, json=body), "events_in_per_s", f"token {name}")
        assert len(records_of(cluster, "quotas.in")) == before, "a refused event was written"


def test_bytes_are_those_of_the_body_whatever_its_header_says(limited: Limited) -> None:
    with limited.client("hubt_bytes") as http:

        def chunked() -> Iterator[bytes]:
            yield b'{"text": "'
            yield b"x" * 20_000
            yield b'"}'

        assert http.post("/topics/quotas.in/events", content=chunked()).status_code == 200
        refused(http.post("/topics/quotas.in/events", json={"a": 1}), "bytes_in_per_s", "token bytes")


def test_a_webhook_is_counted_by_its_name_once_it_is_signed(limited: Limited) -> None:
    def sent(secret: str, delivery: str) -> httpx2.Response:
        body = b'{"ref": "main"}'
        headers = signed_headers(Verification("github", (secret,)), body, time.time(), delivery)
        headers |= {"Content-Type": "application/json"}
        return httpx2.post(f"{limited.url}/hooks/github", content=body, headers=headers, timeout=60)

    assert {sent("guessed", f"g-{number}").status_code for number in range(5)} == {401}
    assert sent(SECRET, "d-1").status_code == 200
    refused(sent(SECRET, "d-2"), "events_in_per_s", "webhook github", "quotas.defaults")


def test_subscriptions_are_counted_while_they_are_open(limited: Limited) -> None:
    name, token = limited.service()
    bearer = {"Authorization": f"Bearer {token}"}
    push = {"sql": "SELECT n FROM plant EMIT CHANGES"}
    with httpx2.Client(base_url=limited.url, headers=bearer, timeout=60) as http:
        with http.stream("GET", "/views/plant/changes") as first:
            assert first.status_code == 200
            refused(http.get("/views/plant/changes"), "subscriptions", f"token {name}")
            refused(http.get("/query/changes", params=push), "subscriptions", f"token {name}")
            refused(http.get("/api/topics/quotas.in/tail"), "subscriptions", f"token {name}")
            with pytest.raises(InvalidStatus) as denied:
                connect(f"{limited.url.replace('http', 'ws')}/views/plant/changes", additional_headers=bearer)
            assert denied.value.response.status_code == 429
            assert b"HUB-1731" in denied.value.response.body

        def opened() -> bool:
            with http.stream("GET", "/query/changes", params=push) as again:
                return again.status_code == 200

        wait_until(opened, 30.0)
        wait_until(opened, 30.0)


def test_registrations_get_confluents_error(limited: Limited) -> None:
    name, token = limited.service()
    client = SchemaRegistryClient(
        {"url": limited.url, "basic.auth.user.info": f"{name}:{token}", "max.retries": 0}
    )
    client.register_schema("quotas.a-value", Schema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError) as over:
        client.register_schema("quotas.b-value", Schema('"string"', "AVRO"))
    assert (over.value.http_status_code, over.value.error_code) == (429, 429)
    assert "registrations_per_min" in str(over.value)
    with limited.client(token) as http:
        for path in (
            "/subjects/quotas.c-value/versions",
            "/subjects/quotas.c-value/versions/",
            "/subjects/quotas.c-value/%76ersions",
            "/%73ubjects/quotas.c-value/versions",
            "/contexts/.x/subjects/quotas.c-value/versions",
        ):
            answer = http.post(path, json={"schema": '"int"'})
            assert answer.status_code == 429, (path, answer.text)
            assert answer.json().keys() == {"error_code", "message"} and answer.headers["Retry-After"]
        assert "quotas.c-value" not in http.get("/subjects").json()
        assert http.get("/subjects/quotas.a-value/versions/latest").status_code == 200, "reads are free"


def test_postgres_protocol_has_the_same_quotas(limited: Limited) -> None:
    name, token = limited.service()
    dsn = f"host=127.0.0.1 port={limited.settings.pgwire_port} dbname=hub user={name} password={token}"
    with ExitStack() as opened:
        first = opened.enter_context(psycopg.connect(dsn, autocommit=True))
        assert first.execute("SELECT n FROM plant LIMIT 1").fetchone() is not None
        with pytest.raises(psycopg.Error, match="queries_per_s is used up: 0.01 queries") as rate:
            first.execute("SELECT n FROM plant LIMIT 1")
        assert rate.value.sqlstate == "53400" and "#data-platform" in str(rate.value)
        for _ in range(2):
            opened.enter_context(psycopg.connect(dsn, autocommit=True))
        with pytest.raises(psycopg.OperationalError, match="connections is used up: 3 connections at once"):
            psycopg.connect(dsn)
    wait_until(lambda: connects(dsn), 30.0)
    with psycopg.connect(dsn, autocommit=True) as again, pytest.raises(psycopg.Error) as rate:
        again.execute("SELECT n FROM plant LIMIT 1")
    assert rate.value.sqlstate == "53400", "a new connection brings no new limit"


def connects(dsn: str) -> bool:
    try:
        psycopg.connect(dsn).close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_push_query_of_postgres_protocol_gives_its_subscription_back(limited: Limited) -> None:
    name, token = limited.service()
    dsn = f"host=127.0.0.1 port={limited.settings.pgwire_port} dbname=hub user={name} password={token}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(3):
            ended = connection.execute("SELECT n FROM plant EMIT CHANGES FROM BEGINNING LIMIT 1")
            assert len(ended.fetchall()) == 1


def test_seconds_of_sql_are_charged_when_they_are_known(limited: Limited) -> None:
    with limited.client("hubt_slow") as http:
        ask = {"sql": "SELECT count(*) AS n FROM plant a CROSS JOIN plant b"}
        assert http.post("/query", json=ask).status_code == 200
        refused(http.post("/query", json=ask), "sql_seconds_per_min", "token slow")


def test_a_tenant_counts_all_its_callers_and_its_views(limited: Limited) -> None:
    with (
        limited.client("hubt_free1") as one,
        limited.client("hubt_free2") as two,
    ):
        assert one.post("/topics/tenant.events.a/events", json={"a": 1}).status_code == 200
        refused(
            two.post("/topics/tenant.events.b/events", json={"a": 1}),
            *("events_in_per_s", "tenant tenant.events", "quotas.tenants.tenant.events.events_in_per_s"),
        )
        assert two.post("/topics/quotas.in/events", json={"a": 1}).status_code == 200
        assert two.get("/views/customer?limit=1").status_code == 200
        for sql in (
            "SELECT * FROM customer",
            "SELECT * FROM CUSTOMER",
            "WITH x AS (SELECT * FROM customer) SELECT * FROM x",
            "SELECT * FROM plant JOIN customer ON plant.key = customer.plant",
            'SELECT * FROM "tenant.reads.a"',
        ):
            refused(one.post("/query", json={"sql": sql}), "queries_per_s", "tenant tenant.reads")
        assert one.post("/query", json={"sql": "SELECT n FROM plant LIMIT 1"}).status_code == 200


def test_a_person_gets_no_new_limit_by_new_tokens_or_sessions(limited: Limited) -> None:
    ana = httpx2.Client(base_url=limited.url, auth=("ana", PASSWORD), timeout=60)
    with ana:
        made = [ana.post("/api/access/tokens", json={"name": f"t{number}"}).json() for number in range(3)]
        assert ana.get("/views/plant/p0").status_code in (200, 404)
        refused(ana.get("/views/plant/p0"), "queries_per_s", "user ana")
        for each in made:
            bearer = {"Authorization": f"Bearer {each['token']}"}
            answer = httpx2.get(f"{limited.url}/views/plant/p0", headers=bearer, timeout=60)
            refused(answer, "queries_per_s", "user ana")


def test_forged_headers_make_nobody_else_of_an_address(limited: Limited) -> None:
    told = [
        httpx2.get(
            f"{limited.url}/views/plant/p0",
            headers={
                "X-Forwarded-For": f"198.51.100.{number}",
                "X-Real-IP": f"198.51.100.{number}",
                "Forwarded": f"for=198.51.100.{number}",
                "X-Forwarded-User": f"user{number}",
                "Idempotency-Key": f"{number}",
            },
            timeout=60,
        )
        for number in range(4)
    ]
    for each in told[1:]:
        refused(each, "queries_per_s", "address 127.0.0.1")


def test_connections_are_requests_that_are_answered_at_once(limited: Limited) -> None:
    name, token = limited.service()
    dsn = f"host=127.0.0.1 port={limited.settings.pgwire_port} dbname=hub user={name} password={token}"
    with ExitStack() as opened:
        for _ in range(3):
            opened.enter_context(psycopg.connect(dsn))
        answer = httpx2.get(f"{limited.url}/topics", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        refused(answer, "connections", f"token {name}")
        assert httpx2.get(f"{limited.url}/health").status_code == 200

    def free() -> bool:
        answer = httpx2.get(f"{limited.url}/topics", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        return answer.status_code == 200

    wait_until(free, 30.0)


def test_connections_of_a_tenant_are_requests_for_its_objects(limited: Limited) -> None:
    with (
        limited.client("hubt_free1") as one,
        limited.client("hubt_free2") as two,
        one.stream("GET", "/api/topics/tenant.open.a/tail") as open_,
    ):
        assert open_.status_code == 200
        refused(two.get("/api/topics/tenant.open.a"), "connections", "tenant tenant.open")
        assert two.get("/api/topics/quotas.in").status_code == 200


def test_usage_shows_use_against_limits_and_refusals(limited: Limited) -> None:
    name, token = limited.service()
    bearer = {"Authorization": f"Bearer {token}"}
    for _ in range(30):
        httpx2.get(f"{limited.url}/views/plant/p0", headers=bearer, timeout=60)
    rows = {(each["kind"], each["name"], each["quota"]): each for each in limited.usage()}
    row = rows["token", name, "queries_per_s"]
    assert (row["limit"], row["last_hour"], row["refused_last_hour"]) == (ONE, 1.0, 29)
    assert rows["tenant", "tenant.reads", "subscriptions"]["limit"] == 1.0
    root = limited.settings.model_copy(update={"token": f"root:{PASSWORD}"})
    shown = call_hub(root, "access", "usage")
    assert shown.returncode == 0 and f"token {name}" in shown.stdout, shown.stdout + shown.stderr
    with httpx2.Client(base_url=limited.url, auth=("root", PASSWORD), timeout=60) as http:
        metrics = http.get("/metrics").text
        assert 'hub_tenant_quota{quota="subscriptions",tenant="tenant.reads"} 1.0' in metrics
        assert 'hub_quota_refused_total{quota="queries_per_s"}' in metrics and name not in metrics

        def entries() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = http.get(f"/api/access/log?by={name}&result=denied").json()[
                "entries"
            ]
            return found

        wait_until(lambda: bool(entries()), 60.0)
        assert len(entries()) <= 2, "each refusal was logged"
    ana = httpx2.get(f"{limited.url}/api/usage", auth=("ana", PASSWORD), timeout=60).json()
    assert {(each["kind"], each["name"]) for each in ana["rows"]} <= {("user", "ana")} and not ana["whole"]


def test_a_changed_file_applies_without_a_restart(limited: Limited) -> None:
    _, token = limited.service()
    with limited.client(token) as http:

        def status() -> int:
            return http.get("/views/plant?limit=1").status_code

        assert status() == 200 and status() == 429
        try:
            limited.write("")
            wait_until(lambda: {status() for _ in range(20)} == {200}, 30.0)
            assert http.get("/api/usage").json()["is_on"] is False
            limited.write("quotas: {defaults: {queries_per_s: -1}}\n")
            log = limited.settings.logs / "server.log"
            wait_until(lambda: "previous access.yaml stays in force" in log.read_text(), 30.0)
            assert status() == 200, "a broken file changes nothing"
        finally:
            limited.write(QUOTAS)
        wait_until(lambda: status() == 429, 30.0)


def test_the_client_waits_for_as_long_as_it_is_told(limited: Limited) -> None:
    """A refusal is not answered at once, so a client that repeats it costs little."""
    _, token = limited.service()
    limited.write(QUOTAS.replace("refusal_delay_ms: 20", "refusal_delay_ms: 400"))
    try:
        with limited.client(token) as http:
            http.get("/views/plant?limit=1")

            def delayed() -> bool:
                began = time.monotonic()
                assert http.get("/views/plant?limit=1").status_code == 429
                return time.monotonic() - began >= 0.4

            wait_until(delayed, 30.0)
    finally:
        limited.write(QUOTAS)


# ---- quotas of Kafka itself


@pytest.mark.timeout(400)
def test_limits_of_bytes_are_planned_applied_and_checked_at_a_real_kafka(tmp_path: Path) -> None:
    with own_node(tmp_path / "node", SecuredNode) as node:
        cluster = KafkaCluster(node.bootstrap)
        cluster.create_topic("shop.orders", partitions=1, config={}, replication_factor=1)
        for user in ("checkout", "bob", "former"):
            node.make_users(user, PASSWORD)
        file = tmp_path / "access.yaml"

        def write(quotas: str) -> None:
            file.write_text(
                "users:\n  checkout: {grants: [{role: write, topics: [shop.orders]}]}\n"
                f"  bob: {{grants: [{{role: read, topics: [shop.orders]}}]}}\n{quotas}"
            )

        settings = Settings(
            project=tmp_path, home=tmp_path / "home", embedded_kafka=False, bootstrap=node.bootstrap
        )
        cluster.alter_user_quotas([ClientQuota("former", "producer_byte_rate", 5.0)], [])
        write("")
        assert call_hub(settings, "access", "apply").returncode == 0
        wait_until(lambda: call_hub(settings, "access", "drift").returncode == 0, 60.0)
        assert cluster.user_quotas() == (ClientQuota("former", "producer_byte_rate", 5.0),)

        write(
            "quotas:\n  users: {checkout: {bytes_in_per_s: 20000, kafka_request_percentage: 80}}\n"
            "  defaults: {kafka_bytes_out_per_s: 1000000}\n"
        )
        planned = call_hub(settings, "access", "plan")
        assert planned.returncode == 2 and "producer_byte_rate=20000" in planned.stdout, planned.stdout
        applied = call_hub(settings, "access", "apply")
        assert applied.returncode == 0 and "set 4" in applied.stderr, applied.stderr
        wanted = {
            ClientQuota("checkout", "producer_byte_rate", 20_000.0),
            ClientQuota("checkout", "request_percentage", 80.0),
            ClientQuota("checkout", "consumer_byte_rate", 1_000_000.0),
            ClientQuota("bob", "consumer_byte_rate", 1_000_000.0),
        }
        wait_until(lambda: {*cluster.user_quotas()} >= wanted, 30.0)
        drifted = call_hub(settings, "access", "drift")
        assert drifted.returncode == 2 and "User:former" in drifted.stdout
        assert call_hub(settings, "access", "plan").returncode == 0, "the second plan is empty"

        assert throttled_ms(node) > 0, "Kafka did not delay the user"

        write("quotas: {}\n")
        assert call_hub(settings, "access", "apply", "--prune", "former").returncode == 0
        wait_until(lambda: cluster.user_quotas() == (), 30.0)


def throttled_ms(node: SecuredNode) -> int:
    """Return for how long Kafka delayed a direct producer of 400 kB at most."""
    seen = [0]

    def on_throttle(event: Any) -> None:
        seen[0] = max(seen[0], int(event.throttle_time * 1000))

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{node.both_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(node.folder / "broker.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "checkout",
            "sasl.password": PASSWORD,
            "throttle_cb": on_throttle,
            "linger.ms": 0,
        }
    )
    deadline = time.monotonic() + 60.0
    while not seen[0] and time.monotonic() < deadline:
        producer.produce("shop.orders", b"x" * 40_000, b"k")
        producer.poll(0.2)
    return seen[0]
