"""[core] Decide what a principal sees of a view or topic: rules and facts in, one Visibility out.

Of several rules on a field the strictest holds. A mask on a topic's field follows into the columns of
views that
are made of it, and into views on views. What cannot be traced is treated as the strictest of what it may
hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hub.access.decide import AccessPolicy, Principal, decide, granted_as
from hub.access.masking.facts import ColumnOrigin, MaskFacts, TopicFields, ViewColumns
from hub.access.masking.rules import ROLE_ACTIONS, Claims, MaskedPrincipal, MaskRule, names
from hub.caller import Kind, Resource
from hub.masking.shape import KEY, OPEN, FieldPath, MaskedField, RowCondition, Visibility, normal
from hub.masking.values import SHOWN, Treatment, strictest

_ENVELOPE = ("before", "after")
_KEYS = ("key", "_key")
_MOST_VIEWS = 16  # views on views that a mask is followed through


@dataclass(frozen=True, slots=True)
class MaskPolicy:
    """All rules of the file, and the claims of its users and tokens. ``secret``: key of the hashes."""

    rules: tuple[MaskRule, ...] = ()
    claims: Mapping[str, Claims] | None = None

    def principal(self, who: Principal, policy: AccessPolicy, what: Resource) -> MaskedPrincipal:
        """Return the principal as rules see it, with its roles over the object."""
        roles = {role for role, action in ROLE_ACTIONS.items() if decide(policy, who, action, what).allowed}
        return MaskedPrincipal(who.name, who.groups, frozenset(roles), (self.claims or {}).get(who.name, {}))


def reads_as_written(masks: MaskPolicy, policy: AccessPolicy, who: Principal, topic: str) -> bool:
    """Return whether the principal may read a topic's records past the hub: no rule hides anything of them.

    Tags and what views are made of are not asked: a rule that may hide something counts.
    """
    what = Resource(Kind.topic, topic)
    owner = list(granted_as(what))[-1]
    masked_principal = masks.principal(who, policy, what)
    if owner.kind is Kind.view or is_own(topic):
        return not any(rule.may_hide_from(masked_principal) for rule in masks.rules)
    return all(rule.treatment_of(masked_principal) == SHOWN for rule in masks.rules if rule.covers(what))


def is_own(topic: str) -> bool:
    """Return whether a topic is one of the hub's own. The schemas are not: they hold no records."""
    return topic.startswith("_") and topic != "_schemas"


@dataclass(frozen=True, slots=True)
class MaskDecision:
    """Decides for one principal. ``secret``: key of the hashes."""

    masks: MaskPolicy
    policy: AccessPolicy
    who: Principal
    facts: MaskFacts
    secret: bytes

    def shape(self, what: Resource) -> Visibility:
        """Return what the principal sees of a topic or view. Raises PeerError while the facts are not
        known."""
        return self._shape(what, ())

    def _shape(self, what: Resource, within: tuple[str, ...]) -> Visibility:
        plain = MaskedPrincipal(self.who.name, self.who.groups)
        if self.who.kind == "own" or not any(rule.may_hide_from(plain) for rule in self.masks.rules):
            return OPEN
        owner = list(granted_as(what))[-1]
        if owner.kind is Kind.view:
            made = self._of_view(owner, within)
            if what.kind is Kind.view:
                return made
            return self._beside(what, made)
        made = self._of_topic(owner)
        return made if owner == what else self._beside(what, made)

    def _beside(self, what: Resource, owner: Visibility) -> Visibility:
        """Return the shape of a topic that belongs to another object: its records may have any form."""
        if owner.is_open:
            return owner
        return Visibility(str(what), closed=f"its records are those of {owner.name}, in other forms")

    def _rules(self, what: Resource) -> list[tuple[MaskRule, MaskedPrincipal]]:
        who = self.masks.principal(self.who, self.policy, what)
        return [(rule, who) for rule in self.masks.rules if rule.covers(what)]

    # ---- topics

    def _of_topic(self, what: Resource) -> Visibility:
        if is_own(what.name):
            return Visibility(str(what), closed="it may hold records of other topics")
        treatments: dict[FieldPath, Treatment] = {}
        keys, rows = [], list[RowCondition]()
        about = self._rules(what)
        hiding = [(rule, how) for rule, who in about if (how := rule.treatment_of(who)).form != "shown"]
        facts = self.facts.topic(what.name) if hiding else TopicFields()
        for rule, how in hiding:
            for path in _fields_of(rule, facts):
                if path[0] == "_key" or path == (KEY,):
                    keys.append(how)
                treatments[path] = strictest((how, treatments.get(path, SHOWN)))
        for rule, who in about:
            rows += rule.conditions(who)
        key = strictest([*keys, _topic_key(facts, treatments)])
        fields = tuple(MaskedField(path, how) for path, how in sorted(treatments.items()))
        return Visibility(str(what), fields, tuple(rows), key, secret=self.secret)

    # ---- views

    def _of_view(self, what: Resource, within: tuple[str, ...]) -> Visibility:
        if what.name in within or len(within) >= _MOST_VIEWS:
            return Visibility(str(what), closed="views read one another in a circle, or too many levels deep")
        facts = self.facts.view(what.name)
        sources = {topic: self._source(topic, (*within, what.name)) for topic in facts.sources}
        about = self._rules(what)
        columns: dict[str, list[Treatment]] = {}
        for column in (*facts.columns, KEY):
            how = self._of_column(column, facts, sources, about)
            columns[column] = [each for each in how if each.form != "shown"]
        columns[KEY] += [each for name in facts.key_columns for each in columns.get(name, ()) if name != KEY]
        made = {column: strictest(how) for column, how in columns.items() if how}
        rows = tuple(each for rule, who in about for each in rule.conditions(who))
        return Visibility(
            str(what),
            tuple(MaskedField((column,), how) for column, how in sorted(made.items()) if column != KEY),
            rows,
            made.get(KEY, SHOWN),
            _unfiltered(about, sources),
            self.secret,
            frozenset(facts.columns),
        )

    def _source(self, topic: str, within: tuple[str, ...]) -> Visibility:
        what = Resource(Kind.topic, topic)
        owner = list(granted_as(what))[-1]
        return self._of_view(owner, within) if owner.kind is Kind.view else self._of_topic(owner)

    def _of_column(
        self,
        column: str,
        facts: ViewColumns,
        sources: Mapping[str, Visibility],
        about: Sequence[tuple[MaskRule, MaskedPrincipal]],
    ) -> list[Treatment]:
        """Return the treatments that hold for a column, from the view's own rules and those of its
        sources."""
        origins = facts.key if column == KEY else facts.columns[column]
        treatments: list[Treatment] = []
        for rule, who in about:
            if _is_named(rule, column) or (rule.tags and self._has_tag(rule.tags, origins, 0)):
                treatments.append(rule.treatment_of(who))
        if origins is None and column == KEY and facts.key_columns:
            return treatments  # follows from its columns
        for topic, shape in sources.items():
            treatments += _from_source(topic, shape, origins, self._holds_any(topic, shape, column, facts))
        return treatments

    def _holds_any(self, topic: str, shape: Visibility, column: str, facts: ViewColumns) -> bool:
        """Return whether a nested column may hold any masked field, because no schema describes it."""
        return column in facts.nested and bool(shape.fields) and not self._facts_of(topic).fields

    def _facts_of(self, topic: str) -> TopicFields:
        owner = list(granted_as(Resource(Kind.topic, topic)))[-1]
        if owner.kind is not Kind.view:
            return self.facts.topic(owner.name)
        return TopicFields({(column,): frozenset() for column in self.facts.view(owner.name).columns})

    def _has_tag(self, tags: frozenset[str], origins: Iterable[ColumnOrigin] | None, depth: int) -> bool:
        """Return whether a column is made of a field with one of the tags; True where that is not known."""
        if origins is None or depth > _MOST_VIEWS:
            return True
        for each in origins:
            owner = list(granted_as(Resource(Kind.topic, each.topic)))[-1]
            if owner.kind is Kind.view:
                inner = self.facts.view(owner.name).columns.get(each.path[0], ())
                if self._has_tag(tags, inner, depth + 1):
                    return True
                continue
            fields = self.facts.topic(owner.name).fields
            if any(own & tags and related(path, each.path) for path, own in fields.items()):
                return True
        return False


def _is_named(rule: MaskRule, column: str) -> bool:
    return any(names(each, (column,)) or normal(each[0]) == normal(column) for each in rule.fields)


def _fields_of(rule: MaskRule, facts: TopicFields) -> list[FieldPath]:
    """Return the paths that a rule is about: named ones as they are named, tagged ones as the schema has
    them."""
    found = list(rule.fields)
    for path, tags in facts.fields.items():
        if tags & rule.tags or any(names(each, path) for each in rule.fields):
            found.append(path)
    return found


def _topic_key(facts: TopicFields, masked: Mapping[FieldPath, Treatment]) -> Treatment:
    """Return the treatment of record keys: that of the declared field, else the strictest of all, never
    refused."""
    if facts.key is None:
        how = strictest(masked.values())
    else:
        how = strictest(each for path, each in masked.items() if names(path, tuple(facts.key.split("."))))
    return Treatment("nulled", why=how.why) if how.form == "refused" else how


def _from_source(
    topic: str, shape: Visibility, origins: Iterable[ColumnOrigin] | None, holds_any: bool
) -> list[Treatment]:
    """Return the treatments of a source's fields that a column may hold."""
    if shape.closed:
        return [Treatment("refused", why=shape.closed)]
    if origins is None:
        return [*(each.treatment for each in shape.fields), shape.key]
    if holds_any and any(each.topic == topic for each in origins):
        return [each.treatment for each in shape.fields]
    treatments: list[Treatment] = []
    for each in origins:
        if each.topic != topic:
            continue
        treatments += [masked.treatment for masked in shape.fields if related(masked.path, each.path)]
        if each.path[-1] in _KEYS:
            treatments.append(shape.key)
    return treatments


def related(masked: FieldPath, read: FieldPath) -> bool:
    """Return whether a column that is read may hold a masked field: one is within the other, or ends alike.

    >>> related(("after", "email"), ("email",)), related(("address", "street"), ("address",))
    (True, True)
    >>> related(("address", "street"), ("city",))
    False
    """
    one, other = ([normal(each) for each in path] for path in (masked, read))
    if one[0] in _ENVELOPE:
        one = one[1:] or one
    if other[0] in _ENVELOPE:
        other = other[1:] or other
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter] or names(tuple(masked), tuple(read))


def _unfiltered(about: Sequence[tuple[MaskRule, MaskedPrincipal]], sources: Mapping[str, Visibility]) -> str:
    """Return why a view is closed: rows of a source are filtered, and no rule filters those of the view."""
    if any(rule.filters_rows for rule, _ in about):
        return ""
    filtered = next((shape.name for shape in sources.values() if shape.rows or shape.closed), None)
    if filtered is None:
        return ""
    return (
        f"rows of its source {filtered} are limited for you; a rule of masks has to say `rows:` for the view"
    )
