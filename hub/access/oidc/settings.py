"""[core] The section ``oidc:`` of access.yaml.

::

    oidc:
      issuer: https://login.example.com/realms/shop
      audience: [event-hub]                     # of bearer tokens; without it services cannot sign in
      client_id: event-hub                      # of the sign-in page; without it people cannot sign in
      client_secret: "${OIDC_CLIENT_SECRET}"
      name_claim: [preferred_username, azp]     # default: sub
      groups_claim: realm_access.roles          # default: groups
      groups: {/data/shop: shop}                # value of the claim: group of this file; default: same names
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from hub.security import Secret

# HS256 and "none" are not among them: with a public key as secret, anybody could sign.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"
]
_CLAIM = re.compile(r"[^\s.]{1,100}(\.[^\s.]{1,100}){0,4}|https?://[^\s]{1,200}")


def is_loopback(host: str | None) -> bool:
    """Return whether a host name is this machine's own."""
    if host == "localhost":
        return True
    try:
        return host is not None and ip_address(host).is_loopback
    except ValueError:
        return False


def checked_url(url: str) -> str:
    """Return the address unchanged. Raises ValueError unless it is https, or http of this machine."""
    parts = urlsplit(url)
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    if not secure or not parts.hostname or parts.username or parts.fragment:
        raise ValueError(
            f'"{url[:200]}" must be an address that begins with https://, without a user and "#"'
        )
    return url


def _claim(path: str) -> str:
    if not _CLAIM.fullmatch(path):
        raise ValueError(
            f'"{path[:100]}" is not a claim: write groups, or realm_access.roles for a nested one'
        )
    return path


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Url = Annotated[str, Field(max_length=500), AfterValidator(checked_url)]
Claim = Annotated[str, AfterValidator(_claim)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
Texts = Annotated[list[Text], BeforeValidator(_several), Field(min_length=1, max_length=20)]


class OidcNode(BaseModel, extra="forbid", frozen=True):
    """A provider of OpenID Connect, and how its claims become names and groups of access.yaml."""

    issuer: Url
    audience: Texts | None = None
    client_id: Text | None = None
    client_secret: Secret | None = None
    scopes: Texts = Field(default_factory=lambda: ["openid", "profile"])
    name_claim: Annotated[list[Claim], BeforeValidator(_several), Field(min_length=1, max_length=5)] = Field(
        default_factory=lambda: ["sub"]
    )
    groups_claim: Claim = "groups"
    groups: dict[Text, str] | None = Field(None, max_length=1_000)
    algorithms: tuple[Algorithm, ...] = Field(("RS256", "ES256"), min_length=1)
    clock_skew_s: int = Field(60, ge=0, le=600)
    session_h: float = Field(12.0, gt=0.0, le=24.0)
    public_url: Url | None = None
    ca: str | None = Field(None, max_length=500)

    @model_validator(mode="after")
    def _for_someone(self) -> Self:
        if self.audience is None and self.client_id is None:
            raise ValueError("say audience (bearer tokens of services), client_id (login of people), or both")
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret belongs to a client_id")
        if "openid" not in self.scopes:
            raise ValueError("scopes must contain openid")
        return self

    def group_of(self, value: str) -> str | None:
        """Return the group of access.yaml for a value of the groups claim; None: no group."""
        return value if self.groups is None else self.groups.get(value)
