"""[core] People who may answer a request: the owner of its node, and admins.

An owner is the text of ``owner`` in topics.yaml or a view's file, as the name of a user or a group. Admins
are those with the role admin over the whole scope of the request, or over the hub. A request for a node with
everything below needs an owner of the node and of each topic there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hub.access_requests.model import AccessRequest
from hub.caller import HUB, Action, Caller, Kind, Resource
from hub.schema_registry.policy.label_patterns import fits, labels_of
from hub.topics.tree.tree import nodes_above
from hub.topics.tree.tree_file import LONGEST_NAME, TreeFile

_BELOW = ".**"
_UNSEEN = "?"  # a label that no pattern writes out


@dataclass(frozen=True)
class OwnerFacts:
    """Owners of topics and views by name; ``tree`` has those of nodes. A file that cannot be read has
    none, so only admins answer."""

    topics: Mapping[str, str] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    tree: TreeFile = field(default_factory=lambda: TreeFile(topics={}))


def owners_of(request: AccessRequest, facts: OwnerFacts) -> frozenset[str]:
    """Return the owners of everything that the request covers; "" stands for a part without an owner."""
    if request.view:
        return frozenset([facts.views.get(request.view, "")])
    node = request.topic.removesuffix(_BELOW)
    found = {_owner_of_node(facts.tree, node) if node != request.topic or node not in facts.topics else None}
    pattern = labels_of(request.topic)
    found |= {owner for name, owner in facts.topics.items() if fits(pattern, labels_of(name))}
    return frozenset(each for each in found if each is not None)


def _owner_of_node(tree: TreeFile, name: str) -> str:
    owner = tree.defaults.owner
    for _, node in nodes_above(tree, name):
        owner = node.owner or owner
    return owner or ""


def may_answer(request: AccessRequest, caller: Caller | None, owners: Collection[str]) -> bool:
    """Return whether the caller may approve or refuse, apart from being the one who asked."""
    if caller is None or caller.decide(Action.admin, HUB).allowed:
        return True
    names = {caller.name, *caller.groups} - {""}
    if owners and all(each in names for each in owners):
        return True
    return all(caller.decide(Action.admin, each).allowed for each in _probes(request))


def _probes(request: AccessRequest) -> list[Resource]:
    """Return resources whose grants together cover the whole scope: of NODE.** the node, a label below it,
    and more labels below than any pattern without ``**`` has."""
    if request.view:
        return [Resource(Kind.view, request.view)]
    node = request.topic.removesuffix(_BELOW)
    if node == request.topic:
        return [Resource(Kind.topic, node)]
    depths = (0, 1, LONGEST_NAME)
    return [Resource(Kind.topic, ".".join([node, *[_UNSEEN] * depth])) for depth in depths]


def is_visible(request: AccessRequest, caller: Caller | None, answers: bool) -> bool:
    """Return whether the caller sees the request: it is theirs, for them or their group, or theirs to
    answer."""
    if caller is None or answers:
        return True
    for_them = (
        request.grantee in caller.groups
        if request.grantee_kind == "group"
        else request.grantee == caller.name
    )
    return bool(caller.name) and (request.requested_by == caller.name or for_them)
