"""[edge] Diagnose why a broker refuses a connection, from librdkafka's error texts or from a test connection.

A refused client reconnects again and again, and its requests end as "timed out". The reason arrives
separately, through the error callback. A plain client at a TLS port, and a client without SASL where SASL is
required, get no reason at all: for these, ``looked_at`` connects once and observes what happens.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError

from hub.errors import HubError
from hub.kafka.protocol.primitives import API_VERSIONS, METADATA, request_header
from hub.kafka.protocol.sockets import (
    CLIENT,
    AuthenticationFailed,
    MechanismNotOffered,
    SaslNotExpected,
    exchange,
    let_in,
    mechanisms_of,
    secured,
)

_LATELY_S = 20.0
_OTHER_NAMES = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_MOST_BYTES = 1 << 22


class ConnectDiagnosis(NamedTuple):
    """Reason and way out. The reason completes the message "Kafka … does not let the hub in"."""

    why: str
    hint: str


_NO_TLS = ConnectDiagnosis(
    "it does not speak TLS at this port",
    "remove `tls`, or name the port of its TLS listener in `bootstrap`",
)
_ONLY_TLS = ConnectDiagnosis(
    "this port requires TLS, which is not configured",
    "say `tls: true`, or `tls: {ca: FILE}` with the authority that signed its certificate",
)
_ONLY_SASL = ConnectDiagnosis(
    "it requires SASL authentication",
    "say `sasl`: mechanism, username and password, as its administrators gave them",
)
_NO_SASL = ConnectDiagnosis(
    "this port does not offer SASL authentication",
    "remove `sasl`, or name the port of its SASL listener in `bootstrap`",
)
_NOT_TRUSTED = ConnectDiagnosis(
    "its certificate is not trusted",
    "set `tls.ca` to a file with the authority that signed the brokers' certificates, and use a name in "
    "`bootstrap` that they contain (or verify_hostname: false)",
)
_OTHER_NAME = ConnectDiagnosis(
    "its certificate is for another name than the one in `bootstrap`",
    "use a name that the certificate contains, or set verify_hostname: false",
)
_NOT_OURS = ConnectDiagnosis(
    "it does not take the hub's certificate",
    "set `tls.certificate` and `tls.key` to a certificate that it trusts",
)
_WRONG_PASSWORD = "look at the user's name, and at the variable that the password is taken from"
_NO_TOKEN = "look at token_url, client_id, and the variable that client_secret is taken from"

# What librdkafka 2.x and OpenSSL say, the first that fits.
_PATTERNS: tuple[tuple[str, ConnectDiagnosis], ...] = (
    (r"certificate verify failed", _NOT_TRUSTED),
    (r"connecting to a PLAINTEXT broker listener|wrong version number", _NO_TLS),
    (r"connecting to a SSL listener", _ONLY_TLS),
    (r"alert (bad|unknown|expired|revoked)|certificate[ _]required|alert number 116|unknown ca", _NOT_OURS),
    (r"not valid in current SASL state", _NO_SASL),
)
_OFFERED = re.compile(r"SASL (\S+) mechanism handshake failed: .*supported mechanisms: *([\w,-]*)")
_TOKEN = re.compile(r"Failed to acquire SASL OAUTHBEARER token: (.*)")
_REFUSED = re.compile(
    r"SASL authentication error: (?:Authentication failed(?: during authentication)?:? ?)?(.*)"
)


class DiagnosisCallback:
    """Error callback of a cluster's clients. Keeps the most recent reason why a broker refused them. Thread
    safe.
    """

    def __init__(self) -> None:
        self._last: tuple[float, int, str] | None = None

    def __call__(self, error: KafkaError) -> None:
        """Record the error only. librdkafka calls this from C, where an exception of another callback may be
        pending.
        """
        self._last = self._last if error.code() == KafkaError._ALL_BROKERS_DOWN else _noted(error, self._last)

    def lately(self) -> ConnectDiagnosis | None:
        last = self._last
        if last is None or time.monotonic() - last[0] > _LATELY_S:
            return None
        return diagnose(last[1], last[2])


def _noted(error: KafkaError, last: tuple[float, int, str] | None) -> tuple[float, int, str] | None:
    code, message = error.code(), error.str()
    if code in (KafkaError._AUTHENTICATION, KafkaError._SSL) or (
        code == KafkaError._TRANSPORT and "SSL" in message
    ):
        return time.monotonic(), code, message
    return last


def diagnose(code: int, message: str) -> ConnectDiagnosis | None:
    """Return the diagnosis of a librdkafka error; None if the error does not concern access."""
    text = re.sub(r" \(after \d+ms in state \w+\)$", "", message.strip())
    for pattern, diagnosis in _PATTERNS:
        if re.search(pattern, text, re.IGNORECASE):
            return diagnosis
    if code == KafkaError._AUTHENTICATION:
        if offer := _OFFERED.search(text):
            return _not_offered(offer[1], offer[2])
        if token := _TOKEN.search(text):
            return ConnectDiagnosis(f"no token could be obtained for it ({token[1][:200]})", _NO_TOKEN)
        reason = refusal[1] if (refusal := _REFUSED.search(text)) else text
        return unknown(reason)
    if code == KafkaError._SSL:
        return ConnectDiagnosis(f"TLS fails ({text.rpartition(': ')[2][:200]})", _NOT_TRUSTED.hint)
    return None


def unknown(reason: str) -> ConnectDiagnosis:
    """Return the diagnosis for a refused name or credential."""
    return ConnectDiagnosis(
        f"it does not know the user, or the password is wrong ({reason[:200]})", _WRONG_PASSWORD
    )


def _not_offered(wanted: str, offered: str) -> ConnectDiagnosis:
    return ConnectDiagnosis(
        f"it does not offer {wanted}",
        f"set `sasl.mechanism` to one that it offers: {offered or 'nothing'}",
    )


def looked_at(
    host: str,
    port: int,
    timeout_s: float,
    security: Mapping[str, str],
    tokens: Callable[[], str] | None = None,
) -> ConnectDiagnosis | None:
    """Connect once, step by step, and diagnose a refusal. None: the broker accepts the connection, nobody
    listens, or the broker is stopping. Because a broker that hangs up may be stopping, a diagnosis of another
    protocol needs a second connection that shows it.
    """
    return _Probe(host, port, timeout_s, security, tokens).diagnose()


class _Probe(NamedTuple):
    host: str
    port: int
    timeout_s: float
    security: Mapping[str, str]
    tokens: Callable[[], str] | None

    def diagnose(self) -> ConnectDiagnosis | None:
        protocol = self.security.get("security.protocol", "PLAINTEXT").upper()
        try:
            with self._plain() as plain:
                try:
                    made = secured(plain, self.host, self.security) if protocol.endswith("SSL") else plain
                except OSError as error:
                    return self._no_handshake(error)
                with made:
                    return self._greeted(made) if protocol.startswith("SASL") else self._first_answer(made)
        except OSError:
            return None

    def _plain(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), self.timeout_s)

    def _no_handshake(self, error: OSError) -> ConnectDiagnosis | None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return _OTHER_NAME if error.verify_code in _OTHER_NAMES else _NOT_TRUSTED
        if isinstance(error, ssl.SSLEOFError | ConnectionError):
            return _NO_TLS if self._answers_openly() else None
        return diagnose(KafkaError._SSL, str(error)) if isinstance(error, ssl.SSLError) else None

    def _greeted(self, made: socket.socket) -> ConnectDiagnosis | None:
        try:
            let_in(made, self.host, self.security, self.tokens)
        except MechanismNotOffered as error:
            return _not_offered(error.wanted, ",".join(error.offered))
        except SaslNotExpected:
            return _NO_SASL
        except AuthenticationFailed as error:
            return unknown(str(error))
        except HubError as error:
            return ConnectDiagnosis(f"no token could be obtained for it ({error.message})", _NO_TOKEN)
        except OSError as error:
            return self._at_first_word(made, error)
        return None

    def _first_answer(self, made: socket.socket) -> ConnectDiagnosis | None:
        try:
            exchange(made, request_header(API_VERSIONS, 0, 1, CLIENT), _MOST_BYTES)
        except OSError as error:
            return self._at_first_word(made, error)
        try:
            exchange(made, request_header(METADATA, 1, 1, CLIENT) + struct.pack(">i", 0), _MOST_BYTES)
        except TimeoutError:
            return None
        except OSError:  # the broker answers ApiVersions for everybody, and nothing else
            return _ONLY_SASL if self._asks_who_comes() else None
        return None

    def _at_first_word(self, made: socket.socket, error: OSError) -> ConnectDiagnosis | None:
        if isinstance(error, TimeoutError):
            return None
        if isinstance(
            made, ssl.SSLSocket
        ):  # in TLS 1.3 a client hears with the first answer what the server thinks of it
            return diagnose(KafkaError._TRANSPORT, str(error))
        return _ONLY_TLS if self._speaks_tls() else None

    # ---- second connections

    def _answers_openly(self) -> bool:
        try:
            with self._plain() as made:
                exchange(made, request_header(API_VERSIONS, 0, 1, CLIENT), _MOST_BYTES)
                return True
        except OSError:
            return False

    def _speaks_tls(self) -> bool:
        """Return whether the port speaks TLS. Sends no credentials; the certificate is not verified."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with self._plain() as plain, context.wrap_socket(plain, server_hostname=self.host):
                return True
        except ssl.SSLError as error:
            return "alert" in str(error).lower()
        except OSError:
            return False

    def _asks_who_comes(self) -> bool:
        protocol = self.security.get("security.protocol", "PLAINTEXT").upper()
        try:
            with (
                self._plain() as plain,
                secured(plain, self.host, self.security) if protocol.endswith("SSL") else plain as made,
            ):
                mechanisms_of(made, "PLAIN")
        except MechanismNotOffered:
            return True
        except OSError:
            return False
        return True
