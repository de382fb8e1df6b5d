"""[core] Claims of a verified token: checks (RFC 7519, 4.1; OpenID Connect Core, 3.1.3.7), and the name and
groups of its owner.

Time is an argument. Claims are input from outside: values of an unexpected type are errors or are ignored,
never trusted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hub.access.oidc.settings import OidcNode

log = logging.getLogger(__name__)

Claims = Mapping[str, Any]

_MOST_NAME, _MOST_GROUPS, _MOST_GROUP = 200, 1_000, 200
# Keycloak marks what a token is for; only these may stand for their owner.
_KINDS = ("Bearer", "ID", "JWT")


class RefusedToken(Exception):
    """A token that is not accepted. The text is the reason, for the log and the token's owner."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a token: a name, groups of access.yaml, and the end of the token, epoch seconds."""

    name: str
    groups: frozenset[str]
    ends_at_s: float


def check_claims(claims: Claims, oidc: OidcNode, audience: Collection[str], now_s: float) -> float:
    """Check issuer, audience and times. Returns the token's end, epoch seconds. Raises RefusedToken."""
    if claims.get("iss") != oidc.issuer:
        raise RefusedToken("it is from another issuer")
    audience_claim = claims.get("aud")
    audiences = [audience_claim] if isinstance(audience_claim, str) else audience_claim
    if not isinstance(audiences, list) or not any(each in audience for each in audiences):
        raise RefusedToken("it is for another audience")
    if "events" in claims or claims.get("typ", "JWT") not in _KINDS:
        raise RefusedToken("it is not a token of access")
    ends_at_s = _time(claims, "exp")
    if ends_at_s is None:
        raise RefusedToken("it has no end (claim exp)")
    skew = oidc.clock_skew_s
    if now_s >= ends_at_s + skew:
        raise RefusedToken("it has expired")
    for name, message in (("nbf", "it is not valid yet"), ("iat", "it was issued in the future")):
        begins = _time(claims, name)
        if begins is not None and begins > now_s + skew:
            raise RefusedToken(f"{message}; compare the clocks")
    return ends_at_s + skew


def check_login(claims: Claims, client_id: str, nonce: str) -> None:
    """Check the claims of an ID token that bind it to one login. Raises RefusedToken."""
    if claims.get("nonce") != nonce:
        raise RefusedToken("it belongs to another login (claim nonce)")
    several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
    if claims.get("azp", None if several else client_id) != client_id:
        raise RefusedToken("it was issued to another client (claim azp)")


def identity_of(claims: Claims, oidc: OidcNode, known: Collection[str], ends_at_s: float) -> Identity:
    """Return the owner of checked claims; groups that are not in ``known`` are left out.
    Raises RefusedToken."""
    found = (_at(claims, each) for each in oidc.name_claim)
    name = next((each for each in found if isinstance(each, str) and each), None)
    if name is None:
        raise RefusedToken(f"it has no name (claim {' or '.join(oidc.name_claim)})")
    if len(name) > _MOST_NAME or not name.isprintable() or name.startswith("_"):
        raise RefusedToken("its name is too long, or has characters that are not allowed")
    if "email" in oidc.name_claim and claims.get("email") == name and claims.get("email_verified") is False:
        raise RefusedToken("the provider has not verified the e-mail address")
    return Identity(name, groups_of(claims, oidc, known), ends_at_s)


def groups_of(claims: Claims, oidc: OidcNode, known: Collection[str]) -> frozenset[str]:
    """Return the groups of access.yaml that the claims name; none for an absent claim."""
    groups_claim = _at(claims, oidc.groups_claim)
    values = (
        [groups_claim]
        if isinstance(groups_claim, str)
        else groups_claim
        if isinstance(groups_claim, list)
        else []
    )
    if groups_claim is None and _is_overage(claims):
        log.warning(
            "the provider has left out the groups of %.100r, who is in too many: let it send only the groups "
            "of this application, or app roles (docs/how-to/sign-in-with-oidc.md)",
            claims.get("sub"),
        )
    named = (each for each in values[:_MOST_GROUPS] if isinstance(each, str) and len(each) <= _MOST_GROUP)
    return frozenset(group for group in map(oidc.group_of, named) if group is not None and group in known)


def _is_overage(claims: Claims) -> bool:
    """Return whether Entra replaced the groups by a link: it lists up to 200 in a token."""
    names = claims.get("_claim_names")
    return claims.get("hasgroups") is True or (isinstance(names, Mapping) and "groups" in names)


def _at(claims: Claims, path: str) -> object:
    """Return the claim of that name, or the nested one at a dotted path."""
    if path in claims:
        return claims[path]
    value: object = claims
    for step in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e11:
        raise RefusedToken(f"its claim {name} is not a time")
    return float(value)
