"""[core] ``access.yaml``: users, tokens and groups, and their grants.

::

    contact: "the platform team, #data-platform"     # shown to callers without access
    groups:
      shop:  [{role: read, topics: ["shop.**"], views: [customer_360]}]
      guests: [{role: read, topics: ["shop.orders"], until: 2026-12-24T00:00:00Z}]   # ends by itself
      ops:   [{role: operate, topics: ["**"], views: ["*"], hub: true}, {role: read, topics: ["**"], views: ["*"], hub: true}]
    users:
      ana:   {password: "scrypt$14$8$5$…", groups: [shop]}
      bob:   {groups: [ops]}                          # no password: only the proxy's header
    tokens:
      checkout: {token: "sha256$…", grants: [{role: write, topics: ["shop.orders"]}]}
    anonymous: [{role: read, topics: ["public.**"]}]  # default: nothing
    oidc: {issuer: …, audience: event-hub}           # hub/access/oidc/settings.py
    masks: [{tags: [PII], topics: ["shop.**"], as: hashed}]   # hub/access/masking/nodes.py
    quotas: {defaults: {queries_per_s: 50}}          # hub/access/quotas/nodes.py

The file contains hashes of passwords and tokens, never the secrets themselves: ``hub access hash`` makes
them.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, model_validator

from hub.access.decide import AccessPolicy, Grant, Principal, patterns_of
from hub.access.masking.decision import MaskPolicy
from hub.access.masking.nodes import MOST_MASKS, ClaimNodes, MaskNode
from hub.access.oidc.settings import OidcNode
from hub.access.quotas.nodes import QuotasNode
from hub.access.secrets import checked_password_hash, checked_token_hash, hash_of_token
from hub.errors import ConfigError, did_you_mean
from hub.quotas.policy import NO_QUOTAS, QuotaPolicy
from hub.schema_registry.policy.label_patterns import checked
from hub.times import ms_of
from hub.yaml import load_model, place

ACCESS_FILE = "access.yaml"
ADMIN = "_admin"  # name of the token of the setting admin_token
MOST_USERS, MOST_GROUPS, MOST_GRANTS = 5_000, 1_000, 100

_CERTIFICATE = re.compile(r"(CN=|DNS:|URI:|email:)\S(.{0,248}\S)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(
            f'name "{text[:80]}" may have A-Z, a-z, 0-9, ".", "_", "@" and "-", '
            "and must begin with A-Z, a-z or 0-9"
        )
    return text


def _certificate(text: str) -> str:
    if not _CERTIFICATE.fullmatch(text):
        raise ValueError(
            f'"{text[:100]}" is not a name of a certificate: write CN=checkout, DNS:… , URI:… or email:…'
        )
    return text


Name = Annotated[str, AfterValidator(_name)]
CertificateName = Annotated[str, AfterValidator(_certificate)]
Pattern = Annotated[str, AfterValidator(checked)]


class _AccessModel(BaseModel, extra="forbid", frozen=True):
    """A part of access.yaml."""


class GrantNode(_AccessModel):
    """A role over patterns of topics and views; ``hub`` covers everything that belongs to neither. The grant
    ends at ``until``."""

    role: Literal["read", "write", "operate", "admin"]
    topics: list[Pattern] = Field(default_factory=list, max_length=MOST_GRANTS)
    views: list[Pattern] = Field(default_factory=list, max_length=MOST_GRANTS)
    hub: bool = False
    until: AwareDatetime | None = None

    @model_validator(mode="after")
    def _over_something(self) -> Self:
        if not (self.topics or self.views or self.hub):
            raise ValueError('a grant needs a scope: write topics: ["shop.**"], views: [...] or hub: true')
        return self

    def grant(self) -> Grant:
        return Grant(self.role, patterns_of(self.topics), patterns_of(self.views), self.hub, self.until_ms)

    @property
    def until_ms(self) -> int | None:
        return None if self.until is None else ms_of(self.until)

    def is_in_force(self, now_ms: int) -> bool:
        """Return whether the grant has not ended."""
        return self.until_ms is None or now_ms < self.until_ms


Grants = Annotated[list[GrantNode], Field(max_length=MOST_GRANTS)]


class UserNode(_AccessModel):
    """A user. Without ``password`` only the proxy's header or the provider of ``oidc`` authenticates them."""

    password: Annotated[str, AfterValidator(checked_password_hash)] | None = None
    certificates: tuple[CertificateName, ...] = Field((), max_length=20)
    groups: list[Name] = Field(default_factory=list, max_length=MOST_GRANTS)
    grants: Grants = Field(default_factory=list)
    claims: ClaimNodes = Field(default_factory=dict, max_length=MOST_GRANTS)

    @property
    def secrets(self) -> tuple[str | None, tuple[str, ...]]:
        """Return what the user proves to be by; a change of it ends open streams."""
        return self.password, self.certificates


class TokenNode(_AccessModel):
    """A service that authenticates with a token."""

    token: Annotated[str, AfterValidator(checked_token_hash)]
    groups: list[Name] = Field(default_factory=list, max_length=MOST_GRANTS)
    grants: Grants = Field(default_factory=list)
    claims: ClaimNodes = Field(default_factory=dict, max_length=MOST_GRANTS)


class AccessFile(_AccessModel):
    """Content of access.yaml."""

    contact: str = Field("", max_length=200)
    groups: dict[Name, Grants] = Field(default_factory=dict, max_length=MOST_GROUPS)
    users: dict[Name, UserNode] = Field(default_factory=dict, max_length=MOST_USERS)
    tokens: dict[Name, TokenNode] = Field(default_factory=dict, max_length=MOST_USERS)
    anonymous: Grants = Field(default_factory=list)
    oidc: OidcNode | None = None
    masks: list[MaskNode] = Field(default_factory=list, max_length=MOST_MASKS)
    quotas: QuotasNode | None = Field(None, description="Limits of principals and tenants.")

    def quota_policy(self) -> QuotaPolicy:
        """Return the quotas as the input of their decisions."""
        return NO_QUOTAS if self.quotas is None else self.quotas.policy(self.contact)

    def mask_policy(self) -> MaskPolicy:
        """Return the masks, and the claims of users and tokens, as the input of their decision."""
        own: list[tuple[str, UserNode | TokenNode]] = [*self.users.items(), *self.tokens.items()]
        claims = {
            name: {claim: tuple(values) for claim, values in node.claims.items()}
            for name, node in own
            if node.claims
        }
        return MaskPolicy(tuple(each.rule(number) for number, each in enumerate(self.masks, 1)), claims)

    def policy(self, now_ms: int) -> AccessPolicy:
        """Return the grants that are in force as the input of ``decide``."""
        return self.policy_of(lambda grant: grant.is_in_force(now_ms))

    def policy_of(self, chosen: Callable[[GrantNode], bool]) -> AccessPolicy:
        """Return some of the grants as the input of ``decide``."""
        own: list[tuple[str, UserNode | TokenNode]] = [*self.users.items(), *self.tokens.items()]

        def some(grants: list[GrantNode]) -> tuple[Grant, ...]:
            return tuple(each.grant() for each in grants if chosen(each))

        return AccessPolicy(
            {name: some(grants) for name, grants in self.groups.items()},
            {name: some(node.grants) for name, node in own},
            some(self.anonymous),
            self.contact,
        )

    def principals(self) -> list[Principal]:
        """Return the users and tokens with their groups of the file."""
        return [
            *(Principal(name, "user", frozenset(node.groups)) for name, node in self.users.items()),
            *(Principal(name, "token", frozenset(node.groups)) for name, node in self.tokens.items()),
        ]

    def ends_ms(self) -> list[int]:
        """Return the times at which grants end, in epoch milliseconds, earliest first."""
        nodes: list[UserNode | TokenNode] = [*self.users.values(), *self.tokens.values()]
        lists = [*self.groups.values(), self.anonymous, *(node.grants for node in nodes)]
        return sorted({each.until_ms for grants in lists for each in grants if each.until_ms is not None})


def with_admin(file: AccessFile, token: str | None) -> AccessFile:
    """Add the token of the setting ``admin_token``, which may do everything.
    No name of the file begins with _."""
    if token is None:
        return file
    everything = GrantNode(role="admin", topics=["**"], views=["**"], hub=True)
    admin = TokenNode(token=hash_of_token(token), grants=[everything])
    return file.model_copy(update={"tokens": {**file.tokens, ADMIN: admin}})


def load_access(path: Path) -> AccessFile:
    """Load access.yaml. Raises ConfigError with line and column."""
    file = load_model(path, AccessFile)
    for both in file.users.keys() & file.tokens.keys():
        raise ConfigError(
            f'"{both}" is a user and a token',
            where=place(path, "tokens", both),
            hint="give one of them another name: what somebody did is kept by name",
            code="HUB-1711",
        )
    for steps, name in _named_groups(file):
        if name not in file.groups:
            raise ConfigError(
                f'group "{name}" does not exist',
                where=place(path, *steps),
                hint=did_you_mean(name, file.groups, f"groups: {', '.join(file.groups) or 'none'}"),
                code="HUB-1711",
            )
    _check_tenants(file, path)
    holders: dict[str, str] = {}
    for user, node in file.users.items():
        for each in node.certificates:
            if (holder := holders.setdefault(each, user)) != user:
                raise ConfigError(
                    f'users "{holder}" and "{user}" have the same certificate {each}',
                    where=place(path, "users", user, "certificates"),
                    hint="one certificate stands for one user: what somebody did is kept by name",
                    code="HUB-1711",
                )
    hashes: dict[str, str] = {}
    for name, token in file.tokens.items():
        if (other := hashes.setdefault(token.token, name)) != name:
            raise ConfigError(
                f'tokens "{other}" and "{name}" are the same token',
                where=place(path, "tokens", name, "token"),
                hint="make one of its own: hub access hash --token",
                code="HUB-1711",
            )
    return file


def _check_tenants(file: AccessFile, path: Path) -> None:
    """Raise ConfigError for a topic or view of two tenants, and for limits of a token that does not exist."""
    if file.quotas is None:
        return
    if (both := file.quotas.shared()) is not None:
        raise ConfigError(
            f'tenants "{both[1]}" and "{both[2]}" both have "{both[0]}"',
            where=place(path, "quotas", "tenants", both[2]),
            hint="a topic or view counts to one tenant: the one with the longest subtree",
            code="HUB-1711",
        )
    for name in file.quotas.tokens:
        if name not in file.tokens:
            raise ConfigError(
                f'token "{name}" does not exist',
                where=place(path, "quotas", "tokens", name),
                hint=f"tokens: {', '.join(file.tokens) or 'none'}; tokens of people count to their owner",
                code="HUB-1711",
            )


def _named_groups(file: AccessFile) -> Iterator[tuple[tuple[str | int, ...], str]]:
    for kind, nodes in (("users", file.users), ("tokens", file.tokens)):
        for name, node in nodes.items():
            for number, group in enumerate(node.groups):
                yield (kind, name, "groups", number), group
    for value, group in ((file.oidc and file.oidc.groups) or {}).items():
        yield ("oidc", "groups", value), group
    for group in file.quotas.groups if file.quotas is not None else ():
        yield ("quotas", "groups", group), group
    for number, mask in enumerate(file.masks):
        for group in mask.groups:
            yield ("masks", number, "groups", group), group
