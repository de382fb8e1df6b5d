"""A cluster with every security protocol of Kafka and with access rules,
and an endpoint that issues tokens."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

from certificates import certificate
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pipeline import wait_until
from ports import free_ports

from hub.config import Settings
from hub.embedded import KafkaNode

USER, PASSWORD = "mirror", "right"
Way = Literal["TLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


class SecuredNode(KafkaNode):
    """A node whose open listener is the administrator's; all others authenticate ``User:mirror``, who has
    only the rights it was given.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.tls_port, self.sasl_port, self.both_port = free_ports(3)

    def prepare(self) -> list[str]:
        command = super().prepare()
        certificate(self.folder, "broker")
        certificate(self.folder, USER)
        properties = self.folder / "server.properties"
        lines = [line for line in properties.read_text().splitlines() if "listener" not in line]
        ports = {
            "PLAINTEXT": self.port,
            "SSL": self.tls_port,
            "SASL_PLAINTEXT": self.sasl_port,
            "SASL_SSL": self.both_port,
        }
        open_ = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        lines += [
            f"listeners={open_},CONTROLLER://127.0.0.1:{self.port + 1}",
            f"advertised.listeners={open_}",
            "controller.listener.names=CONTROLLER",
            f"listener.security.protocol.map={','.join(f'{each}:{each}' for each in ports)},CONTROLLER:PLAINTEXT",  # noqa: E501
            "inter.broker.listener.name=PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.folder / 'broker.both'}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.folder / 'mirror.pem'}",
            "listener.name.ssl.ssl.client.auth=required",
            "ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
        ]
        kafka = "org.apache.kafka.common.security"
        oauth = f'{kafka}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        jaas = {
            "plain": f'{kafka}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
            "scram-sha-256": f"{kafka}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{kafka}.scram.ScramLoginModule required;",
            "oauthbearer": oauth,
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            lines += [
                f"listener.name.{listener}.{each}.sasl.jaas.config={said}" for each, said in jaas.items()
            ]
        properties.write_text("\n".join(lines) + "\n")
        return command

    def make_users(self, user: str = USER, password: str = PASSWORD) -> None:
        """The passwords that are kept by the cluster."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
            for waiting in admin.alter_user_scram_credentials([made]).values():
                waiting.result(60)

    def access(self, way: Way, token_url: str) -> dict[str, Any]:
        """Return the cluster's entry in mirrors.yaml for one way to connect."""
        tls = {"ca": str(self.folder / "broker.pem")}
        sasl: dict[str, Any] = {"mechanism": way, "username": USER, "password": "${MIRROR_PASSWORD}"}
        if way == "TLS":
            own = {"certificate": str(self.folder / "mirror.pem"), "key": str(self.folder / "mirror.key")}
            return {"bootstrap": f"127.0.0.1:{self.tls_port}", "tls": tls | own}
        if way == "OAUTHBEARER":
            sasl = {
                "mechanism": way,
                "token_url": token_url,
                "client_id": USER,
                "client_secret": "${MIRROR_PASSWORD}",
                "scope": "kafka",
            }
        if way == "SCRAM-SHA-256":
            return {"bootstrap": f"127.0.0.1:{self.sasl_port}", "sasl": sasl}
        return {"bootstrap": f"127.0.0.1:{self.both_port}", "tls": tls, "sasl": sasl}


Right = tuple[str, str, str, str]
"""Resource type, name (a trailing * matches prefixes), operation, and ALLOW or DENY."""


def _binding(kind: type[Any], right: Right, principal: str) -> Any:
    resource, name, operation, permission = right
    prefixed = name.endswith("*") and len(name) > 1
    return kind(
        ResourceType[resource],
        name.rstrip("*") if prefixed else name,
        ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
        principal,
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )


def give(bootstrap: str, rights: Sequence[Right], principal: str = f"User:{USER}") -> None:
    """Add access rules and wait until the broker applies them; it acknowledges them earlier."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for waiting in admin.create_acls([_binding(AclBinding, each, principal) for each in rights]).values():
        waiting.result(60)
    for each in rights:
        asked = _binding(AclBindingFilter, each, principal)
        wait_until(lambda: bool(admin.describe_acls(asked).result(60)), 60.0)  # noqa: B023 called at once


def take(bootstrap: str, rights: Sequence[Right], principal: str = f"User:{USER}") -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for waiting in admin.delete_acls(
        [_binding(AclBindingFilter, each, principal) for each in rights]
    ).values():
        waiting.result(60)


def base64url(content: bytes) -> str:
    """Encode as tokens do: URL-safe base64 without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Issuer:
    """Signs tokens with a key of its own (RS256), and publishes the public key to brokers (RFC 7517)."""

    def __init__(self, folder: Path) -> None:
        self.key, self.jwks = folder / "issuer.key", folder / "issuer.jwks"
        certificate(folder, "issuer")
        said = self._openssl("rsa", "-in", str(self.key), "-modulus", "-noout").decode()
        modulus = bytes.fromhex(said.strip().removeprefix("Modulus="))
        public = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": "issuer",
            "n": base64url(modulus),
            "e": "AQAB",
        }
        self.jwks.write_text(json.dumps({"keys": [public]}))

    def token(self, claims: dict[str, Any]) -> str:
        parts = ({"alg": "RS256", "kid": "issuer"}, claims)
        signed = ".".join(base64url(json.dumps(each).encode()) for each in parts)
        return f"{signed}.{base64url(self._openssl('dgst', '-sha256', '-sign', str(self.key), given=signed.encode()))}"  # noqa: E501

    def _openssl(self, *command: str, given: bytes = b"") -> bytes:
        return subprocess.run(["openssl", *command], input=given, check=True, capture_output=True).stdout


class SignedNode(SecuredNode):
    """A node that accepts only tokens signed by its ``issuer``, as Java's clients require. It logs refused
    operations.
    """

    def prepare(self) -> list[str]:
        command = super().prepare()
        url = self.issuer.jwks.as_uri()
        handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        at = "listener.name.sasl_ssl.oauthbearer"
        with (self.folder / "server.properties").open("a") as properties:
            properties.write(f"{at}.sasl.server.callback.handler.class={handler}\n")
            properties.write(f"{at}.sasl.oauthbearer.jwks.endpoint.url={url}\n")
            properties.write(f"sasl.oauthbearer.jwks.endpoint.url={url}\n")
        with (self.folder / "log4j2.properties").open("a") as logging:
            logging.write(
                "logger.authorizer.name = kafka.authorizer.logger\nlogger.authorizer.level = info\n"
            )
        return [command[0], f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}", *command[1:]]

    def refused(self, user: str) -> set[str]:
        """Return the operations that the broker denied to the user, in the broker's words."""
        told = re.findall(
            rf"Principal = User:{user} is Denied (.*?) from host.*? on resource = (\S+)", self.log.read_text()
        )
        return {f"{what} {on}" for what, on in told}

    @cached_property
    def issuer(self) -> Issuer:
        self.folder.mkdir(parents=True, exist_ok=True)
        return Issuer(self.folder)


@contextmanager
def tokens(sign: Callable[[dict[str, Any]], str] | None = None) -> Iterator[str]:
    """Yield the URL of an endpoint that issues tokens for the right password, unsigned by default (RFC 7519,
    6).
    """

    def part(body: dict[str, Any]) -> str:
        return base64url(json.dumps(body).encode())

    def unsigned(claims: dict[str, Any]) -> str:
        return f"{part({'alg': 'none'})}.{part(claims)}."

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            right = self.headers.get("authorization") == f"Basic {known}"
            now = int(time.time())
            claims = {"sub": USER, "iat": now, "exp": now + 300, "scope": "kafka"}
            body = {
                "access_token": (sign or unsigned)(claims),
                "token_type": "Bearer",
                "expires_in": 300,
            }
            said = json.dumps(body if right else {"error": "invalid_client"}).encode()
            self.send_response(200 if right else 401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/token"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
