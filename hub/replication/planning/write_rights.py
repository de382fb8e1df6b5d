"""[core] Write access to a region's topics: moves from one cluster to another when ownership changes.

A mirror does not copy write access: writers at the source must not write to the copy. After a failover the
same principals must be able to write at the new owner, and the source may be down then. So the workers record
its rules continuously, in the target's control topic (``WriteAcls``); a change of ownership grants these
rights there, and revokes them at the side that gives up ownership, immediately or when it is back::

    rights|link     the source's rules about writing, as of ``at_ms``
    handed|home     rules that changes of ownership added: ``given`` at the acting side, ``denied`` at home

At the acting side ALLOW rules are added, for each topic alone. At home rules stay, because they may cover
more than these topics; DENY rules override them and are removed by the failback. A rule that the hub did not
add is never removed. ``User:*`` and the mirror's own user, which writes returning records, are never denied;
a note reports that instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.record import NewRecord, Record
from hub.replication.maps.checkpoint import CONTROL_TOPIC, not_ours
from hub.replication.planning.steps import Acl

EVERYBODY = "User:*"
_WRITES = ("WRITE", "ALL")
_CLUSTER_NAME = "kafka-cluster"


@dataclass(frozen=True, slots=True)
class WriteAcls:
    """The rules of a link's source that concern writing its topics. ``checked`` False: that cluster has no
    authorizer.
    """

    link: str
    rules: frozenset[Acl] = frozenset()
    at_ms: int = 0
    checked: bool = True

    def same_as(self, other: WriteAcls | None) -> bool:
        return other is not None and (self.rules, self.checked) == (other.rules, other.checked)

    def record(self) -> NewRecord:
        body = {"rules": acl_rows(self.rules), "checked": self.checked, "at_ms": self.at_ms}
        return NewRecord(CONTROL_TOPIC, f"rights|{self.link}".encode(), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class OwnershipAcls:
    """Rules that changes of ownership of the topics of ``home`` have added, by cluster. ``revoked``:
    ``given`` rules that a running change has removed, for its abort. Of two records, the one with the higher
    ``revision`` counts.
    """

    home: str
    given: Mapping[str, frozenset[Acl]] = field(default_factory=dict)
    denied: Mapping[str, frozenset[Acl]] = field(default_factory=dict)
    revoked: Mapping[str, frozenset[Acl]] = field(default_factory=dict)
    revision: int = 0

    def record(self) -> NewRecord:
        parts = {"given": self.given, "denied": self.denied, "revoked": self.revoked}
        body = {
            "revision": self.revision,
            **{name: {at: acl_rows(rules) for at, rules in part.items()} for name, part in parts.items()},
        }
        return NewRecord(CONTROL_TOPIC, f"handed|{self.home}".encode(), orjson.dumps(body))

    def after_giving(self, at: str, change: AclChange) -> OwnershipAcls:
        """Return the state after writers were let in at a cluster."""
        return replace(
            self,
            given={**self.given, at: self.given.get(at, frozenset()) | change.add},
            denied={**self.denied, at: self.denied.get(at, frozenset()) - change.remove},
            revoked={**self.revoked, at: frozenset()},
            revision=self.revision + 1,
        )

    def after_taking(self, at: str, change: AclChange) -> OwnershipAcls:
        """Return the state after writers were kept out of a cluster."""
        gone = self.given.get(at, frozenset()) & change.remove
        return replace(
            self,
            given={**self.given, at: self.given.get(at, frozenset()) - change.remove},
            denied={**self.denied, at: self.denied.get(at, frozenset()) | change.add},
            revoked={**self.revoked, at: self.revoked.get(at, frozenset()) | gone},
            revision=self.revision + 1,
        )


def acl_rows(rules: Iterable[Acl]) -> list[list[str]]:
    return [
        [a.name, a.pattern, a.principal, a.host, a.operation, a.permission, a.resource] for a in sorted(rules)
    ]


def fact_of(record: Record) -> WriteAcls | OwnershipAcls | None:
    """Parse a record; None for other kinds. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None:
        return None
    kind, _, rest = record.key.decode("utf-8", "replace").partition("|")
    try:
        if kind == "rights":
            body: dict[str, Any] = orjson.loads(record.value)
            rules = frozenset(Acl(*row) for row in body["rules"])
            return WriteAcls(rest, rules, body["at_ms"], body["checked"])
        if kind == "handed":
            body = orjson.loads(record.value)
            given, denied, revoked = (
                {at: frozenset(Acl(*row) for row in rows) for at, rows in body[name].items()}
                for name in ("given", "denied", "revoked")
            )
            return OwnershipAcls(rest, given, denied, revoked, body["revision"])
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None
    return None


def about_writing(rules: Iterable[Acl], topics: Iterable[str]) -> frozenset[Acl]:
    """Return the rules that decide who may write the topics, including idempotent writes and transactional
    ids.
    """
    every, names = tuple(rules), tuple(topics)
    on_topics = {
        rule for rule in every if rule.operation in _WRITES and any(rule.holds_for(topic) for topic in names)
    }
    writers = {rule.principal for rule in on_topics if rule.permission == "ALLOW"}
    others = {
        rule
        for rule in every
        if (EVERYBODY in writers or rule.principal in writers)
        and (
            (rule.resource == "CLUSTER" and rule.operation in ("IDEMPOTENT_WRITE", "ALL"))
            or (rule.resource == "TRANSACTIONAL_ID" and rule.operation in ("WRITE", "DESCRIBE", "ALL"))
        )
    }
    return frozenset(on_topics | others)


@dataclass(frozen=True, slots=True)
class AclChange:
    """Rules to add to one cluster, and to remove. ``notes``: what a person has to know or do."""

    at: str
    add: frozenset[Acl] = frozenset()
    remove: frozenset[Acl] = frozenset()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield the change for people, one line per principal and right."""
        for sign, rules in (("+", self.add), ("-", self.remove)):
            places_of: dict[tuple[str, str, str], list[str]] = {}
            for rule in sorted(rules):
                what = rule.operation if rule.resource == "TOPIC" else f"{rule.operation} on {rule.resource}"
                places_of.setdefault((rule.principal, rule.permission, what), []).append(
                    rule.name + ("*" if rule.pattern == "PREFIXED" else "")
                )
            for (principal, permission, what), where in places_of.items():
                more = f" and {len(where) - 3} more" if len(where) > 3 else ""
                yield f"{sign} {self.at}: {permission} {principal} {what}: {', '.join(where[:3])}{more}"
        yield from (f"! {self.at}: {note}" for note in self.notes)


def letting_in(
    at: str,
    topics: Iterable[str],
    former: WriteAcls | None,
    there: frozenset[Acl] | None,
    handed: OwnershipAcls,
    principals: Mapping[str, str],
    copied: frozenset[Acl] = frozenset(),
) -> AclChange:
    """Return the rules that let the former owner's writers write at a cluster. ``there``: its rules now,
    None: it has no authorizer.

    ``former``: the former owner's rules, None: unknown. ``copied``: DENY rules of the former owner's that may
    have been copied here as if they were a person's. ``principals``: names that differ.
    """
    if there is None:
        return AclChange(at)
    lifted = (handed.denied.get(at, frozenset()) | copied) & there
    if former is None:
        return AclChange(
            at, remove=lifted, notes=("who may write is not known: give WRITE to the producers yourself",)
        )
    if not former.checked:
        note = "the former owner checks no access: give WRITE to the producers yourself"
        return AclChange(at, remove=lifted, notes=(note,))
    wanted = set(_granted(former.rules, tuple(topics), principals))
    allowed = [rule for rule in there if rule.permission == "ALLOW"]
    missing = {rule for rule in wanted if not any(_includes(known, rule) for known in allowed)}
    return AclChange(at, frozenset(missing), lifted)


def _granted(rules: Iterable[Acl], topics: tuple[str, ...], principals: Mapping[str, str]) -> Iterator[Acl]:
    """Yield ALLOW rules for one operation each; topic rules for each topic alone."""
    for rule in rules:
        if rule.permission != "ALLOW":
            continue
        mapped = replace(rule, principal=principals.get(rule.principal, rule.principal))
        match rule.resource:
            case "TOPIC":
                for topic in topics:
                    if rule.holds_for(topic):
                        yield replace(mapped, name=topic, pattern="LITERAL", operation="WRITE")
            case "CLUSTER":
                yield replace(mapped, name=_CLUSTER_NAME, pattern="LITERAL", operation="IDEMPOTENT_WRITE")
            case "TRANSACTIONAL_ID":
                for operation in ("WRITE", "DESCRIBE") if rule.operation == "ALL" else (rule.operation,):
                    yield replace(mapped, operation=operation)


def _includes(acl: Acl, wanted: Acl) -> bool:
    """Return whether one ALLOW rule grants everything that another does."""
    return (
        acl.resource == wanted.resource
        and acl.principal in (wanted.principal, EVERYBODY)
        and acl.host in (wanted.host, "*")
        and (
            acl.operation in (wanted.operation, "ALL")
            or (wanted.operation == "DESCRIBE" and acl.operation == "WRITE")
        )
        and (acl.pattern, acl.name) != ("LITERAL", "")
        and acl.covers(wanted.name)
        and (wanted.pattern == "LITERAL" or acl.pattern == "PREFIXED" or acl.name == "*")
    )


def keeping_out(
    at: str,
    home: str,
    topics: Iterable[str],
    there: frozenset[Acl] | None,
    handed: OwnershipAcls,
    mirror_users: frozenset[str] | None,
) -> AclChange:
    """Return the rules that keep applications from writing at a cluster that gives up ownership. ``there``:
    its rules now, None: it has no authorizer. ``mirror_users``: principals of the mirror itself, None:
    unknown, then nobody is denied.
    """
    if there is None:
        return AclChange(at, notes=("it checks no access: stop the writers there",))
    revoked = handed.given.get(at, frozenset()) & there
    if at != home:
        return AclChange(at, remove=revoked)
    denied, notes = denials(topics, there, mirror_users)
    return AclChange(at, denied - there, revoked, notes)


def denials(
    topics: Iterable[str], there: frozenset[Acl], mirror_users: frozenset[str] | None
) -> tuple[frozenset[Acl], tuple[str, ...]]:
    """Return the DENY rules that keep everybody but the mirror from writing the topics, and notes on writers
    that they do not keep out.
    """
    names = tuple(topics)
    writing = [
        rule
        for rule in there
        if rule.permission == "ALLOW" and rule.operation in _WRITES and rule.resource == "TOPIC"
    ]
    if mirror_users is None:
        note = (
            "the principal of the mirror itself is unknown, so no principal is denied: exclude writers "
            "by the cluster's rules"
        )
        return frozenset(), (note,) if any(_writers(writing, names)) else ()
    denied: set[Acl] = set()
    notes: list[str] = []
    for rule, topic in _writers(writing, names):
        if rule.principal == EVERYBODY:
            notes.append(
                "everybody may write there by a rule for User:*, which is not denied: stop the writers"
            )
        elif rule.principal not in mirror_users:
            denied.add(Acl(topic, "LITERAL", rule.principal, rule.host, "WRITE", "DENY"))
    return frozenset(denied), tuple(dict.fromkeys(notes))


def _writers(rules: Iterable[Acl], topics: tuple[str, ...]) -> Iterator[tuple[Acl, str]]:
    return ((rule, topic) for rule in rules for topic in topics if rule.holds_for(topic))


def giving_back(at: str, handed: OwnershipAcls, there: frozenset[Acl] | None) -> AclChange:
    """Return the rules that undo an aborted change at the side that keeps ownership."""
    if there is None:
        return AclChange(at)
    return AclChange(
        at,
        handed.revoked.get(at, frozenset()) - there,
        handed.denied.get(at, frozenset()) & there,
    )
