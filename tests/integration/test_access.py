"""A real server with access.yaml over a real Kafka: Confluent's clients with credentials, lists that leak
nothing, a view over the protected registry, and streams that end with their grant."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pipeline import records_of, wait_until
from ports import free_ports
from processes import HubProcess, Server, call_hub, run_hub

from hub.access.secrets import hash_of_password, hash_of_token
from hub.access.throttle import MOST_FAILURES
from hub.api.route_rules import ROUTES
from hub.client import Hub
from hub.config import Settings
from hub.errors import CallerError
from hub.kafka import KafkaCluster
from hub.record import NewRecord
from hub.schema_registry.client.registry_client import RegistryClient
from hub.schema_registry.codecs.wire_format import encode, parsed
from hub.topics.webhooks.signatures import Verification, signed_headers

PASSWORD, TOKEN, TILL = "correct horse", "hubt_of-checkout", "hubt_of-till"
HOOK_SECRET = "It's a Secret to Everybody"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "total", "type": "long"}],
}


@dataclass
class Guarded:
    """A hub of its own: ``mark`` is in all its names. ``secret``: a topic that ana may not see."""

    settings: Settings
    url: str
    mark: str

    @property
    def orders(self) -> str:
        return f"{self.mark}.shop.orders"

    @property
    def secret(self) -> str:
        return f"{self.mark}.hr.salaries"

    @property
    def pushes(self) -> str:
        return f"{self.mark}.dev.pushes"

    @property
    def view(self) -> str:
        return f"{self.mark}_by_customer"

    def file(self, ana: str = "**") -> str:
        return f"""\
groups:
  shop: [{{role: read, topics: ["{self.mark}.shop.{ana}"], views: ["{self.view}"]}}]
users:
  ana: {{password: "{hash_of_password(PASSWORD, b"0" * 16)}", groups: [shop]}}
  root: {{password: "{hash_of_password(PASSWORD, b"1" * 16)}", grants: [{{role: admin, topics: ["**"], views: ["**"], hub: true}}]}}
tokens:
  checkout: {{token: "{hash_of_token(TOKEN)}", grants: [{{role: write, topics: ["{self.orders}"]}}]}}
  till: {{token: "{hash_of_token(TILL)}", grants: [{{role: write, topics: ["{self.mark}.shop.**"]}}]}}
"""  # noqa: E501

    def grant(self, text: str) -> None:
        path = self.settings.project / "access.yaml"
        draft = path.with_suffix(".draft")
        draft.write_text(text)
        draft.rename(path)


@pytest.fixture(scope="module")
def guarded(settings: Settings, kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    (port,) = free_ports(1)
    own = settings.model_copy(
        update={
            "project": folder,
            "home": folder / "home",
            "http_port": port,
            "registry_url": None,
            "store_url": None,
        }
    )
    made = Guarded(own, f"http://{own.http_host}:{port}", f"acc{uuid.uuid4().hex[:6]}")
    (folder / "views").mkdir()
    (folder / "queries").mkdir()
    (folder / "queries" / "pay.sql").write_text(f'SELECT * FROM "{made.secret}"\n')
    (folder / "topics.yaml").write_text(
        f"topics:\n  {made.mark}:\n    topics:\n"
        "      shop: {topics: {orders: {key: customer, owner: shop}}}\n"
        "      hr: {topics: {salaries: {key: customer, owner: hr}}}\n"
        "      dev: {topics: {pushes: {key: repository.name}}}\n"
    )
    made.grant(made.file())
    (folder / "webhooks.yaml").write_text(
        f"webhooks:\n  github:\n    topic: {made.pushes}\n    fields: {{event: X-GitHub-Event}}\n"
        '    verify: {scheme: github, secrets: ["${GITHUB_SECRET}"]}\n'
    )
    cluster = KafkaCluster(own.bootstrap, 15.0)
    for topic in (made.orders, made.secret, made.pushes):
        cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
    server = Server(own, environment={"GITHUB_SECRET": HOOK_SECRET})
    try:
        server.start()
        yield made
    finally:
        server.stop(10.0)


def confluent(guarded: Guarded, who: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": guarded.url, "basic.auth.user.info": who})


def test_confluents_clients_work_with_their_credentials_and_only_with_them(guarded: Guarded) -> None:
    context = SerializationContext(guarded.orders, MessageField.VALUE)
    event = {"customer": "C-1", "total": 5}
    producer, reader = confluent(guarded, f"checkout:{TOKEN}"), confluent(guarded, f"ana:{PASSWORD}")
    written = AvroSerializer(producer, json.dumps(ORDER))(event, context)
    assert AvroDeserializer(reader)(written, context) == event
    assert reader.get_subjects() == [f"{guarded.orders}-value"]

    other = SerializationContext(guarded.secret, MessageField.VALUE)
    for client, where in ((producer, other), (reader, context)):
        changed = {**ORDER, "doc": f"for {where.topic}"}
        with pytest.raises(SchemaRegistryError) as refused:
            AvroSerializer(client, json.dumps(changed))(event, where)
        assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    for who in ("ana:wrong", "nobody:x"):
        with pytest.raises(SchemaRegistryError) as refused:
            confluent(guarded, who).get_subjects()
        assert refused.value.http_status_code == 401
    with pytest.raises(SchemaRegistryError) as refused:
        SchemaRegistryClient({"url": guarded.url}).get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


def test_a_schema_is_read_by_its_id_by_who_sees_a_subject_that_has_it(guarded: Guarded) -> None:
    root = RegistryClient(guarded.url.replace("//", f"//root:{PASSWORD}@".replace(" ", "%20")))
    ana = RegistryClient(guarded.url.replace("//", f"//ana:{PASSWORD}@".replace(" ", "%20")))
    hidden = root.register(f"{guarded.secret}-value", json.dumps({**ORDER, "name": "Salary"}))
    hidden_from(guarded, hidden)
    both = root.register(f"{guarded.secret}-value", json.dumps({**ORDER, "name": "Salary", "doc": "x"}))
    assert both != hidden
    assert root.register(f"{guarded.orders}-key", json.dumps({**ORDER, "name": "Salary", "doc": "x"})) == both
    assert "Salary" in ana.schema(both)
    assert ana.subjects_of(both) == {f"{guarded.orders}-key"}
    # The reported use is one that ana may see, whichever subject she asks for.
    for asked in ("", f"?subject={guarded.secret}-value", f"?subject={guarded.orders}-key"):
        told = httpx2.get(f"{guarded.url}/schemas/ids/{both}{asked}", auth=("ana", PASSWORD))
        assert told.status_code == 200 and guarded.secret not in told.text
    # Not by an alias, not by another context, not by a reference.
    aliased = f"{guarded.orders}.alias-value"
    root.request("PUT", f"/config/{aliased}", {"alias": f"{guarded.secret}-value"})
    with pytest.raises(CallerError, match="may not describe"):
        ana.latest(aliased)
    refers = {
        "schema": '{"type":"record","name":"R","fields":[]}',
        "references": [{"name": "S", "subject": f"{guarded.secret}-value", "version": 1}],
    }
    with httpx2.Client(base_url=guarded.url, auth=("checkout", TOKEN)) as checkout:
        answer = checkout.post(f"/subjects/{guarded.orders}-value/versions", json=refers)
    assert answer.status_code == 403 and guarded.secret in answer.text


def test_a_webhook_writes_what_its_sender_signed_once(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No credentials of the hub: the signature is the credential, and only for its own topic."""
    root = RegistryClient(guarded.url.replace("//", f"//root:{PASSWORD}@".replace(" ", "%20")))
    name = {"type": "object", "properties": {"name": {"type": "string"}}}
    push = {
        "type": "object",
        "properties": {"ref": {"type": "string"}, "event": {"type": "string"}, "repository": name},
    }
    root.register(f"{guarded.pushes}-value", json.dumps(push), "JSON")
    how = Verification("github", (HOOK_SECRET,))

    def sent(
        event: object, delivery: str, path: str = "github", secret: str = HOOK_SECRET
    ) -> httpx2.Response:
        body = json.dumps(event).encode()
        headers = signed_headers(replace(how, secrets=(secret,)), body, time.time(), delivery)
        headers |= {"X-GitHub-Event": "push", "Content-Type": "application/json"}
        return httpx2.post(f"{guarded.url}/hooks/{path}", content=body, headers=headers, timeout=60)

    event = {"ref": "main", "repository": {"name": "hub"}}
    first, again = sent(event, "d-1"), sent(event, "d-1")
    changed = sent({**event, "ref": "other"}, "d-1")
    assert [first.status_code, again.status_code, changed.status_code] == [200, 200, 200], changed.text
    assert again.json()["offset"] == first.json()["offset"] and changed.json() == {"repeated": True}
    refused = [
        sent(event, "d-2", secret="guessed"),
        sent({**event, "ref": 7}, "d-3"),
        sent(event, "d-4", path="gitlab"),
    ]
    assert [each.status_code for each in refused] == [401, 422, 404], [each.text for each in refused]
    assert refused[0].json()["error_code"] == "HUB-1328" and HOOK_SECRET not in refused[0].text

    file = tmp_path / "push.json"
    file.write_text(json.dumps({"ref": "by-hand", "repository": {"name": "hub"}}))
    missing = call_hub(guarded.settings, "webhook", "ls")
    assert missing.returncode == 1 and "GITHUB_SECRET" in missing.stdout
    monkeypatch.setenv("GITHUB_SECRET", HOOK_SECRET)
    assert call_hub(guarded.settings, "webhook", "ls").returncode == 0
    done = call_hub(guarded.settings, "webhook", "send", "github", str(file), "-H", "X-GitHub-Event: push")
    assert done.returncode == 0, done.stdout + done.stderr

    records = records_of(KafkaCluster(guarded.settings.bootstrap, 15.0), guarded.pushes)
    values = [json.loads((record.value or b"")[5:]) for record in records]
    assert values == [{**event, "event": "push"}, {**event, "ref": "by-hand", "event": "push"}]
    assert {record.key for record in records} == {b"hub"}
    metrics = httpx2.get(f"{guarded.url}/metrics", auth=("root", PASSWORD)).text
    for outcome, count in (("written", 2), ("repeated", 2), ("refused", 1), ("not signed", 1)):
        assert f'hub_webhook_requests_total{{outcome="{outcome}",webhook="github"}} {count}.0' in metrics


def test_whoever_writes_another_forwarded_address_each_time_is_one_address(guarded: Guarded) -> None:
    """From this machine too: only proxies that the settings name are believed."""
    told = []
    with httpx2.Client(base_url=guarded.url, timeout=60) as http:
        for number in range(MOST_FAILURES + 2):
            # Another user each time: what is remembered of one password must not be what answers.
            headers = {"X-Forwarded-For": f"198.51.100.{number}"}
            told.append(http.get("/topics", auth=("ana", f"guess {number}"), headers=headers).status_code)
            wait = http.get("/topics", auth=("ana", f"guess {number}"), headers=headers).headers.get(
                "Retry-After"
            )
    assert told[0] == 401 and told[-1] == 429 and wait is not None
    time.sleep(int(wait) + 1)  # those who come after this test are of this address, too


def hidden_from(guarded: Guarded, hidden: int) -> None:
    """To ana the id is one that does not exist: the same answer, byte by byte,
    of every route that takes an id."""
    with (
        httpx2.Client(base_url=guarded.url, auth=("root", PASSWORD), timeout=60) as root,
        httpx2.Client(base_url=guarded.url, auth=("ana", PASSWORD), timeout=60) as ana,
    ):
        guid = root.get(f"/schemas/ids/{hidden}").json()["guid"]
        unknown, no_guid = hidden + 900_000, "00000000-0000-4000-8000-000000000000"
        for path in (
            *(
                "/schemas/ids/{}",
                "/schemas/ids/{}?fetchMaxId=true",
                "/schemas/ids/{}?subject=x",
                "/schemas/ids/{}/schema",
            ),
            *(
                "/schemas/ids/{}/subjects",
                "/schemas/ids/{}/subjects?deleted=true",
                "/schemas/ids/{}/versions",
            ),
            *("/schemas/guids/{}", "/schemas/guids/{}/ids"),
        ):
            there, not_there = (guid, no_guid) if "guids" in path else (hidden, unknown)
            assert root.get(path.format(there)).status_code in (200, 404)
            kept, missing = ana.get(path.format(there)), ana.get(path.format(not_there))
            assert kept.status_code == missing.status_code == 404, path
            assert kept.content == missing.content.replace(str(not_there).encode(), str(there).encode()), path
            assert {**kept.headers, "content-length": ""} == {**missing.headers, "content-length": ""} | {
                "date": kept.headers.get("date", "")
            }, path


def test_bytes_with_the_id_of_a_hidden_schema_do_not_show_it(guarded: Guarded) -> None:
    root = RegistryClient(guarded.url.replace("//", f"//root:{PASSWORD}@".replace(" ", "%20")))
    schema = {**ORDER, "name": "Bonus", "fields": [{"name": "bonus_of", "type": "string"}]}
    hidden = root.register(f"{guarded.secret}-key", json.dumps(schema))
    cluster = KafkaCluster(guarded.settings.bootstrap, 15.0)
    writer = cluster.writer(f"{guarded.mark}.writer")
    value = encode(hidden, parsed(schema), {"bonus_of": "marked"})
    writer.append([NewRecord(guarded.orders, b"framed", value, (), 1_700_000_000_000, 0)])
    writer.close()

    def asked(name: str, path: str) -> str:
        answer = httpx2.get(
            f"{guarded.url}{path}", auth=(name, PASSWORD), headers={"Accept": "text/html"}, timeout=60
        )
        return f"{answer.status_code} {answer.text}"

    page = f"/ui/topics/{guarded.orders}/messages"
    wait_until(lambda: "bonus_of" in asked("root", page), 60.0, lambda: asked("root", page)[:2_000])
    told = asked("ana", page)
    assert told.startswith("200") and "framed" in told
    for word in ("bonus_of", "Bonus", guarded.secret):
        assert word not in told
    sql = {"sql": f'SELECT _value FROM "{guarded.orders}"', "events": 1000}
    rows = {
        name: httpx2.post(f"{guarded.url}/query", json=sql, auth=(name, PASSWORD), timeout=60).text
        for name in ("root", "ana")
    }
    assert "bonus_of" in rows["root"] and "bonus_of" not in rows["ana"], rows


PLACES = sorted(template for template, methods in ROUTES.items() if "GET" in methods and "{" not in template)


def test_no_list_tells_of_what_may_not_be_seen(guarded: Guarded) -> None:
    publish(guarded, guarded.secret, {"customer": "C-9", "total": 1_000_000}, root=True)
    told = []
    with (
        httpx2.Client(base_url=guarded.url, auth=("ana", PASSWORD), timeout=60) as ana,
        httpx2.Client(base_url=guarded.url, auth=("root", PASSWORD), timeout=60) as root,
    ):

        def collected() -> bool:
            seen = root.get("/api/overview").text
            return guarded.secret in seen and guarded.orders in seen

        wait_until(collected, 60.0, lambda: root.get("/api/overview").text[:2_000])
        more = ["/v3/clusters/-/topics", f"/search?q={guarded.mark}", "/api/completeness?state=NEVER"]
        for path in [*PLACES, *more]:
            for accept in ("application/json", "text/html"):
                answer = ana.get(path, headers={"Accept": accept})
                assert answer.status_code in (200, 303, 400, 403, 404, 503), (
                    path,
                    answer.status_code,
                    answer.text,
                )
                assert guarded.secret not in answer.text, (path, accept)
                if guarded.secret in root.get(path, headers={"Accept": accept}).text:
                    told.append(path)
        for path in ("/schemas/{}-value", "/topics/{}", "/topics/{}/settings", "/views/{}"):
            answer = ana.get(path.format(guarded.secret), headers={"Accept": "text/html"})
            assert answer.status_code == 403 and "no access to this" in answer.text, (path, answer.text)
    # Where there is something to leave out it is left out, not nothing shown at all.
    assert {"/topics", "/api/topics", "/subjects", "/schemas", "/api/overview", "/queries", "/api/lag"} - {
        *told
    } <= {"/api/lag"}, told
    assert f"/search?q={guarded.mark}" in told and "/v3/clusters/-/topics" in told


def publish(guarded: Guarded, topic: str, event: dict[str, Any], *, root: bool = False) -> Any:
    with Hub(guarded.url, token=f"root:{PASSWORD}" if root else TOKEN) as hub:
        return hub.produce(topic, event, timeout_s=60)


def test_queries_read_what_their_caller_may(guarded: Guarded) -> None:
    with httpx2.Client(base_url=guarded.url, auth=("ana", PASSWORD), timeout=60) as ana:

        def ask(sql: str) -> httpx2.Response:
            return ana.post("/query", json={"sql": sql})

        publish(guarded, guarded.orders, {"customer": "C-1", "total": 7})
        assert ask(f'SELECT total FROM "{guarded.orders}"').status_code == 200
        secret = f'"{guarded.secret}"'
        for sql in (
            f"SELECT * FROM {secret}",
            f'SELECT * FROM "{guarded.orders}" o JOIN {secret} s ON o.customer = s.customer',
            f"SELECT count(*) FROM (SELECT * FROM {secret}) x",
            f"WITH x AS (SELECT * FROM {secret}) SELECT * FROM x",
            f"WITH {secret} AS (SELECT * FROM {secret}) SELECT * FROM {secret}",
            f'SELECT * FROM "{guarded.orders}" WHERE total IN (SELECT total FROM {secret})',
        ):
            answer = ask(sql)
            assert answer.status_code in (400, 403) and "1000000" not in answer.text, (sql, answer.text)
        assert ask(f"SELECT * FROM {secret}").status_code == 403
        near = ask(f'SELECT * FROM "{guarded.secret[:-1]}"')
        assert guarded.secret not in near.text
        assert ana.get("/queries/pay").status_code == 403
        assert ana.get("/queries").json()["queries"] == []


def test_a_name_that_is_almost_a_hidden_one_is_not_answered_with_it(guarded: Guarded) -> None:
    """A grant on a missing topic while another branch has a topic with a similar name."""
    almost = guarded.secret.replace(".hr.", ".shop.")
    with httpx2.Client(base_url=guarded.url, timeout=60) as client:
        ana, till = {"auth": ("ana", PASSWORD)}, {"auth": ("till", TILL)}
        told = [
            client.get(f"/topics/{almost}", **ana),
            client.get(f"/api/topics/{almost}", **ana),
            client.get(f"/api/topics/{almost}/messages", **ana),
            client.get(f"/ui/topics/{almost}/messages", **ana),
            client.get(f"/api/topics/{almost}/settings", **ana),
            client.get(f"/api/topics/{almost}/tail", **ana),
            client.get(f"/dlq/{almost}", **ana),
            client.post(f"/topics/{almost}/events", json={"a": 1}, **till),
            client.post(f"/v3/clusters/-/topics/{almost}/records", json={"value": {"data": 1}}, **till),
            client.post(f"/topics/{almost}/records", json={"key": "k", "value": {}}, **till),
        ]
    for each in told:
        assert "does not exist" in each.text or "has no " in each.text, (each.url, each.text)
        assert guarded.secret not in each.text, (each.url, each.text)


def test_the_command_line_asks_by_the_homes_key_or_by_its_token(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_hub(guarded.settings, "topic", "ls").returncode == 0
    listed = call_hub(guarded.settings, "access", "ls", "-o", "json")
    assert {"ana", "checkout"} <= {row["name"] for row in json.loads(listed.stdout)}
    no = call_hub(guarded.settings, "access", "check", "ana", "write", guarded.orders, "-o", "json")
    assert no.returncode == 1 and "write or admin" in json.loads(no.stdout)[0]["how"]
    yes = call_hub(guarded.settings, "access", "check", "ana", "read", f"subject:{guarded.orders}-value")
    assert yes.returncode == 0 and "group shop has read" in yes.stdout

    def sql(token: str) -> Any:
        own = guarded.settings.model_copy(update={"token": token})
        return call_hub(own, "sql", "-c", f'SELECT count(*) AS n FROM "{guarded.secret}"')

    assert sql(f"root:{PASSWORD}").returncode == 0
    refused = sql(f"ana:{PASSWORD}")
    assert refused.returncode == 1 and "ana may not read" in refused.stderr
    assert "wrong user" in sql("hubt_wrong").stderr


def test_tokens_of_people_are_made_used_and_revoked_by_the_command_line(guarded: Guarded) -> None:
    def hub(who: str, *arguments: str) -> Any:
        return call_hub(guarded.settings.model_copy(update={"token": who}), *arguments)

    def subjects(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{guarded.url}/subjects", headers=headers, timeout=30).status_code

    ana, root = f"ana:{PASSWORD}", f"root:{PASSWORD}"
    for arguments, said in (
        (("ci", "--grant", "read"), "read:shop.**"),
        (("ci", "--expires", "0"), "greater than or equal to 1"),
        (("ci", "--owner", "root"), "made by its owner"),
    ):
        refused = hub(ana, "access", "token", "create", *arguments)
        assert refused.returncode == 1 and said in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr
    assert "wrong user" in hub("ana:wrong", "access", "token", "ls").stderr
    by_key = call_hub(guarded.settings, "access", "token", "create", "ci", "--owner", "nobody")
    assert "is not a user" in by_key.stderr

    made = json.loads(hub(ana, "access", "token", "create", "ci", "--expires", "1", "-o", "json").stdout)
    own = hub(ana, "access", "token", "create", "narrow", "--grant", f"read:{guarded.mark}.none")
    narrow = own.stdout.strip()
    assert "shown this once" in own.stderr and narrow.startswith("hubt_")
    assert subjects(made["token"]) == 200
    # A token makes no tokens, and may no more than its grants say.
    assert hub(made["token"], "access", "token", "create", "more").returncode == 1
    read = f'SELECT count(*) FROM "{guarded.orders}"'
    assert hub(made["token"], "sql", "-c", read).returncode == 0
    assert hub(narrow, "sql", "-c", read).returncode == 1
    listed = json.loads(hub(ana, "access", "token", "ls", "-o", "json").stdout)
    assert {row["name"] for row in listed} == {"ci", "narrow"}
    assert made["token"] not in json.dumps(listed)
    assert {row["owner"] for row in json.loads(hub(root, "access", "token", "ls", "-o", "json").stdout)} == {
        "ana"
    }
    assert hub(ana, "access", "token", "revoke", made["id"]).returncode == 0
    assert subjects(made["token"]) == 401
    again = hub(ana, "access", "token", "revoke", made["id"])
    assert (again.returncode, "there is no token" in again.stderr) == (1, True)


def test_sessions_of_people_are_listed_and_ended_by_the_command_line(guarded: Guarded) -> None:
    def hub(*arguments: str) -> Any:
        return call_hub(
            guarded.settings.model_copy(update={"token": f"root:{PASSWORD}"}), "access", *arguments
        )

    def signed_in(name: str) -> httpx2.Client:
        client = httpx2.Client(base_url=guarded.url, timeout=30)
        form = {"name": name, "password": PASSWORD}
        answer = client.post("/sign-in", data=form, headers={"Origin": guarded.url})
        assert answer.status_code == 303, answer.text
        return client

    def rows() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(hub("session", "ls", "-o", "json").stdout)
        return found

    assert hub("session", "revoke").returncode == 1
    with ExitStack() as opened:
        first, second, other = (
            opened.enter_context(closing(signed_in(name))) for name in ("ana", "ana", "root")
        )
        assert sorted(each["name"] for each in rows()) == ["ana", "ana", "root"]
        assert all("@" not in each["id"] and each["address"] == "127.0.0.1" for each in rows())
        one = next(each["id"] for each in rows() if each["name"] == "ana")
        assert hub("session", "revoke", one).returncode == 0
        assert sorted(each.get("/subjects").status_code for each in (first, second)) == [200, 401]
        assert hub("session", "revoke", "--user", "ana").returncode == 0
        assert [each.get("/subjects").status_code for each in (first, second, other)] == [401, 401, 200]
        assert [each["name"] for each in rows()] == ["root"]
    gone = hub("session", "revoke", one)
    assert (gone.returncode, "Traceback" in gone.stderr) == (1, False)
    assert "ana has no sessions" in hub("session", "revoke", "--user", "ana").stderr


def test_a_view_is_computed_and_applied_and_its_stream_ends_with_its_grant(guarded: Guarded) -> None:
    """The materializer and the applier ask the protected registry by the key of their home."""
    RegistryClient(guarded.url.replace("//", f"//token:{TOKEN}@")).register(
        f"{guarded.orders}-value", json.dumps(ORDER)
    )
    (guarded.settings.project / "views" / f"{guarded.view}.yaml").write_text(
        f"view: {guarded.view}\nsources: {{o: {{topic: {guarded.orders}, key: customer}}}}\n"
        "fields: {last: o.total, spent: sum(o.total)}\n"
    )
    processes = [HubProcess(guarded.settings, command) for command in ("apply-changelogs", "materialize")]
    try:
        for each in processes:
            each.start()
        position = publish(guarded, guarded.orders, {"customer": "C-7", "total": 3})
        with Hub(guarded.url, token=f"ana:{PASSWORD}") as ana:

            def there() -> bool:
                try:
                    return bool(ana.get(guarded.view, "C-7", after=position, timeout_s=5)["spent"] == 3)
                except Exception:  # noqa: BLE001 (whatever it is, it is asked again and its time is bounded)
                    return False

            wait_until(there, 240.0, lambda: "\n".join(each.last_words() for each in processes))
        with Hub(guarded.url, token=TOKEN) as checkout, pytest.raises(CallerError, match="may not read"):
            checkout.get(guarded.view, "C-7")
        with httpx2.Client(base_url=guarded.url, auth=("ana", PASSWORD), timeout=60) as http:
            sql = {"sql": f"SELECT spent FROM {guarded.view} WHERE key = 'C-7'"}
            assert http.post("/query", json=sql).json()["rows"] == [{"spent": 3}]
            cte = f"WITH {guarded.view} AS (SELECT * FROM {guarded.view}) SELECT * FROM {guarded.view}"
            with httpx2.Client(base_url=guarded.url, auth=("checkout", TOKEN), timeout=60) as other:
                for text in (sql["sql"], cte):
                    answer = other.post("/query", json={"sql": text})
                    assert answer.status_code in (400, 403) and "C-7" not in answer.text
            with http.stream("GET", f"/views/{guarded.view}/changes") as stream:
                lines = stream.iter_lines()
                assert any("C-7" in line for line in lines)
                guarded.grant(guarded.file().replace(f', views: ["{guarded.view}"]', ""))
                row = f"/views/{guarded.view}/C-7"
                with httpx2.Client(base_url=guarded.url, auth=("ana", PASSWORD), timeout=60) as other:
                    wait_until(lambda: other.get(row).status_code == 403, 60.0, lambda: "still granted")
                publish(guarded, guarded.orders, {"customer": "C-7", "total": 40})
                assert not any('"spent":43' in line for line in lines)  # it ends
            assert http.get(f"/views/{guarded.view}/C-7").status_code == 403
    finally:
        guarded.grant(guarded.file())
        for each in processes:
            each.stop()
