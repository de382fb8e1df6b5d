"""[edge] A socket to one broker with the TLS and SASL of a cluster's settings, for the few requests that
librdkafka does not know.

``security`` has librdkafka's names, as Connection does; SASL is kafka-python's, in Kafka's own frames
(KIP-43, KIP-152).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka.errors import KafkaError
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from hub.kafka.protocol.primitives import SASL_AUTHENTICATE, SASL_HANDSHAKE, FrameReader, request_header, text

_NO_SASL_HERE = 34  # ILLEGAL_SASL_STATE
CLIENT = b"hub.admin"
_MOST_BYTES = 1 << 20
_MOST_STEPS = 8
_MOST_MECHANISMS = 20


class Pipe(Protocol):
    """The part of a socket's interface that a request and its answer need."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed here
    """Token source of kafka-python's OAUTHBEARER."""

    def __init__(self, give: Callable[[], str]) -> None:
        self._give = give

    def token(self) -> str:
        return self._give()


class MechanismNotOffered(OSError):
    """The broker has other mechanisms."""

    def __init__(self, wanted: str, offered: Sequence[str]) -> None:
        super().__init__(f"it does not offer {wanted}")
        self.wanted, self.offered = wanted, tuple(offered)


class SaslNotExpected(OSError):
    """The listener does not use SASL."""


class SaslUnfinished(OSError):
    """The mechanism wants more steps than any has."""


class AuthenticationFailed(OSError):
    """The name or what proves it is wrong."""


def opened(
    host: str,
    port: int,
    timeout_s: float,
    security: Mapping[str, str] | None = None,
    tokens: Callable[[], str] | None = None,
) -> socket.socket:
    """Open a connection with TLS and SASL as ``security`` configures; each wait ends after ``timeout_s``.
    Raises OSError with the broker's reason.
    """
    security = security or {}
    protocol = security.get("security.protocol", "PLAINTEXT").upper()
    made = socket.create_connection((host, port), timeout_s)
    try:
        if protocol.endswith("SSL"):
            made = secured(made, host, security)
        if protocol.startswith("SASL"):
            let_in(made, host, security, tokens)
    except BaseException:
        made.close()
        raise
    return made


def exchange(connection: Pipe, request: bytes, most_bytes: int) -> bytes:
    """Send a request with its header and return the answer's frame. Raises OSError; ConnectionResetError when
    the broker closes the connection.
    """
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    if not 4 <= size <= most_bytes:
        raise OSError(f"an answer of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: Pipe, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise ConnectionResetError("it hung up")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def secured(plain: socket.socket, host: str, security: Mapping[str, str]) -> socket.socket:
    """Wrap a connection in TLS. Raises OSError."""
    return _context(security).wrap_socket(plain, server_hostname=host)


def tls_context(security: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context of the settings; None if they do not use TLS. Raises OSError."""
    return (
        _context(security) if security.get("security.protocol", "PLAINTEXT").upper().endswith("SSL") else None
    )


def _context(security: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security.get("ssl.ca.location"))
    context.check_hostname = security.get("ssl.endpoint.identification.algorithm") != "none"
    certificate = security.get("ssl.certificate.location")
    if certificate is not None:
        context.load_cert_chain(
            certificate, security.get("ssl.key.location"), security.get("ssl.key.password")
        )
    return context


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A SASL mechanism with its credentials; ``token`` returns an OAuth bearer token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)


def let_in(
    connection: Pipe, host: str, security: Mapping[str, str], tokens: Callable[[], str] | None
) -> None:
    """Authenticate with the SASL of settings. Raises as ``log_in``."""
    mechanism, username = security.get("sasl.mechanism", "PLAIN"), security.get("sasl.username", "")
    log_in(connection, host, SaslLogin(mechanism, username, security.get("sasl.password", ""), tokens))


def log_in(connection: Pipe, host: str, login: SaslLogin) -> int:
    """Authenticate with SASL and return the session's lifetime in milliseconds, 0 for no end (KIP-368).

    Raises OSError, including MechanismNotOffered, SaslNotExpected and AuthenticationFailed; PeerError if
    there is not a token.
    """
    mechanisms_of(connection, login.mechanism)
    try:
        return _authenticated(connection, host, login)
    except KafkaError as error:  # of the mechanism: what the broker proves of itself is wrong
        raise AuthenticationFailed(f"{login.mechanism}: {error}") from None


def mechanisms_of(connection: Pipe, wanted: str) -> list[str]:
    """Negotiate the SASL mechanism ``wanted`` and return the mechanisms that the broker offers. Raises
    OSError, including MechanismNotOffered and SaslNotExpected.
    """
    answer = _send_request(connection, SASL_HANDSHAKE, text(wanted))
    error = answer.take(">h")
    if error == _NO_SASL_HERE:
        raise SaslNotExpected("this port does not offer SASL authentication")
    offered = [answer.text() for _ in range(min(answer.count(), _MOST_MECHANISMS))]
    if error:
        raise MechanismNotOffered(wanted, offered)
    return offered


def _authenticated(connection: Pipe, host: str, login: SaslLogin) -> int:
    mechanism = get_sasl_mechanism(login.mechanism)(
        host=host,
        sasl_mechanism=login.mechanism,
        sasl_plain_username=login.username,
        sasl_plain_password=login.password,
        sasl_oauth_token_provider=None if login.token is None else TokenProvider(login.token),
    )
    lifetime_ms = 0
    for _ in range(_MOST_STEPS):
        if mechanism.is_done():
            break
        proof = mechanism.auth_bytes()
        answer = _send_request(connection, SASL_AUTHENTICATE, struct.pack(">i", len(proof)) + proof)
        error, message = answer.take(">h"), answer.text()
        if error:
            raise AuthenticationFailed(f"it does not let us in: {message or error}")
        mechanism.receive(answer.blob())
        lifetime_ms = answer.take(">q")
    if not mechanism.is_authenticated():
        raise SaslUnfinished(f"{login.mechanism} does not come to an end")
    return lifetime_ms


def _send_request(connection: Pipe, api: int, body: bytes) -> FrameReader:
    """Send a request in version 1, which all brokers since 1.0 understand, and return its answer's body."""
    return FrameReader(exchange(connection, request_header(api, 1, 1, CLIENT) + body, _MOST_BYTES), 4)
