"""[core] TLS and SASL of a Kafka cluster, as declared in hub.yaml and mirrors.yaml, and as settings of each
kind of client.

::

    tls: {ca: certs/kafka.pem}
    sasl: {mechanism: SCRAM-SHA-512, username: hub, password: "${KAFKA_PASSWORD}"}

Files name secrets and never contain them: ``${NAME}`` is read from the environment when a connection is
opened. So the content of a file may be shown, stored and passed to other processes; a ``ClusterConnection``,
which has the secrets, may not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, model_validator
from pydantic_core import PydanticCustomError

from hub.errors import ConfigError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]

# A reference to a variable of the environment, in all files of a project.
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# The kind of a complaint whose input must not be shown.
SECRET_IN_FILE = "secret_in_file"
_PROTOCOLS: Mapping[tuple[bool, bool], Protocol] = {
    (False, False): "PLAINTEXT",
    (True, False): "SSL",
    (False, True): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}


def _secret(text: str) -> str:
    if not is_reference(text):
        raise PydanticCustomError(
            SECRET_IN_FILE, "a secret must not be in the file: write ${NAME} and set the variable NAME"
        )
    return text


Secret = Annotated[str, AfterValidator(_secret)]


class _SecurityModel(BaseModel, extra="forbid", frozen=True):
    """A part of the security settings of a cluster."""


class Tls(_SecurityModel):
    """``tls: true`` is TLS with the system's authorities. Paths are taken from the file's folder."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None
    verify_hostname: bool = True

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together: say both or neither")
        return self


class ServerTls(_SecurityModel):
    """The server's own listener with TLS. Paths are taken from the project folder. ``client_ca``: authorities
    of certificates by which clients may sign in.
    """

    certificate: Path
    key: Path
    client_ca: Path | None = None
    host: str = "0.0.0.0"
    port: int = 8443


class Sasl(_SecurityModel):
    """SASL credentials: a user name and password, or (OAUTHBEARER) a client for which ``token_url`` issues
    tokens.
    """

    mechanism: Mechanism
    username: str | None = None
    password: Secret | None = None
    token_url: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None

    @model_validator(mode="after")
    def _what_the_mechanism_needs(self) -> Self:
        oauth = self.mechanism == "OAUTHBEARER"
        needed = ("token_url", "client_id", "client_secret") if oauth else ("username", "password")
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise ValueError(f"{self.mechanism} needs {' and '.join(missing)}")
        return self


def _plain_yes(value: object) -> object:
    return {} if value is True else None if value is False else value


TlsOrNot = Annotated[Tls | None, BeforeValidator(_plain_yes)]
"""``true`` and ``false`` are taken, too."""


@dataclass(frozen=True, slots=True)
class ClusterConnection:
    """Connection settings of a cluster, with secrets filled in. Never printed: its repr omits the secrets."""

    cluster: str
    bootstrap: tuple[str, ...]
    tls: Tls | None
    sasl: Sasl | None
    secrets: Mapping[str, str]
    folder: Path

    @property
    def protocol(self) -> Protocol:
        return _PROTOCOLS[self.tls is not None, self.sasl is not None]

    @property
    def is_plain(self) -> bool:
        return self.protocol == "PLAINTEXT"

    def secret(self, reference: str | None) -> str | None:
        """Return the value of ``${NAME}``."""
        return None if reference is None else self.secrets[reference]

    def file(self, path: Path | None) -> str | None:
        return None if path is None else str(self.folder / path)

    def files(self) -> Mapping[str, Path]:
        """Return the named files, by the keys that name them."""
        tls = self.tls
        named = {} if tls is None else {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key}
        return {key: self.folder / path for key, path in named.items() if path is not None}

    def __repr__(self) -> str:
        return f"Connection({self.cluster}, {','.join(self.bootstrap)})"

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka's clients (its CONFIGURATION.md)."""
        settings: dict[str, str | None] = {
            "bootstrap.servers": ",".join(self.bootstrap),
            "security.protocol": self.protocol,
        }
        if (tls := self.tls) is not None:
            settings |= {
                "ssl.ca.location": self.file(tls.ca),
                "ssl.certificate.location": self.file(tls.certificate),
                "ssl.key.location": self.file(tls.key),
                "ssl.key.password": self.secret(tls.key_password),
                "ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none",
            }
        if (sasl := self.sasl) is not None:
            settings |= {
                "sasl.mechanism": sasl.mechanism,
                "sasl.username": sasl.username,
                "sasl.password": self.secret(sasl.password),
                "sasl.oauthbearer.method": "oidc" if sasl.mechanism == "OAUTHBEARER" else None,
                "sasl.oauthbearer.token.endpoint.url": sasl.token_url,
                "sasl.oauthbearer.client.id": sasl.client_id,
                "sasl.oauthbearer.client.secret": self.secret(sasl.client_secret),
                "sasl.oauthbearer.scope": sasl.scope,
            }
        return {key: value for key, value in settings.items() if value is not None}


def secrets_of(
    tls: Tls | None, sasl: Sasl | None, environ: Mapping[str, str], whose: str, hint: str
) -> dict[str, str]:
    """Return the values of the referenced variables, by reference. Raises ConfigError (HUB-1602) with the
    name of a variable that is not set; ``hint`` has a ``{}`` for that name.
    """
    named = [tls.key_password] if tls else []
    named += [sasl.password, sasl.client_secret] if sasl else []
    return {each: secret_value(each, environ, whose, hint) for each in named if each}


def is_reference(text: str) -> bool:
    """Return whether the text is ``${NAME}``, and thus no secret itself."""
    return VARIABLE.fullmatch(text) is not None


def variable_of(reference: str) -> str:
    """Return NAME of ``${NAME}``."""
    return reference[2:-1]


def secret_value(
    text: str,
    environ: Mapping[str, str],
    whose: str,
    hint: str = "set {}=… in the environment",
    code: str = "HUB-1602",
) -> str:
    """Return the value of a text ``${NAME}``; other text unchanged. Raises ConfigError (``code``) with the
    name of a variable that is not set; ``hint`` has a ``{}`` for that name.
    """
    if not is_reference(text):
        return text
    variable = variable_of(text)
    if not environ.get(variable):
        raise ConfigError(
            f"{whose}: the variable {variable} is not set", hint=hint.format(variable), code=code
        )
    return environ[variable]


_MAY_HOLD_SECRETS = frozenset({"password", "client_secret", "key_password", "key", "sasl", "tls", "token"})
# In access.yaml, a secret may replace a user's whole entry, or appear as a list.
_OF_PEOPLE = ("users", "tokens")


def is_secret(complaint: Mapping[str, object]) -> bool:
    """Return whether the value in a pydantic error (one of ``ValidationError.errors()``) may be a secret that
    must not be shown.
    """
    steps = complaint["loc"]
    last, above = (*reversed(steps), None, None)[:2] if isinstance(steps, tuple) else (None, None)
    # Addresses in alerts.yaml are secrets, and settings in connectors.yaml may be.
    of_channel = isinstance(steps, tuple) and steps[:1] in (("channels",), ("connectors",))
    return (
        complaint["type"] == SECRET_IN_FILE or last in _MAY_HOLD_SECRETS or above in _OF_PEOPLE or of_channel
    )
