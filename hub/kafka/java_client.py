"""[edge] TLS and SASL settings of a cluster for Kafka's Java client, which Spark uses. PEM files become
inline text.

The text is inline because Spark's executors may be on other machines. Java reads fewer kinds of keys than
OpenSSL, so a key that Java does not support is refused here, with the command that converts it (KIP-651 for
PEM, KIP-768 for OAuth).
"""

from __future__ import annotations

import re
import ssl
from base64 import b64decode
from pathlib import Path

from hub.errors import ConfigError
from hub.files import read_text
from hub.security import ClusterConnection, Sasl

_MODULES = "org.apache.kafka.common.security"
_LOGIN = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
_PKCS8 = re.compile(r"-----BEGIN (?P<kind>ENCRYPTED )?PRIVATE KEY-----(?P<body>[A-Za-z0-9+/=\s]+)-----END")
# The DER encoding of PBES2's object identifier, 1.2.840.113549.1.5.13 (RFC 8018). Java's name for PBES2 is
# not a usable algorithm name.
_PBES2 = bytes.fromhex("06092a864886f70d01050d")
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""JVM property with the endpoints that may issue tokens."""


def java_client(connection: ClusterConnection, *, here: bool = True) -> dict[str, str]:
    """Return the settings by Kafka's names, including secrets; none for an open cluster. ``here``: for a JVM
    on this machine.

    Raises ConfigError (HUB-1603) for a file that is not what it is to be.
    """
    if connection.is_plain:
        return {}
    settings: dict[str, str | None] = {"security.protocol": connection.protocol}
    if (tls := connection.tls) is not None:
        settings |= _trusted(connection, here)
        if tls.certificate is not None and tls.key is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": _pem(connection, "certificate", "CERTIFICATE"),
                "ssl.keystore.key": _key(connection),
                "ssl.key.password": connection.secret(tls.key_password),
            }
        settings["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_hostname else ""
    if (sasl := connection.sasl) is not None:
        settings |= {"sasl.mechanism": sasl.mechanism, "sasl.jaas.config": _jaas(connection, sasl)}
        if sasl.mechanism == "OAUTHBEARER":
            settings["sasl.login.callback.handler.class"] = _TOKENS
            settings["sasl.oauthbearer.token.endpoint.url"] = sasl.token_url
    return {name: value for name, value in settings.items() if value is not None}


def allowed_urls(connection: ClusterConnection) -> str | None:
    """Return the value of the JVM property `ALLOWED_URLS`; None if no tokens are requested."""
    return None if connection.sasl is None else connection.sasl.token_url


def _trusted(connection: ClusterConnection, here: bool) -> dict[str, str | None]:
    assert connection.tls is not None
    if connection.tls.ca is not None:
        text = _pem(connection, "ca", "CERTIFICATE")
        return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
    # The authorities of the system, as all other clients of the hub take them. Java has a list of its own,
    # which is what there is on machines that are not this one.
    system = ssl.get_default_verify_paths().cafile
    if system is None or not here:
        return {}
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": system}


def _jaas(connection: ClusterConnection, sasl: Sasl) -> str:
    credentials = (
        {
            "clientId": sasl.client_id,
            "clientSecret": connection.secret(sasl.client_secret),
            "scope": sasl.scope,
        }
        if sasl.mechanism == "OAUTHBEARER"
        else {"username": sasl.username, "password": connection.secret(sasl.password)}
    )
    options = " ".join(f"{name}={_quoted(value)}" for name, value in credentials.items() if value is not None)
    return f"{_LOGIN[sasl.mechanism]} required {options};"


def _quoted(text: str) -> str:
    """Quote a text so that Java's StreamTokenizer reads it back.

    >>> print(_quoted('a"b'))
    "a\\"b"
    """
    escaped = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escaped.get(each, each) for each in text) + '"'


def _pem(connection: ClusterConnection, name: str, holds: str) -> str:
    path = connection.files()[name]
    text = pem_text(path, name)
    if f"-----BEGIN {holds}" not in text:
        raise ConfigError(
            f'tls: {name}: file "{path}" has no {holds.lower()} in PEM',
            hint=f"it has to have a line -----BEGIN {holds}-----",
            code="HUB-1603",
        )
    return text


def _key(connection: ClusterConnection) -> str:
    path = connection.files()["key"]
    text, made = pem_text(path, "key"), path.with_suffix(".pk8")
    match = _PKCS8.search(text)
    if match is None:
        raise ConfigError(
            f'tls: key: file "{path}" is not a PKCS#8 key in PEM, which Spark\'s Kafka client requires',
            hint=f"make one, and name it as the key: openssl pkcs8 -topk8 -nocrypt -in {path} -out {made}",
            code="HUB-1603",
        )
    if match["kind"] and _PBES2 in b64decode(re.sub(r"\s", "", match["body"]) + "=="):
        raise ConfigError(
            f'tls: key: file "{path}" is encrypted in a way (PBES2) that Spark\'s client '
            "of Kafka does not read",
            hint=f"encrypt it the older way: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in {path} -out {made}; "
            "or without, -nocrypt",
            code="HUB-1603",
        )
    return text


def pem_text(path: Path, name: str) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f'tls: {name}: file "{path}" cannot be read: {error}', hint="it is to be PEM", code="HUB-1603"
        ) from None
