"""[core] A rule of ``masks:``: its topics and views, its fields, and the treatment of each principal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hub.access.decide import granted_as
from hub.caller import Action, Kind, Resource
from hub.masking.shape import FieldPath, RowCondition, normal
from hub.masking.values import SHOWN, Treatment, most_open
from hub.schema_registry.policy.label_patterns import Labels, fits, labels_of

# Roles by which a rule may name its principals, each with the action that only this role and admin have.
ROLE_ACTIONS: Mapping[str, Action] = {
    "write": Action.write,
    "operate": Action.operate,
    "admin": Action.admin,
}
Claims = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class MaskedPrincipal:
    """A principal as rules see it. ``roles``: those of ROLE_ACTIONS that it has over the object."""

    name: str
    groups: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    claims: Claims = field(default_factory=dict)

    def claim(self, name: str) -> tuple[str, ...]:
        """Return the values of ``user.NAME``; () for a claim that the principal does not have."""
        if name == "name":
            return (self.name,) if self.name else ()
        if name == "groups":
            return tuple(sorted(self.groups))
        return self.claims.get(name, ())


@dataclass(frozen=True, slots=True)
class RowTest:
    """``path = user.claim``, or ``path = 'text'``."""

    path: FieldPath
    claim: str = ""
    text: str = ""


@dataclass(frozen=True)
class MaskRule:
    """Treatment of fields, by name and by tag, or a filter of rows. ``number``: its place in the file,
    from 1.

    ``whole``: the object's rows are all shown, which a filter of rows on its sources does not know.
    """

    number: int
    treatment: Treatment
    topics: tuple[Labels, ...] = ()
    views: tuple[Labels, ...] = ()
    fields: tuple[FieldPath, ...] = ()
    tags: frozenset[str] = frozenset()
    rows: tuple[RowTest, ...] = ()
    whole: bool = False
    users: Mapping[str, Treatment] = field(default_factory=dict)
    groups: Mapping[str, Treatment] = field(default_factory=dict)
    roles: Mapping[str, Treatment] = field(default_factory=dict)

    @property
    def filters_rows(self) -> bool:
        return bool(self.rows) or self.whole

    def covers(self, what: Resource) -> bool:
        """Return whether the rule is about the object, or about the one that it belongs to."""
        for each in granted_as(what):
            patterns = self.views if each.kind is Kind.view else self.topics
            if any(fits(pattern, labels_of(each.name)) for pattern in patterns):
                return True
        return False

    def treatment_of(self, who: MaskedPrincipal) -> Treatment:
        """Return the treatment: that of the user, else the most open one of its groups and roles, else the
        rule's."""
        own = self.users.get(who.name) if who.name else None
        if own is not None:
            return self._with_reason(own, f"user {who.name}")
        named = [(self.groups[each], f"group {each}") for each in sorted(who.groups) if each in self.groups]
        named += [(self.roles[each], f"role {each}") for each in sorted(who.roles) if each in self.roles]
        best = most_open(treatment for treatment, _ in named)
        if best is None:
            return self._with_reason(self.treatment, "everybody else")
        return self._with_reason(best, next(whom for treatment, whom in named if treatment == best))

    def may_hide_from(self, who: MaskedPrincipal) -> bool:
        """Return whether the principal may see less than everything, whatever its roles over an object
        are."""
        own = self.users.get(who.name) if who.name else None
        if own is not None:
            return own != SHOWN
        best = most_open(self.groups[each] for each in who.groups if each in self.groups)
        return any(each != SHOWN for each in ((best,) if best else (self.treatment, *self.roles.values())))

    def conditions(self, who: MaskedPrincipal) -> tuple[RowCondition, ...]:
        """Return the conditions that rows meet for this principal; () if it sees all of them."""
        how = self.treatment_of(who)
        if how == SHOWN:
            return ()
        return tuple(
            RowCondition(each.path, who.claim(each.claim) if each.claim else (each.text,), how.why)
            for each in self.rows
        )

    def _with_reason(self, treatment: Treatment, whom: str) -> Treatment:
        return Treatment(treatment.form, treatment.last, f"masks {self.number}: {treatment} for {whom}")


def names(path: FieldPath, of: FieldPath) -> bool:
    """Return whether a field's path is the named one: its last word, and the others around it in this order.

    >>> names(("email",), ("customer", "email")), names(("order", "email"), ("customer", "email"))
    (True, False)
    """
    left = [normal(each) for each in of]
    if not left or not path or normal(path[-1]) != left.pop():
        return False
    return _in_order([normal(each) for each in path[:-1]], left)


def _in_order(wanted: Iterable[str], words: list[str]) -> bool:
    rest = iter(words)
    return all(any(word == each for word in rest) for each in wanted)
