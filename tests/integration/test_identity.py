"""Identity of callers with a real server: tokens of an OpenID Connect provider by Confluent's client, key
rotation, a provider that is away; grants at Kafka's own port.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from certificates import certificate
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from kafka_nodes import own_node
from oidc_provider import AUDIENCE, OidcProvider, oidc_provider
from pipeline import wait_until
from ports import free_ports
from processes import Server, call_hub
from secured_node import SecuredNode

from hub.access.access_yaml import load_access
from hub.access.kafka_grants import OPERATIONS
from hub.access.live_config import AccessRules
from hub.access.oidc.key_refresh import UNKNOWN_EVERY_S
from hub.caller import Kind
from hub.caller import Resource as Topic
from hub.config import Settings
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.record import NewRecord
from hub.security import ServerTls

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "long"}]})
CLOUD = {"bearer.auth.logical.cluster": "hub", "bearer.auth.identity.pool.id": "hub"}


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as made:
        yield made


@pytest.fixture(scope="module")
def server(
    settings: Settings, kafka: object, provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("identity")
    (folder / "access.yaml").write_text(
        f"groups:\n  shop: [{{role: write, topics: [shop.**]}}]\n"
        f"users:\n  checkout: {{groups: [shop]}}\n"
        f"oidc: {{issuer: '{provider.issuer}', audience: {AUDIENCE}}}\n"
    )
    own = settings.model_copy(
        update={
            "project": folder,
            "home": folder / "home",
            "http_port": free_ports(1)[0],
            "registry_url": None,
            "store_url": None,
        }
    )
    made = Server(own)
    try:
        made.start()
        yield made
    finally:
        made.stop(10.0)


def confluent(server: Server, **told: str) -> SchemaRegistryClient:
    said = {name.replace("_", "."): value for name, value in told.items()}
    return SchemaRegistryClient({"url": server.settings.url, "max.retries": 0, **CLOUD, **said})


def test_confluents_client_signs_in_with_tokens_of_the_provider(
    server: Server, provider: OidcProvider
) -> None:
    static = confluent(
        server, bearer_auth_credentials_source="STATIC_TOKEN", bearer_auth_token=provider.token()
    )
    by_itself = confluent(
        server,
        bearer_auth_credentials_source="OAUTHBEARER",
        bearer_auth_issuer_endpoint_url=f"{provider.issuer}/token",
        bearer_auth_client_id="checkout",
        bearer_auth_client_secret="secret",
        bearer_auth_scope="hub",
    )
    subject = f"shop.orders{uuid.uuid4().hex[:6]}-value"
    assert static.register_schema(subject, Schema(ORDER, "AVRO")) == by_itself.register_schema(
        subject, Schema(ORDER, "AVRO")
    )
    with pytest.raises(SchemaRegistryError) as refused:
        static.register_schema("hr.salaries-value", Schema(ORDER, "AVRO"))
    assert refused.value.http_status_code == 403
    wrong = confluent(
        server, bearer_auth_credentials_source="STATIC_TOKEN", bearer_auth_token=provider.token(aud="other")
    )
    with pytest.raises(SchemaRegistryError, match="another audience") as refused:
        wrong.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 40101)


@pytest.mark.timeout(400)
def test_rotated_keys_are_found_and_cached_ones_outlive_an_outage(
    server: Server, provider: OidcProvider
) -> None:
    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx2.get(f"{server.settings.url}/subjects", headers=headers, timeout=60.0).status_code

    before = provider.token()
    assert status(before) == 200
    provider.away = True
    assert status(before) == 200
    provider.away = False
    provider.rotate()
    wait_until(lambda: status(provider.token()) == 200, UNKNOWN_EVERY_S + 30.0, server.last_words)
    assert status(before) == 200  # its key is still published


# ---- the same grants at Kafka's own port

PASSWORD, TREE = "right", ("shop.orders", "shop.orders.dlq", "shop.pay", "hr.salaries")
USERS = {
    "ana": "[{role: read, topics: [shop.**]}]",
    "checkout": "[{role: write, topics: [shop.orders]}]",
    "bob": "[{role: admin, topics: ['**']}]",
    "eve": "[]",
}


@pytest.mark.timeout(400)
def test_a_direct_client_gets_the_answer_of_the_server(tmp_path: Path) -> None:
    """Each user, topic and action at a real Kafka with an authorizer,
    by ``hub access plan`` and ``apply``."""
    with own_node(tmp_path / "node", SecuredNode) as node:
        cluster = KafkaCluster(node.bootstrap)
        for topic in TREE:
            cluster.create_topic(topic, partitions=1, config={}, replication_factor=1)
        for user in USERS:
            node.make_users(user, PASSWORD)
        users = "\n".join(f"  {user}: {{grants: {grants}}}" for user, grants in USERS.items())
        (tmp_path / "access.yaml").write_text(f"users:\n{users}\n")
        settings = Settings(
            project=tmp_path, home=tmp_path / "home", embedded_kafka=False, bootstrap=node.bootstrap
        )
        planned = call_hub(settings, "access", "plan")
        assert planned.returncode == 2 and "topic shop.*" in planned.stdout, planned.stderr
        assert call_hub(settings, "access", "apply").returncode == 0
        wait_until(lambda: call_hub(settings, "access", "drift").returncode == 0, 60.0)

        rules = AccessRules.of(load_access(tmp_path / "access.yaml"))
        for user in USERS:
            direct = KafkaCluster(f"127.0.0.1:{node.both_port}", 15.0, sasl(node, user))
            rights = direct.rights_on()
            for action, operations in OPERATIONS.items():
                for topic in TREE:
                    here = rules.decide(rules.user(user), action, Topic(Kind.topic, topic)).allowed
                    for operation in operations:
                        there = operation in rights.get(topic, frozenset())
                        assert there == here, (user, operation, topic, rights)
        writer = KafkaCluster(f"127.0.0.1:{node.both_port}", 15.0, sasl(node, "checkout")).writer()
        writer.append([NewRecord("shop.orders", b"k", b"v")])
        with pytest.raises(HubError):
            writer.append([NewRecord("shop.pay", b"k", b"v")])
        writer.close()

        (tmp_path / "access.yaml").write_text("users:\n  ana: {grants: [{role: read, topics: [shop.pay]}]}\n")
        drifted = call_hub(settings, "access", "drift")
        assert drifted.returncode == 2 and "not in access.yaml" in drifted.stdout
        done = call_hub(settings, "access", "apply", "--prune", "bob", "--prune", "checkout")
        assert done.returncode == 0, done.stderr
        assert {each.principal for each in cluster.all_rules() or ()} == {"User:ana"}


def sasl(node: SecuredNode, user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(node.folder / "broker.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


# ---- a port with TLS


@pytest.mark.timeout(300)
def test_confluents_client_signs_in_with_a_certificate(
    settings: Settings, kafka: object, tmp_path: Path
) -> None:
    for name in ("hub", "checkout"):
        certificate(tmp_path, name)
    (tmp_path / "access.yaml").write_text(
        "users: {checkout: {certificates: [CN=checkout], grants: [{role: write, topics: [shop.**]}]}}\n"
    )
    tls = ServerTls(
        certificate=Path("hub.pem"),
        key=Path("hub.key"),
        client_ca=Path("checkout.pem"),
        host="127.0.0.1",
        port=free_ports(1)[0],
    )
    own = settings.model_copy(
        update={
            "project": tmp_path,
            "home": tmp_path / "home",
            "http_port": free_ports(1)[0],
            "https": tls,
            "registry_url": None,
            "store_url": None,
        }
    )
    server = Server(own)
    try:
        server.start()
        said = {
            "url": f"https://127.0.0.1:{tls.port}",
            "ssl.ca.location": str(tmp_path / "hub.pem"),
            "max.retries": 0,
        }
        own_files = {
            "ssl.certificate.location": str(tmp_path / "checkout.pem"),
            "ssl.key.location": str(tmp_path / "checkout.key"),
        }
        client = SchemaRegistryClient({**said, **own_files})
        wait_until(lambda: answers(client), 60.0, server.last_words)
        assert client.register_schema(f"shop.tls{uuid.uuid4().hex[:6]}-value", Schema(ORDER, "AVRO")) > 0
        with pytest.raises(SchemaRegistryError) as refused:
            client.register_schema("hr.tls-value", Schema(ORDER, "AVRO"))
        assert refused.value.http_status_code == 403
        with pytest.raises(SchemaRegistryError) as refused, SchemaRegistryClient(said) as nobody:
            nobody.get_subjects()
        assert refused.value.http_status_code == 401
        assert httpx2.get(f"{own.url}/subjects", timeout=60.0).status_code == 401
        client.__exit__(None, None, None)
    finally:
        server.stop(10.0)
    assert server.process.returncode is not None and "Traceback" not in server.last_words()


def answers(client: SchemaRegistryClient) -> bool:
    """Return whether the second port listens; it begins a moment after the first one."""
    try:
        client.get_subjects()
    except httpx2.HTTPError:
        return False
    return True
