"""[core] The governance report: one row for each topic and view."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hub.access.access_yaml import AccessFile
from hub.access.decide import ANONYMOUS, Principal, decide
from hub.access.live_config import AccessRules
from hub.caller import Action, Kind, Resource
from hub.errors import PeerError
from hub.governance.flows import flows_of, tags_of_column
from hub.governance.model import (
    UNKNOWN,
    ClearReader,
    Flow,
    GovernanceFacts,
    GovernanceRow,
    GovernedTopic,
    ViewNode,
)
from hub.masking.shape import FieldPath, normal
from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.topics.tree.tree import matches

MOST_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class GovernanceReport:
    """Rows of topics and views, by name. ``left_out``: rows beyond the limit. ``unread``: files that cannot
    be read, so their declarations are not in the report."""

    rows: tuple[GovernanceRow, ...]
    left_out: int
    unread: tuple[str, ...]


def report_of(
    facts: GovernanceFacts, rules: AccessRules | None, tree: str = "", tag: str = ""
) -> GovernanceReport:
    """Return the report. ``tree``: a node of the topic tree, or a view; "": everything. ``tag``: only objects
    with a field of this tag."""
    alike: Alike = {} if rules is None else alike_principals(rules.file)
    flows = {name: flows_of(facts, topic) for name, topic in facts.topics.items()}
    made = [
        *(_topic(facts, each, flows[name], rules, alike) for name, each in _below(facts.topics, tree)),
        *(_view(facts, each, flows, rules, alike) for _, each in _views(facts, tree)),
    ]
    wanted = [each for each in made if not tag or any(tag in tags for tags in each.fields.values())]
    return GovernanceReport(tuple(wanted[:MOST_ROWS]), max(0, len(wanted) - MOST_ROWS), facts.unread)


def _below(topics: Mapping[str, GovernedTopic], tree: str) -> Iterator[tuple[str, GovernedTopic]]:
    for name, topic in sorted(topics.items()):
        if not tree or name == tree or name.startswith(f"{tree}.") or ("*" in tree and matches(tree, name)):
            yield name, topic


def _views(facts: GovernanceFacts, tree: str) -> Iterator[tuple[str, ViewNode]]:
    """Yield the views of that name, and those that read a topic of the tree."""
    topics = {name for name, _ in _below(facts.topics, tree)}
    for name, view in sorted(facts.views.items()):
        if not tree or name == tree.removeprefix("view:") or topics & {*_topics_of(facts, view)}:
            yield name, view


def _topics_of(facts: GovernanceFacts, view: ViewNode, within: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the topics that a view reads, through other views, too."""
    for source in view.sources:
        inner = facts.views.get(source.removeprefix(CHANGELOG_PREFIX))
        if not source.startswith(CHANGELOG_PREFIX):
            yield source
        elif inner is not None and inner.name not in within:
            yield from _topics_of(facts, inner, (*within, view.name))


def _topic(
    facts: GovernanceFacts, topic: GovernedTopic, flows: list[Flow], rules: AccessRules | None, alike: Alike
) -> GovernanceRow:
    tagged = {path: tags for path, tags in (topic.fields or {}).items() if tags}
    readers, more = readers_of(rules, alike, Resource(Kind.topic, topic.name), tagged)
    unknown = []
    if topic.fields is None:
        unknown.append("fields: no schema is registered, so no field has a tag")
    return GovernanceRow(
        "topic",
        topic.name,
        topic.owner or UNKNOWN,
        topic.purpose or UNKNOWN,
        topic.labels,
        {".".join(path): tuple(sorted(tags)) for path, tags in sorted(tagged.items())},
        tuple(flows),
        readers,
        more,
        topic.retention or UNKNOWN,
        topic.legal_hold,
        topic.erasable_by,
        (*unknown, *_common(flows, readers)),
    )


def _view(
    facts: GovernanceFacts,
    view: ViewNode,
    flows: Mapping[str, list[Flow]],
    rules: AccessRules | None,
    alike: Alike,
) -> GovernanceRow:
    tagged: dict[FieldPath, tuple[str, ...]] = {}
    untraced: list[str] = []
    for column in view.columns:
        tags, is_traced = tags_of_column(facts, view, column)
        if tags:
            tagged[(column,)] = tuple(sorted(tags))
        if not is_traced:
            untraced.append(column)
    unknown = [f"origin of {', '.join(untraced)}: each may hold every field"] if untraced else []
    here = f"view {view.name} column "
    own = [_from_here(flow, here) for each in flows.values() for flow in each if _passes(flow, here)]
    topics = [facts.topics[each] for each in _topics_of(facts, view) if each in facts.topics]
    readers, more = readers_of(rules, alike, Resource(Kind.view, view.name), tagged)
    return GovernanceRow(
        "view",
        view.name,
        view.owner or UNKNOWN,
        "; ".join(sorted({each.purpose or UNKNOWN for each in topics})) or UNKNOWN,
        tuple(sorted({label for each in topics for label in each.labels})),
        {".".join(path): tags for path, tags in sorted(tagged.items())},
        tuple(dict.fromkeys(own)),
        readers,
        more,
        view.retention or UNKNOWN,
        "; ".join(sorted({each.legal_hold for each in topics} - {""})),
        "; ".join(sorted({each.erasable_by for each in topics} - {""})),
        (*unknown, *_common(own, readers)),
    )


def _passes(flow: Flow, here: str) -> bool:
    return any(step.startswith(here) for step in flow.steps[:-1])


def _from_here(flow: Flow, here: str) -> Flow:
    """Return the part of a flow from a view on."""
    at = next(n for n, step in enumerate(flow.steps) if step.startswith(here))
    column = flow.steps[at].removeprefix(here)
    return replace(flow, field=column, steps=flow.steps[at:])


def _common(flows: Iterable[Flow], readers: Iterable[ClearReader]) -> Iterator[str]:
    places = sorted({each.place for each in flows if not each.is_traced})
    if places:
        yield f"flows: {len(places)} are possible and not traced: {', '.join(places[:5])}"
    if any(not each.is_known for each in readers):
        yield "readers: what masks hide is not known now, so the report assumes nothing"


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
