"""Requests for access at a real Kafka with an authorizer: asked, approved, killed, in force, ended by itself
over HTTP and in Kafka's access rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kafka_nodes import own_node
from pipeline import wait_until
from ports import free_ports
from processes import Server, call_hub
from secured_node import SecuredNode

from hub.access.access_yaml import load_access
from hub.access.secrets import hash_of_password, hash_of_token
from hub.access_requests.log import request_log
from hub.config import Settings
from hub.kafka import KafkaCluster

USERS = {"ana": "[]", "olga": "[team]", "ada": "[admins]"}
GRANT_S = 40.0


def project(folder: Path) -> None:
    users = "\n".join(
        f'  {name}: {{password: "{hash_of_password(name * 4, b"s" * 16)}", groups: {groups}}}  # {name}'
        for name, groups in USERS.items()
    )
    (folder / "access.yaml").write_text(
        "groups:\n  team: []\n"
        '  admins: [{role: admin, topics: ["**"], views: ["**"], hub: true}]\n'
        f'users:\n{users}\ntokens:\n  ci: {{token: "{hash_of_token("hubt_ci")}"}}\n'
    )
    (folder / "topics.yaml").write_text(
        "topics:\n  shop:\n    owner: team  # the shop\n    topics: {orders: {}}\n"
    )


@pytest.mark.timeout(400)
def test_a_requested_grant_survives_a_kill_and_ends_by_itself(tmp_path: Path) -> None:
    with own_node(tmp_path / "node", SecuredNode) as node:
        cluster = KafkaCluster(node.bootstrap)
        cluster.create_topic("shop.orders", partitions=1, config={}, replication_factor=1)
        project(tmp_path)
        settings = Settings(
            project=tmp_path,
            home=tmp_path / "home",
            embedded_kafka=False,
            bootstrap=node.bootstrap,
            http_port=free_ports(1)[0],
        )
        server = Server(settings)
        try:
            server.start()
            steps(settings, server, cluster, tmp_path)
        finally:
            server.stop(10.0)


def steps(settings: Settings, server: Server, cluster: KafkaCluster, folder: Path) -> None:
    def call(user: str, method: str, path: str, **body: Any) -> httpx2.Response:
        return httpx2.request(
            method,
            f"{settings.url}{path}",
            auth=(user, user * 4),
            json=body or None,
            headers={"accept": "application/json"},
            timeout=60.0,
        )

    def reads() -> int:
        return call("ana", "GET", "/api/topics/shop.orders/messages").status_code

    def rules_of_ana() -> set[str]:
        found = cluster.all_rules()
        assert found is not None
        return {each.operation for each in found if each.principal == "User:ana" and each.resource == "TOPIC"}

    def status() -> str:
        return request_log(cluster, 1).all()[id].status

    refused = call("ana", "GET", "/api/topics/shop.orders/messages")
    assert refused.status_code == 403 and refused.json()["ask"] == "read shop.orders"
    assert "hub access request read shop.orders" in refused.json()["hint"]
    page = httpx2.get(
        f"{settings.url}/topics/shop.orders/settings",
        auth=("ana", "ana" * 4),
        headers={"accept": "text/html"},
        timeout=60.0,
    )
    assert page.status_code == 403 and "/access-requests?what=read&amp;object=shop.orders" in page.text

    asked = {"role": "read", "topic": "shop.orders", "days": GRANT_S / 86_400, "reason": "report"}
    made = call("ana", "POST", "/api/access/requests", **asked)
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    assert call("ana", "POST", f"/api/access/requests/{id}/approve", reason="").status_code == 403
    approved = call("olga", "POST", f"/api/access/requests/{id}/approve", reason="fine")
    assert approved.status_code == 200, approved.text
    server.kill()  # perhaps before the effect, perhaps within it
    assert status() in ("approved", "done")
    server.start()
    wait_until(lambda: reads() == 200, 30.0, server.last_words)
    wait_until(lambda: "READ" in rules_of_ana(), 30.0, server.last_words)
    wait_until(lambda: status() == "done", 30.0, server.last_words)
    text = (folder / "access.yaml").read_text()
    assert "# ana" in text and len(load_access(folder / "access.yaml").users["ana"].grants) == 1
    planned = call_hub(settings, "access", "plan", "-o", "json")
    assert "User:ada" in planned.stdout and "User:ana" not in planned.stdout  # the server made hers

    other_ways(settings, call)
    wait_until(lambda: reads() == 403, GRANT_S + 10.0, server.last_words)
    wait_until(lambda: not rules_of_ana(), 30.0, server.last_words)
    wait_until(lambda: status() == "ended", 30.0, server.last_words)
    grants = load_access(folder / "access.yaml").users["ana"].grants
    assert len(grants) == 1  # the time alone ended it
    found = call_hub(settings, "access", "audit", "ls", "--action", "access.request", "-o", "json")
    noted = [each for each in json.loads(found.stdout) if each["name"] == id]
    by = {(each["who"], each["detail"].get("status", "")) for each in noted}
    assert {("_hub", "done"), ("_hub", "ended")} <= by and "olga" in {who for who, _ in by}, by
    assert any(each["who"] == "ana" and each["result"] in ("denied", "failed") for each in noted), noted


def other_ways(settings: Settings, call: Any) -> None:
    """A new topic, and a refusal by the command line, while the grant is in force."""
    asked = {"topic": "shop.returns", "partitions": "2", "reason": "returns"}
    made = call("ana", "POST", "/api/access/requests", **asked)
    assert made.status_code == 201, made.text
    id = made.json()["id"]
    assert call("olga", "POST", f"/api/access/requests/{id}/approve", reason="ok").status_code == 200
    wait_until(lambda: call("ada", "GET", f"/api/access/requests/{id}").json()["status"] == "done", 60.0)
    text = (settings.project / "topics.yaml").read_text()
    assert "returns" in text and "# the shop" in text
    wait_until(lambda: call("ada", "GET", "/api/topics/shop.returns").status_code == 200, 60.0)
    for_ci = call_hub(
        settings,
        *("access", "request", "write", "shop.**", "--for", "token:ci", "--reason", "load", "-o", "json"),
    )
    id = json.loads(for_ci.stdout)["id"]
    own = call_hub(settings, "access", "requests", "approve", id)
    assert own.returncode == 1 and "somebody else answers" in own.stderr
    refused = call_hub(settings, "access", "requests", "refuse", id, "--reason", "use the gateway")
    assert refused.returncode == 0, refused.stderr
    listed = call_hub(settings, "access", "requests", "ls", "--all", "-o", "json")
    assert [each["status"] for each in json.loads(listed.stdout) if each["id"] == id] == ["refused"]
