"""[edge] A socket to one broker with the TLS and SASL of a cluster's settings, for the few requests that librdkafka does not know.

``security`` has librdkafka's names, as Connection does; SASL is kafka-python's, in Kafka's own frames (KIP-43, KIP-152).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kafka.errors import KafkaError
from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

_HANDSHAKE, _AUTHENTICATE = 17, 36
_NO_SASL_HERE = 34  # ILLEGAL_SASL_STATE
_CLIENT = b"hub.admin"
_MOST_BYTES = 1 << 20
_MOST_STEPS = 8


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
    said = security or {}
    protocol = said.get("security.protocol", "PLAINTEXT").upper()
    made = socket.create_connection((host, port), timeout_s)
    try:
        if protocol.endswith("SSL"):
            made = secured(made, host, said)
        if protocol.startswith("SASL"):
            let_in(made, host, said, tokens)
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


def secured(plain: socket.socket, host: str, said: Mapping[str, str]) -> socket.socket:
    """Wrap a connection in TLS. Raises OSError."""
    return _context(said).wrap_socket(plain, server_hostname=host)


def tls_context(said: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context of the settings; None if they do not use TLS. Raises OSError."""
    return _context(said) if said.get("security.protocol", "PLAINTEXT").upper().endswith("SSL") else None


def _context(said: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=said.get("ssl.ca.location"))
    context.check_hostname = said.get("ssl.endpoint.identification.algorithm") != "none"
    certificate = said.get("ssl.certificate.location")
    if certificate is not None:
        context.load_cert_chain(certificate, said.get("ssl.key.location"), said.get("ssl.key.password"))
    return context


def let_in(connection: Pipe, host: str, said: Mapping[str, str], tokens: Callable[[], str] | None) -> None:
    """Authenticate with SASL. Raises OSError, including MechanismNotOffered, SaslNotExpected and
    AuthenticationFailed; PeerError if there is no token.
    """
    name = said.get("sasl.mechanism", "PLAIN")
    mechanisms_of(connection, name)
    try:
        _authenticated(connection, host, name, said, tokens)
    except KafkaError as error:  # of the mechanism: what the broker proves of itself is wrong
        raise AuthenticationFailed(f"{name}: {error}") from None


def mechanisms_of(connection: Pipe, wanted: str) -> list[str]:
    """Negotiate the SASL mechanism ``wanted`` and return the mechanisms that the broker offers. Raises
    OSError, including MechanismNotOffered and SaslNotExpected.
    """
    text = wanted.encode()
    shaken = exchange(
        connection, request_header(_HANDSHAKE) + struct.pack(">h", len(text)) + text, _MOST_BYTES
    )
    error, count = struct.unpack_from(">hi", shaken, 4)
    if error == _NO_SASL_HERE:
        raise SaslNotExpected("it asks nobody for a name at this port")
    offered = _texts(shaken, 10, count)
    if error:
        raise MechanismNotOffered(wanted, offered)
    return offered


def _authenticated(
    connection: Pipe,
    host: str,
    name: str,
    said: Mapping[str, str],
    tokens: Callable[[], str] | None,
) -> None:
    mechanism = get_sasl_mechanism(name)(
        host=host,
        sasl_mechanism=name,
        sasl_plain_username=said.get("sasl.username", ""),
        sasl_plain_password=said.get("sasl.password", ""),
        sasl_oauth_token_provider=None if tokens is None else TokenProvider(tokens),
    )
    for _ in range(_MOST_STEPS):
        if mechanism.is_done():
            break
        words = mechanism.auth_bytes()
        answer = exchange(
            connection, request_header(_AUTHENTICATE) + struct.pack(">i", len(words)) + words, _MOST_BYTES
        )
        error, length = struct.unpack_from(">hh", answer, 4)
        at = 8 + max(0, length)
        if error:
            raise AuthenticationFailed(
                f"it does not let us in: {answer[8:at].decode(errors='replace') or error}"
            )
        (size,) = struct.unpack_from(">i", answer, at)
        mechanism.receive(answer[at + 4 : at + 4 + max(0, size)])
    if not mechanism.is_authenticated():
        raise OSError(f"{name} does not come to an end")


def request_header(api: int, version: int = 1) -> bytes:
    """Return the header of a request that all brokers since 1.0 understand."""
    return struct.pack(">hhih", api, version, 1, len(_CLIENT)) + _CLIENT


def _texts(frame: bytes, at: int, count: int) -> list[str]:
    found = []
    for _ in range(min(max(0, count), 20)):
        (size,) = struct.unpack_from(">h", frame, at)
        found.append(frame[at + 2 : at + 2 + size].decode(errors="replace"))
        at += 2 + max(0, size)
    return found
