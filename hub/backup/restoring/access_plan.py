"""[core] Access rules (ACLs) of a backup that the target gets: those of the restored topics that it lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hub.kafka.acls import AccessRule


def rules_to_add(
    saved: Iterable[AccessRule], there: Collection[AccessRule], topics: Collection[str], *, whole: bool
) -> tuple[tuple[AccessRule, ...], int]:
    """Return the rules to add, denials first, and how many are left out because they also cover other
    resources.

    ``topics``: those that are restored. ``whole``: all of the backup is restored, and so are all of its
    rules.
    """
    missing = sorted(
        {each for each in saved if each not in there}, key=lambda rule: (rule.permission == "ALLOW", rule)
    )
    chosen = [each for each in missing if whole or _is_of(each, topics)]
    return tuple(chosen), 0 if whole else sum(_concerns(each, topics) for each in missing) - len(chosen)


def _is_of(rule: AccessRule, topics: Collection[str]) -> bool:
    """Return whether a rule is about one of the topics alone."""
    return rule.resource == "TOPIC" and rule.pattern == "LITERAL" and rule.name in topics


def _concerns(rule: AccessRule, topics: Collection[str]) -> bool:
    if rule.resource != "TOPIC":
        return False
    if rule.pattern == "PREFIXED":
        return any(topic.startswith(rule.name) for topic in topics)
    return rule.name == "*" or rule.name in topics


def rule_text(rule: AccessRule) -> str:
    """Return a rule in words.

    >>> from hub.kafka.acls import AccessRule
    >>> rule_text(AccessRule("shop.", "PREFIXED", "User:ana", "*", "READ", "ALLOW"))
    'User:ana ALLOW READ topic shop.* from host *'
    """
    name = f"{rule.name}*" if rule.pattern == "PREFIXED" else rule.name
    resource = rule.resource.lower().replace("_", " ")
    return f"{rule.principal} {rule.permission} {rule.operation} {resource} {name} from host {rule.host}"
