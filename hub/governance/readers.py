"""[core] Principals who read tagged fields in clear, by grants and masks.

Principals with the same groups, grants and claims see the same, so one decision is made for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hub.access.access_yaml import AccessFile
from hub.access.decide import ANONYMOUS, Principal, decide
from hub.access.live_config import AccessRules
from hub.caller import Action, Resource
from hub.errors import PeerError
from hub.governance.model import ClearReader
from hub.masking.shape import FieldPath, normal

MOST_READERS = 200
Alike = Mapping[Principal, tuple[Principal, ...]]


def alike_principals(file: AccessFile) -> Alike:
    """Return all principals of the file, and the groups themselves, by one of those who see the same."""
    found: dict[object, list[Principal]] = {}
    for who in file.principals():
        node = file.users.get(who.name) or file.tokens[who.name]
        found.setdefault((who.groups, repr(node.grants), repr(node.claims)), []).append(who)
    for group in file.groups:  # of the identity provider: their members are not in the file
        found.setdefault(("group", group), []).append(Principal("", "group", frozenset([group])))
    found["anonymous"] = [ANONYMOUS]
    return {each[0]: tuple(each) for each in found.values()}


def readers_of(
    rules: AccessRules | None, alike: Alike, what: Resource, tagged: Iterable[FieldPath]
) -> tuple[tuple[ClearReader, ...], int]:
    """Return who may read the object, with the tagged fields that they see in clear, and how many more do.
    ``rules`` None: access is not controlled."""
    fields = sorted(tagged)
    if rules is None:
        everything = tuple(".".join(each) for each in fields)
        return (ClearReader("everybody", "anonymous", everything, "access is not controlled"),), 0
    found: list[ClearReader] = []
    for one, others in alike.items():
        decision = decide(rules.policy, one, Action.read, what)
        if decision.allowed:
            clear, is_known = _clear(rules, one, what, fields)
            for each in others:
                name = each.name or ", ".join(each.groups) or "anonymous"
                found.append(ClearReader(name, each.kind, clear, decision.reason, is_known))
    found.sort(key=lambda each: (not each.clear, each.kind, each.name))
    return tuple(found[:MOST_READERS]), max(0, len(found) - MOST_READERS)


def _clear(
    rules: AccessRules, who: Principal, what: Resource, fields: list[FieldPath]
) -> tuple[tuple[str, ...], bool]:
    if not fields:
        return (), True
    try:
        shape = rules.shape(who, what)
    except PeerError:  # assume the most
        return tuple(".".join(each) for each in fields), False
    if shape.closed:
        return (), True
    hidden = {tuple(map(normal, each.path)) for each in shape.fields}
    return tuple(".".join(each) for each in fields if tuple(map(normal, each)) not in hidden), True
