"""[shell] Access rules of a change of ownership: who loses the right to write where, and who gets it."""

from __future__ import annotations

from dataclasses import replace

from hub.replication.clusters.clusters import acl_of
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.readers import read_control_state
from hub.replication.config.load_mirrors import principals_of
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.operation_steps import OwnershipChange
from hub.replication.planning.steps import Acl
from hub.replication.planning.write_rights import (
    AclChange,
    OwnershipAcls,
    WriteAcls,
    about_writing,
    giving_back,
    keeping_out,
    letting_in,
)

# The change of one cluster's rules, and the record of it, which is written before.
PlannedChange = tuple[AclChange, OwnershipAcls]


def rights(world: MirroredClusters, operation: OwnershipChange) -> list[AclChange]:
    """Return the changes of access rules: at the new owner, then at the old one if it is up. Changes
    nothing.
    """
    if not _copies_rules(world, operation):
        return [
            AclChange(
                operation.new,
                notes=("access rules are not the mirror's (acls.copy: false): let writers in yourself",),
            )
        ]
    handed = _handed(world, operation.home)
    acl_changes = [_letting_in(world, operation, handed)]
    if world.is_up(operation.old):
        acl_changes.append(_keeping_out(world, operation, operation.old, handed))
    return acl_changes


def _copies_rules(world: MirroredClusters, operation: OwnershipChange) -> bool:
    ways = world.ways(operation.home, operation.old, operation.new)
    return any(way.mirror.acls.copy_ for way in ways)


def _rules(world: MirroredClusters, name: str) -> frozenset[Acl] | None:
    access_rules = world.clusters[name].kafka.access_rules()
    return None if access_rules is None else frozenset(map(acl_of, access_rules))


def _handed(world: MirroredClusters, home: str) -> OwnershipAcls:
    ownership_acls = [board.handed[home] for board in world.control_states().values() if home in board.handed]
    return max(ownership_acls, key=lambda each: each.revision, default=OwnershipAcls(home))


def _moving(world: MirroredClusters, handed: OwnershipAcls) -> OwnershipAcls:
    """Return the rules that belong to what moves. Rules about no topic (idempotent writes, transactional ids)
    belong to all topics of the home, and stay while some of them are away by themselves.
    """
    whole = not world.only and not world.apart(handed.home)

    def own(rules: frozenset[Acl]) -> frozenset[Acl]:
        return frozenset(
            rule
            for rule in rules
            if (world.moves(handed.home, rule.name) if rule.resource == "TOPIC" else whole)
        )

    given, denied, revoked = (
        {at: own(rules) for at, rules in part.items()}
        for part in (handed.given, handed.denied, handed.revoked)
    )
    return replace(handed, given=given, denied=denied, revoked=revoked)


def _former(world: MirroredClusters, operation: OwnershipChange, handed: OwnershipAcls) -> WriteAcls | None:
    """Return the write rules of the side that gives up ownership: as they are, or as a worker recorded
    them last.
    """
    old, home = operation.old, operation.home
    if world.is_up(old):
        rules = _rules(world, old)
        if rules is None:
            return WriteAcls("", checked=False)
        # In a planned change they are revoked before they are granted at the other side.
        own = (rules - handed.denied.get(old, frozenset())) | handed.revoked.get(old, frozenset())
        return WriteAcls("", about_writing(own, world.topics(home, old)))
    board = read_control_state(world.clusters[operation.new], status=False)
    write_acls = [
        board.rights[way.name] for way in world.ways(home, old, operation.new) if way.name in board.rights
    ]
    if not write_acls:
        return None
    rules = frozenset[Acl]().union(*(each.rules for each in write_acls))
    return WriteAcls(
        "", rules, min(each.at_ms for each in write_acls), all(each.checked for each in write_acls)
    )


def _letting_in(world: MirroredClusters, operation: OwnershipChange, handed: OwnershipAcls) -> AclChange:
    old, new, home = operation.old, operation.new, operation.home
    ways, handed = world.ways(home, old, new), _moving(world, handed)
    principals = {key: name for way in ways for key, name in way.mirror.acls.principals.items()}
    copied = frozenset(
        replace(rule, principal=principals.get(rule.principal, rule.principal))
        for rule in handed.denied.get(old, frozenset())
    )
    former = _former(world, operation, handed)
    board = read_control_state(world.clusters[new], status=False)
    copied |= _protected(world, home, board)
    return letting_in(new, world.topics(home, new), former, _rules(world, new), handed, principals, copied)


def _protected(world: MirroredClusters, home: str, board: ControlState) -> frozenset[Acl]:
    """Return the recorded DENY rules that protect the copies of the topics that move."""
    every = (rule for each in board.protected.values() for rule in each.rules)
    return frozenset(rule for rule in every if world.moves(home, rule.name))


def _keeping_out(
    world: MirroredClusters, operation: OwnershipChange, at: str, handed: OwnershipAcls
) -> AclChange:
    users = principals_of(world.file.clusters[at])
    home = operation.home
    return keeping_out(at, home, world.topics(home, at), _rules(world, at), _moving(world, handed), users)


def let_in(world: MirroredClusters, operation: OwnershipChange) -> PlannedChange | None:
    """Let the writers in at the new owner. None where access rules are not the mirror's."""
    if not _copies_rules(world, operation):
        return None
    handed = _handed(world, operation.home)
    change = _letting_in(world, operation, handed)
    return change, handed.after_giving(operation.new, change)


def keep_out(world: MirroredClusters, operation: OwnershipChange, at: str) -> PlannedChange | None:
    """Keep writers out of a cluster."""
    if not _copies_rules(world, operation):
        return None
    handed = _handed(world, operation.home)
    change = _keeping_out(world, operation, at, handed)
    return change, handed.after_taking(at, change)


def give_back(world: MirroredClusters, operation: OwnershipChange) -> PlannedChange | None:
    """Undo an aborted operation's changes at the side that keeps ownership."""
    if not world.is_up(operation.old) or not _copies_rules(world, operation):
        return None
    handed = _handed(world, operation.home)
    change = giving_back(operation.old, _moving(world, handed), _rules(world, operation.old))
    return change, handed.after_giving(operation.old, change)
