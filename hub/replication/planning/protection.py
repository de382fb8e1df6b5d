"""[core] Protected copies: while a mirror carries a topic, nobody else may write its copy.

A foreign record in a copy cannot be removed, and the copy differs from its source from then on. So
principals that a rule of the target lets write a copy are denied there, topic by topic; the mirror's own user
is not. The rules that the hub added are recorded before they exist, so that it removes no others::

    protected|link     DENY rules that the mirror added at its target

They hold for the topics that the mirror carries now. A change of ownership lifts them where it lets writers
in, and the next plan of the link removes what is left: of topics that moved, were excluded, or are no longer
to be protected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import orjson

from hub.record import NewRecord
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.planning.steps import Acl
from hub.replication.planning.write_rights import AclChange, acl_rows, denials


@dataclass(frozen=True, slots=True)
class ProtectedCopies:
    """DENY rules that a mirror has added for its copies, or was about to add."""

    link: str
    rules: frozenset[Acl] = frozenset()

    def record(self) -> NewRecord:
        body = orjson.dumps({"rules": acl_rows(self.rules)}) if self.rules else None
        return NewRecord(CONTROL_TOPIC, f"protected|{self.link}".encode(), body)


@dataclass(frozen=True, slots=True)
class ProtectionChange:
    """Rules to change at the target, with the record to write ``before`` and ``after`` that."""

    change: AclChange
    before: ProtectedCopies
    after: ProtectedCopies

    @property
    def is_empty(self) -> bool:
        return not self.change.add and not self.change.remove and self.before == self.after


def protecting(
    at: str,
    topics: Iterable[str],
    there: frozenset[Acl] | None,
    protected_copies: ProtectedCopies,
    mirror_users: frozenset[str] | None,
) -> ProtectionChange:
    """Return the change that protects exactly these copies. ``there``: the target's rules now, None: it has
    no authorizer. ``mirror_users``: principals of the mirror itself, None: unknown, then nobody is denied.
    """
    if there is None:
        return ProtectionChange(AclChange(at), protected_copies, protected_copies)
    wanted, notes = denials(topics, there, mirror_users)
    add, remove = wanted - there, (protected_copies.rules - wanted) & there
    before = ProtectedCopies(protected_copies.link, protected_copies.rules | add)
    after = ProtectedCopies(protected_copies.link, (protected_copies.rules & wanted) | add)
    return ProtectionChange(AclChange(at, add, remove, notes), before, after)


def protected_of(link: str, value: bytes) -> ProtectedCopies:
    """Parse a record's value. Raises ValueError, TypeError, KeyError."""
    return ProtectedCopies(link, frozenset(Acl(*row) for row in orjson.loads(value)["rules"]))
