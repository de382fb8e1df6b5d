"""[core] Grants of access.yaml as Kafka's access rules (docs/adr/0043-grants-as-kafka-acls.md).

Actions become operations by one table. Patterns become rules by one of two ways::

    shop.orders     LITERAL shop.orders (and .dlq, .quarantine, .late)
    shop.**         LITERAL shop, PREFIXED shop.
    nyc.*.delays    LITERAL of each existing topic that the grant covers, as decide.py decides
    views: [c]      LITERAL of each existing changelog of the view

So a rule never allows more than the server does. A topic that masks may hide something of is not read past
the hub: its readers get no READ. Topics made later are covered by prefixes, or after the next
apply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hub.access.access_yaml import AccessFile
from hub.access.decide import ANONYMOUS, ROLES, AccessPolicy, Grant, Principal, decide
from hub.access.masking.decision import MaskPolicy, reads_as_written
from hub.caller import Action, Kind, Resource
from hub.kafka.acls import AccessRule
from hub.kafka.acls import Resource as KafkaResource
from hub.schema_registry.policy.label_patterns import Labels

# What an action over HTTP is for a client of Kafka. `operate` repairs dead letters and silences alerts, which
# the hub does for its caller: Kafka has nothing of the kind.
OPERATIONS: Final[Mapping[Action, tuple[str, ...]]] = {
    Action.describe: ("DESCRIBE", "DESCRIBE_CONFIGS"),
    Action.read: ("READ",),
    Action.write: ("WRITE",),
    Action.operate: (),
    Action.admin: ("CREATE", "DELETE", "ALTER", "ALTER_CONFIGS"),
}
PatternKind = Literal["LITERAL", "PREFIXED"]
EVERYBODY: Final = "User:*"
_BESIDE = ("", ".dlq", ".quarantine", ".late")


@dataclass(frozen=True, slots=True)
class RulesPlan:
    """Differences between the grants and the cluster. ``foreign``: rules of principals that access.yaml does
    not name; they stay unless they are named to be removed.
    """

    add: tuple[AccessRule, ...]
    remove: tuple[AccessRule, ...]
    foreign: tuple[AccessRule, ...]


def principal_of(name: str) -> str:
    """Return Kafka's principal of a user or token: the name with which its client signs in there."""
    return f"User:{name}"


def desired_rules(
    policy: AccessPolicy,
    principals: Iterable[Principal],
    topics: Collection[str],
    masks: MaskPolicy | None = None,
) -> frozenset[AccessRule]:
    """Return the rules of everybody, and of each principal, on a cluster with these topics."""
    everybody = [*principals]
    access_rules = set(
        _rules(EVERYBODY, policy.anonymous, topics, _masked(masks, policy, [ANONYMOUS, *everybody], topics))
    )
    for who in everybody:
        grants = [grant for source, grant in policy.grants(who) if source != "anonymous"]
        access_rules.update(
            _rules(principal_of(who.name), grants, topics, _masked(masks, policy, [who], topics))
        )
    return frozenset(access_rules)


def _masked(
    masks: MaskPolicy | None, policy: AccessPolicy, whom: Iterable[Principal], topics: Iterable[str]
) -> frozenset[str] | None:
    """Return the topics that one of these principals may not read as they were written; None without
    masks."""
    if masks is None or not masks.rules:
        return None
    principals = [*whom]
    return frozenset(
        topic
        for topic in topics
        if not all(reads_as_written(masks, policy, who, topic) for who in principals)
    )


def plan_rules(
    desired: Collection[AccessRule],
    existing: Collection[AccessRule],
    principals: Iterable[Principal],
    *,
    own: str | None = None,
    prune: Collection[str] = (),
) -> RulesPlan:
    """Compare. ``own``: name of the hub itself at the cluster, whose rules are left alone. ``prune``:
    principals whose rules are removed although access.yaml does not name them.
    """
    named = {EVERYBODY, *(principal_of(each.name) for each in principals), *prune}
    if own is not None:
        named.discard(principal_of(own))
    ours = {each for each in existing if each.principal in named and _is_managed(each)}
    wanted = {each for each in desired if each.principal in named}
    foreign = {each for each in existing if each.principal not in named and _is_managed(each)}
    if own is not None:
        foreign = {each for each in foreign if each.principal != principal_of(own)}
    return RulesPlan(*(tuple(sorted(each)) for each in (wanted - ours, ours - wanted, foreign)))


def timed_plan(
    file: AccessFile, now_ms: int, topics: Collection[str], existing: Collection[AccessRule], own: str | None
) -> RulesPlan:
    """Return the rules that only grants with ``until`` decide: those of grants in force are added, and those
    that ended grants alone gave are removed. All other rules are ``hub access apply``'s.
    """
    people, masks = file.principals(), file.mask_policy()

    def wanted(policy: AccessPolicy) -> frozenset[AccessRule]:
        return desired_rules(policy, people, topics, masks)

    now = wanted(file.policy(now_ms))
    lasting = wanted(file.policy_of(lambda grant: grant.until is None))
    ended = wanted(file.policy_of(lambda _grant: True)) - now
    spared = None if own is None else principal_of(own)
    add = {each for each in now - lasting - {*existing} if each.principal != spared}
    remove = {each for each in ended & {*existing} if each.principal != spared}
    return RulesPlan(tuple(sorted(add)), tuple(sorted(remove)), ())


def _is_managed(rule: AccessRule) -> bool:
    """Return whether apply may remove the rule: rules that deny, of one host or of the cluster,
    are a person's."""
    return rule.permission == "ALLOW" and rule.host == "*" and rule.resource != "CLUSTER"


def _rules(
    principal: str, grants: Collection[Grant], topics: Collection[str], masked: frozenset[str] | None
) -> Iterator[AccessRule]:
    actions: set[Action] = set()
    for grant in grants:
        for name, pattern, action in _covered(grant, topics, masked):
            actions.add(action)
            for operation in OPERATIONS[action]:
                yield AccessRule(name, pattern, principal, "*", operation, "ALLOW")
    if principal == EVERYBODY:
        return
    own = principal.removeprefix("User:")
    needed: list[tuple[Action, KafkaResource, str]] = [
        (Action.read, "GROUP", "READ"),
        (Action.write, "TRANSACTIONAL_ID", "WRITE"),
    ]
    for action, resource, operation in needed:
        if action in actions:
            yield AccessRule(own, "LITERAL", principal, "*", operation, "ALLOW", resource)
            yield AccessRule(f"{own}.", "PREFIXED", principal, "*", operation, "ALLOW", resource)


def _covered(
    grant: Grant, topics: Collection[str], masked: frozenset[str] | None
) -> Iterator[tuple[str, PatternKind, Action]]:
    """Yield name, kind of pattern and action of the rules of one grant. ``masked``: topics that are not
    read; with masks a pattern of READ becomes one rule for each existing topic.
    """
    for action in ROLES[grant.role]:
        each_alone = action is Action.read and masked is not None
        for pattern in grant.topics:
            if not each_alone and not _needs_expansion(pattern, action, grant.role):
                for name, kind in _patterns(pattern):
                    yield name, kind, action
        for topic in topics:
            if _allows(grant, action, topic) and not (each_alone and topic in (masked or ())):
                yield topic, "LITERAL", action
        own_are_masked = each_alone and any(topic.startswith("_") for topic in masked or ())
        if grant.hub and grant.role == "admin" and not own_are_masked:
            yield "_", "PREFIXED", action


def _patterns(pattern: Labels) -> Iterator[tuple[str, PatternKind]]:
    if pattern[-1] == "**":
        stem = ".".join(pattern[:-1])
        yield stem, "LITERAL"
        yield f"{stem}.", "PREFIXED"
    else:
        for beside in _BESIDE:
            yield ".".join(pattern) + beside, "LITERAL"


def _needs_expansion(pattern: Labels, action: Action, role: str) -> bool:
    """Return whether a pattern has no equivalent in Kafka: wildcards elsewhere than at the end, all topics
    but those of the hub, and changelogs, which only admins write.
    """
    fixed = pattern[:-1] if pattern[-1] == "**" else pattern
    if not fixed or any("*" in label for label in fixed):
        return True
    return fixed[0] == "views" and action is Action.write and role != "admin"


def _allows(grant: Grant, action: Action, topic: str) -> bool:
    alone = AccessPolicy(anonymous=(grant,))
    return decide(alone, Principal("", "anonymous"), action, Resource(Kind.topic, topic)).allowed
