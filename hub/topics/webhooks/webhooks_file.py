"""[edge] ``webhooks.yaml``: which systems send events to which topics.

::

    webhooks:
      github:
        topic: dev.github
        verify: {scheme: github, secrets: ["${GITHUB_WEBHOOK_SECRET}"]}
        fields: {event: X-GitHub-Event}

The server reads it again when it changes. A wrong entry is left out and says why to its sender; the others
work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StringConstraints, model_validator

from hub.errors import ConfigError, NotFound, PeerError, did_you_mean
from hub.files import Stamp, stamp_if_there
from hub.security import Secret, variable_of
from hub.topics.webhooks.deliveries import Shape
from hub.topics.webhooks.signatures import DELIVERY_IDS, Scheme, Verification
from hub.yaml import load_parts

WEBHOOKS_FILE = "webhooks.yaml"
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
_Header = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]{1,100}$")]
_Where = Annotated[str, StringConstraints(pattern=r"^(\$\.[^\s]{1,200}|[A-Za-z0-9-]{1,100})$")]


class _Model(BaseModel, extra="forbid", frozen=True):
    """A part of webhooks.yaml."""


class VerifyEntry(_Model):
    """Check of the sender's signature. It cannot be left out."""

    scheme: Scheme = Field(
        description="whose signature: a sender's own scheme, or `hmac` or `token` in a header"
    )
    secrets: list[Secret] = Field(
        min_length=1,
        max_length=10,
        description="`${NAME}` of the server's environment: the present one, then former",
    )
    header: _Header | None = Field(
        None, description="of `hmac` and `token`: the header of signature or token"
    )
    encoding: Literal["hex", "base64"] = Field("hex", description="of `hmac`: how the signature is written")
    prefix: str = Field(
        "", max_length=50, description="of `hmac` and `token`: the text before it, such as `sha256=`"
    )
    algorithm: Literal["sha256", "sha512", "sha1"] = Field("sha256", description="of `hmac`")

    @model_validator(mode="after")
    def _header_where_needed(self) -> Self:
        if self.scheme in ("hmac", "token") and self.header is None:
            raise ValueError(f"scheme {self.scheme} needs header: the name of the header that has it")
        return self


class WebhookEntry(_Model):
    """A system that sends events to ``POST /hooks/NAME``."""

    topic: str = Field(min_length=1, max_length=249, description="where its events go")
    verify: VerifyEntry = Field(description="how its requests prove who sent them")
    owner: str | None = Field(None, description="who answers for it")
    key: str | None = Field(
        None, description="path of the record's key in the event, with dots; unsaid, the topic's"
    )
    delivery: _Where | None = Field(
        None,
        description="what names a delivery, so that a repeated one is written once: a header, or `$.` and a "
        "path in the body. Unsaid, the sender's own, where the scheme has one",
    )
    fields: dict[str, _Header] = Field(
        default_factory=dict, max_length=50, description="fields to add to each event, and the header of each"
    )


class WebhooksFile(_Model):
    """Webhooks, by name."""

    webhooks: dict[_Name, WebhookEntry] = Field(
        max_length=1_000, description="webhooks, by the name in their path"
    )


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook as it is used: its shape, and its verification with the secrets filled in."""

    shape: Shape
    verification: Verification


def webhook_of(name: str, entry: WebhookEntry, environ: Mapping[str, str]) -> Webhook:
    """Return a webhook with its secrets. Raises PeerError (HUB-3045) if a variable is not set."""
    verify, variables = entry.verify, [variable_of(each) for each in entry.verify.secrets]
    if not environ.get(variables[0]):
        raise PeerError(
            f'webhook "{name}": the variable {variables[0]} is not set where the server runs',
            hint=f"set {variables[0]} to the secret that the sender signs with, and start the server again",
            code="HUB-3045",
        )
    secrets = tuple(environ[each] for each in variables if environ.get(each))
    delivery = entry.delivery if entry.delivery is not None else DELIVERY_IDS.get(verify.scheme, "")
    return Webhook(
        Shape(name, entry.topic, entry.key, delivery, entry.fields),
        Verification(
            verify.scheme, secrets, verify.header or "", verify.encoding, verify.prefix, verify.algorithm
        ),
    )


def load_webhooks(path: Path) -> tuple[Mapping[str, WebhookEntry], Mapping[str, ConfigError]]:
    """Return the entries of a file, and the errors of those that are wrong. Raises ConfigError."""
    model, wrong = load_parts(path, WebhooksFile, {"webhooks"})
    return model.webhooks, {str(entry[1]) if len(entry) > 1 else "": each for entry, each in wrong.items()}


class LiveWebhooks:
    """The webhooks of a file that may change or be absent. Thread safe."""

    def __init__(self, path: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._path = path
        self._environ = environ
        self._entries: Mapping[str, WebhookEntry] = {}
        self._wrong: Mapping[str, ConfigError] = {}
        self._read: Stamp | None = None
        self._lock = threading.Lock()

    def find(self, name: str) -> Webhook:
        """Return a webhook. Raises NotFound (HUB-1327), PeerError (HUB-3045) if its entry cannot be used."""
        with self._lock:
            self._refresh()
            entry, wrong = self._entries.get(name), self._wrong.get(name) or self._wrong.get("")
        if entry is not None:
            return webhook_of(name, entry, self._environ)
        if wrong is not None:
            raise PeerError(
                f'webhook "{name}" has an error in {WEBHOOKS_FILE}, and accepts nothing',
                hint="its owner sees the error with: hub webhook ls",
                code="HUB-3045",
            )
        raise NotFound(
            f'there is no webhook "{name[:80]}"', hint=f"declare it in {WEBHOOKS_FILE}", code="HUB-1327"
        )

    def _refresh(self) -> None:
        stamp = stamp_if_there(self._path)
        if stamp is None:
            self._entries, self._wrong, self._read = {}, {}, None
        if stamp == self._read:
            return
        self._read = stamp
        try:
            self._entries, self._wrong = load_webhooks(self._path)
        except ConfigError as error:
            # Unlike a topic's settings, a secret that was taken out must not stay in use.
            self._entries, self._wrong = {}, {"": error}


def entry_named(name: str, entries: Mapping[str, WebhookEntry]) -> WebhookEntry:
    """Return an entry. Raises NotFound (HUB-1327) with a similar name."""
    if name in entries:
        return entries[name]
    raise NotFound(
        f'there is no webhook "{name}" in {WEBHOOKS_FILE}',
        hint=did_you_mean(name, entries, "hub webhook ls lists them"),
        code="HUB-1327",
    )
