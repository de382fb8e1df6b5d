"""[core] Authorization: decide who may do which action on what, and name the missing grant.

A grant is a role over patterns of the topic tree: ``*`` is one label, ``**`` any number. It also covers names
that belong to a covered name::

    nyc.jfk.departures-value          the topic nyc.jfk.departures (a subject, in any context)
    shop.orders.dlq, .quarantine      the topic shop.orders
    views.customer_360[.v2][.dlq]     the view customer_360

There is no other implication: no grant removes access, and the hub's own topics (``_…``) need patterns that
begin with ``_``, or the admin role over the hub.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hub.caller import AccessDecision, Action, Kind, Resource
from hub.schema_registry.model import subject_names
from hub.schema_registry.policy.label_patterns import Labels, fits, labels_of

# Actions of each role. Producers register their schemas, but need not read what others wrote.
ROLES: Mapping[str, frozenset[Action]] = {
    "read": frozenset({Action.describe, Action.read}),
    "write": frozenset({Action.describe, Action.write}),
    "operate": frozenset({Action.describe, Action.operate}),
    "admin": frozenset(Action),
}

_LONGEST_NAME = 249  # characters of a topic in Kafka
_BESIDE = (".dlq", ".quarantine", ".late")
_CHANGELOG = "views."
_VERSION = re.compile(r"(?P<view>[^.@]+)(?:@\d+|\.v\d+)?")


@dataclass(frozen=True, slots=True)
class Grant:
    """A role over topics and views. ``hub`` covers what belongs to no topic: mirrors, alerts, global
    settings. ``until_ms``: the end of the grant, which is not in the policy afterwards; None: it has none.
    """

    role: str
    topics: tuple[Labels, ...] = ()
    views: tuple[Labels, ...] = ()
    hub: bool = False
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity. ``kind`` is user, token, proxy, oidc (a provider's token or login), own (the hub's
    processes) or anonymous, which has an empty name. ``limits``: grants of the token by
    which the person acts; what is outside of them is refused.
    """

    name: str
    kind: str
    groups: frozenset[str] = frozenset()
    limits: tuple[Grant, ...] | None = None
    by_token: bool = False  # one of the person's tokens acts, not the person


ANONYMOUS = Principal("", "anonymous")


@dataclass(frozen=True)
class AccessPolicy:
    """Grants by group and by name of a user or token. ``contact`` is a text that names who can grant more."""

    by_group: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    by_name: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    anonymous: tuple[Grant, ...] = ()
    contact: str = ""

    def grants(self, who: Principal) -> Iterator[tuple[str, Grant]]:
        """Yield (source, grant): grants for everybody, for the groups, then for the principal itself."""
        for grant in self.anonymous:
            yield "anonymous", grant
        for group in sorted(who.groups):
            for grant in self.by_group.get(group, ()):
                yield f"group {group}", grant
        if who.name:
            for grant in self.by_name.get(who.name, ()):
                yield f"{who.kind} {who.name}", grant


def decide(policy: AccessPolicy, who: Principal, action: Action, what: Resource) -> AccessDecision:
    """Decide whether ``who`` may do ``action`` on ``what``. The decision's reason names the grant, or the
    missing one.
    """
    if who.kind == "own":
        return AccessDecision(True, "the hub's own processes may do everything")
    names = list(granted_as(what))
    # Only the view's materializer writes its changelog; producers do not.
    needed = Action.admin if action is Action.write and names[-1].kind is Kind.view else action
    for source, grant in policy.grants(who):
        if _allows(grant, needed, names):
            if who.limits is not None and not any(_allows(each, needed, names) for each in who.limits):
                return AccessDecision(
                    False,
                    f"this token of {who.name} may not {action} {what}, {who.name} may",
                    "make a token with that grant: hub access token create",
                )
            return AccessDecision(True, f"{source} has {grant.role} over {grant_text(grant)}")
    whom = who.name or "not signed in"
    roles = " or ".join(role for role, actions in ROLES.items() if needed in actions)
    over, ask = missing_over(names[-1]), _request(who, needed, names[-1])
    way = f"ask {policy.contact}" if policy.contact else "ask those who keep that file"
    return AccessDecision(
        False,
        f"{whom} may not {action} {what}",
        f"it takes the role {roles} with {over} in access.yaml; "
        + (f"hub access request {ask}, or {way}" if ask else way),
        ask,
    )


def _request(who: Principal, action: Action, what: Resource) -> str:
    """Return role and object of a request for the missing grant; "" where nobody can ask for it."""
    role = next((role for role, actions in ROLES.items() if action in actions), "admin")
    own = what.name.startswith(("_", _CHANGELOG)) and what.kind is Kind.topic
    if not who.name or role == "admin" or what.kind is Kind.hub or own or len(what.name) > _LONGEST_NAME:
        return ""
    return f"{role} {'view:' if what.kind is Kind.view else ''}{what.name}"


def has_any(policy: AccessPolicy, who: Principal) -> bool:
    """Return True if the principal has a name or any grant, so there may be something to list."""
    return who.kind == "own" or bool(who.name) or next(policy.grants(who), None) is not None


def granted_as(what: Resource) -> Iterator[Resource]:
    """Yield the resources whose grants cover this one: itself, and its owner (topic or view)."""
    name, kind = what.name, what.kind
    if kind is Kind.subject:
        name, kind = subject_names.topic_of(name), Kind.topic
    if kind is not Kind.topic:
        yield Resource(kind, name)
        return
    yield Resource(Kind.topic, name)
    inner = name
    while inner.endswith(_BESIDE):
        inner = inner.rpartition(".")[0]
    if inner.startswith(_CHANGELOG) and (match := _VERSION.fullmatch(inner.removeprefix(_CHANGELOG))):
        yield Resource(Kind.view, match["view"])
    elif inner != name:
        yield Resource(Kind.topic, inner)


def _allows(grant: Grant, action: Action, names: Iterable[Resource]) -> bool:
    return action in ROLES[grant.role] and any(_covers(grant, each) for each in names)


def _covers(grant: Grant, what: Resource) -> bool:
    if what.kind is Kind.hub:
        return grant.hub
    labels = labels_of(what.name)
    if what.kind is Kind.view:
        return any(fits(each, labels) for each in grant.views)
    if not what.name.startswith("_"):
        return any(fits(each, labels) for each in grant.topics)
    if grant.hub and grant.role == "admin":
        return True
    return any(fits(each, labels) for each in grant.topics if each[0].startswith("_"))


def missing_over(what: Resource) -> str:
    """Return the scope of a grant that would cover the resource.

    >>> missing_over(Resource(Kind.topic, "shop.orders"))
    'topics: ["shop.orders"]'
    """
    if what.kind is Kind.hub:
        return "hub: true"
    return f'{"views" if what.kind is Kind.view else "topics"}: ["{what.name[:249]}"]'


def grant_text(grant: Grant) -> str:
    """Describe the scope and the end of a grant in words."""
    parts = [
        f"{what} {', '.join(map('.'.join, patterns))}"
        for what, patterns in (("topics", grant.topics), ("views", grant.views))
        if patterns
    ]
    scope = " and ".join([*parts, *(("the hub",) if grant.hub else ())])
    return scope if grant.until_ms is None else f"{scope} until {utc_text(grant.until_ms)}"


def utc_text(at_ms: int) -> str:
    """Format a time as access.yaml has it.

    >>> utc_text(1_798_070_400_000)
    '2026-12-24T00:00:00Z'
    """
    return f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def patterns_of(patterns: Iterable[str]) -> tuple[Labels, ...]:
    return tuple(labels_of(each) for each in patterns)
