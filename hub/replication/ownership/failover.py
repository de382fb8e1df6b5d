"""[core] Ownership of a region's topics, and the operations that move it: sequences of idempotent steps.

::

    drill       report what a failover would do now, per group and partition; changes nothing
    switchover  both sides are up: writers stop, the mirror drains, nothing is lost or read twice
    failover    home is gone: records that were not mirrored are counted and stay behind
    failback    home is back: records born away are sent home, then as switchover
    promote     as switchover, and permanently: the mirror is dropped

Every change of ownership has an epoch. Ownership and the running operation are records of
``_hub.mirror.control`` in both clusters; the highest epoch counts, whichever side has it. A mirror works
under the epoch that it began with and stops at a higher one; its transactional ids are taken over before
groups are placed, so that no late write can follow. An operation's record lists the completed steps: after a
crash, the first step that is not listed is repeated.

Single topics move by themselves with the same steps: ownership and operation are then records of each topic
(``operation_steps.scope_of``), all topics of one call share the operation's id, and a topic that has moved by
itself is no part of what moves with its home until it is back.

Order that matters, and is tested: the mirror is fenced before groups are placed (their map is final),
ownership changes before writers are let in, and on a planned change writers are stopped before the mirror
drains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from hub.errors import Conflict, HubFault
from hub.record import Record
from hub.replication.ownership.operation_steps import (
    CARRIED_TAILS,
    POINT_OF_NO_RETURN,
    Kind,
    Ownership,
    OwnershipChange,
    StepName,
    Tail,
    scope_of,
)


@dataclass(frozen=True, slots=True)
class Control:
    """Content of the control topics: owners, and operations, by scope: a home, or one of its topics. Changed
    only by ``apply``.
    """

    owners: Mapping[str, Ownership] = field(default_factory=dict)
    operations: Mapping[str, OwnershipChange] = field(default_factory=dict)

    def owner(self, scope: str) -> Ownership:
        home, _, topic = scope.partition("|")
        return self.owners.get(scope, Ownership(home, home, 0, topics=(topic,) if topic else ()))

    def running(self, scope: str) -> OwnershipChange | None:
        found = self.operations.get(scope)
        return found if found is not None and found.state == "running" else None

    def scope(self, home: str, topic: str) -> str:
        """Return the scope that decides about a topic: its own while it is away by itself, or moves."""
        own = scope_of(home, topic)
        return own if self.owner(own).acting != home or self.running(own) is not None else home

    def has_changed(self, home: str, topic: str) -> bool:
        """Return whether the ownership of a topic ever changed, or was about to."""
        return home in self.operations or scope_of(home, topic) in self.operations

    def apart(self, home: str) -> frozenset[str]:
        """Return the topics of a home that are away by themselves, or move by themselves now."""
        known = {scope for scope in (*self.owners, *self.operations) if scope.startswith(f"{home}|")}
        topics = (scope.partition("|")[2] for scope in known)
        return frozenset(topic for topic in topics if self.scope(home, topic) != home)

    def moving(self, home: str, *, furthest: bool = False) -> list[OwnershipChange]:
        """Return the running operations of single topics of a home; those of one id as one, which has done
        what all of its topics have done; with ``furthest`` what any of them has, for its abort.
        """
        found: dict[str, list[OwnershipChange]] = {}
        for topic in sorted(self.apart(home)):
            if (running := self.running(scope_of(home, topic))) is not None:
                found.setdefault(running.id, []).append(running)
        choose = max if furthest else min
        return [
            replace(
                choose(every, key=lambda each: len(each.done)),
                topics=tuple(topic for each in every for topic in each.topics),
            )
            for every in found.values()
        ]

    @property
    def acting(self) -> dict[str, str]:
        """Clusters that have the ownership of another home, by home; for config/topology.py."""
        return {
            scope: owner.acting
            for scope, owner in self.owners.items()
            if not owner.topics and owner.acting != scope
        }

    def acting_for(self, home: str, topic: str) -> dict[str, str]:
        """``acting`` as it holds for one topic."""
        acting = self.owner(self.scope(home, topic)).acting
        others = {name: other for name, other in self.acting.items() if name != home}
        return others if acting == home else {**others, home: acting}

    def may_write(self, cluster: str, home: str) -> bool:
        """Return whether applications may write the topics of a scope in a cluster now."""
        running = self.running(home)
        if running is not None and running.kind != "drill":
            stopped, opened = "stop_writers" in running.done, "open_writers" in running.done
            if cluster == running.old and (stopped or "take_ownership" in running.done):
                return False
            if cluster == running.new and self.owner(home).acting == cluster and not opened:
                return False
            if running.next is not None and running.next.name == "stop_writers" and cluster == running.old:
                return False  # the step may have been done, with only its record missing
        return self.owner(home).acting == cluster

    def may_mirror(self, home: str, source: str, target: str) -> bool:
        """Return whether a mirror from ``source`` to ``target`` may carry the topics of ``home`` now.

        A worker opens its transactional ids before it calls this: then a fence comes either before, and is
        seen here, or after, and stops the worker.
        """
        acting, last = self.owner(home).acting, self.operations.get(home)
        if last is None or {source, target} != {last.old, last.new} or last.state == "aborted":
            return target != acting
        over = last.state == "done"
        due = last.next.name if last.next is not None else None
        if (source, target) == (last.old, last.new):
            ready = "start_back" in last.done if last.kind == "failback" else True
            return ready and not over and due != "fence_mirror" and "fence_mirror" not in last.done
        if last.kind == "failback" and due == "settle_tail":
            return last.tail in CARRIED_TAILS
        return due == "start_mirror" or "start_mirror" in last.done

    def fences(self, home: str, epoch: int) -> bool:
        """Return whether a mirror that began under ``epoch`` has to stop."""
        return self.owner(home).epoch > epoch


def apply(control: Control, record: Record) -> Control:
    """Return the state after a record of either cluster's control topic. Records may come in any order of the
    two logs, and repeatedly.

    Of two operations that claim one epoch, the first in the log counts; the other is ignored. Other kinds of
    records change nothing. Raises HubFault (HUB-5603).
    """
    if record.key is None or record.value is None:
        return control
    kind, _, scope = record.key.decode("utf-8", "replace").partition("|")
    if kind not in ("owner", "operation"):
        return control
    home, _, topic = scope.partition("|")
    topics = (topic,) if topic else ()
    try:
        body: dict[str, Any] = orjson.loads(record.value)
        if kind == "owner":
            return _owned(control, scope, Ownership(home, **body, topics=topics))
        change = OwnershipChange(home=home, **{**body, "done": tuple(body["done"])}, topics=topics)
        return _operated(control, scope, change)
    except (ValueError, TypeError, KeyError) as error:
        raise HubFault(
            f"{record.topic}, partition {record.partition}, offset {record.offset}: not what a "
            f"mirror writes ({error!r})",
            hint="something else writes to this topic, or a newer hub did",
            code="HUB-5603",
        ) from None


def _owned(control: Control, scope: str, reported: Ownership) -> Control:
    if reported.epoch <= control.owner(scope).epoch:
        return control
    return replace(control, owners={**control.owners, scope: reported})


def _operated(control: Control, scope: str, change: OwnershipChange) -> Control:
    known = control.operations.get(scope)
    if known is not None:
        goes_on = known.id == change.id and known.state == "running" and len(change.done) >= len(known.done)
        # A later change counts even where the end of the former one was never read: the cluster was down when
        # it was written.
        again = known.state == "aborted" and known.id != change.id and change.epoch == known.epoch
        next_one = change.epoch > known.epoch or again
        if not goes_on and not next_one:
            return control
    return replace(control, operations={**control.operations, scope: change})


def _under_way(control: Control, home: str, topics: Sequence[str], id: str = "") -> OwnershipChange | None:
    """Return another operation that is running and would meet this one: of one of the topics or of all, or
    for a whole home of any. ``id``: this operation's.
    """
    every = [each for each in (control.running(home), *control.moving(home)) if each is not None]
    return next(
        (
            each
            for each in every
            if each.id != id
            and each.kind != "drill"
            and (not topics or not each.topics or set(topics) & set(each.topics))
        ),
        None,
    )


def _of_topics(control: Control, home: str, topics: Sequence[str]) -> str:
    """Return the cluster that serves all these topics. Raises Conflict (HUB-1962, HUB-1963)."""
    acting = control.owner(home).acting
    if acting != home:
        raise Conflict(
            f"{acting} serves all topics of {home}",
            hint="single topics move while their home has the others: first hub mirror failback",
            code="HUB-1962",
        )
    found: dict[str, str] = {}
    for topic in topics:
        found.setdefault(control.owner(control.scope(home, topic)).acting, topic)
    if len(found) > 1:
        (one, first), (other, second) = sorted(found.items())[:2]
        raise Conflict(
            f"{one} serves {first}, and {other} {second}: they do not move together",
            hint="name topics of one owner; hub mirror status shows the owner of each",
            code="HUB-1963",
        )
    return next(iter(found))


def _cannot_begin(
    control: Control, kind: Kind, home: str, new: str, old_is_up: bool, topics: Sequence[str] = ()
) -> Conflict | None:
    """Return why the operation cannot begin (HUB-1961 … 1963); None: it can."""
    owner = control.owner(control.scope(home, topics[0]) if topics else home)
    running = _under_way(control, home, topics)
    if running is not None and kind != "drill":
        return Conflict(
            f'{running.kind} "{running.id}" of {home} is under way (next: '
            f"{running.next.name if running.next else '-'})",
            hint="continue it (`hub mirror resume`), or abort it while ownership has not changed",
            code="HUB-1961",
        )
    if owner.acting == new:
        return Conflict(
            f"{new} owns {topics[0] if topics else f'the topics of {home}'} already (epoch {owner.epoch})",
            hint="`hub mirror status` shows the owners"
            + ("; to leave it there for good take the mirror out of the file" if kind == "promote" else ""),
            code="HUB-1962",
        )
    if kind == "failback" and new != home:
        return Conflict(
            f"a failback goes home: to {home}, not to {new}",
            hint="use switchover to move on to another cluster",
            code="HUB-1963",
        )
    if kind != "failback" and new == home:
        return Conflict(
            f"{home} is the home of these topics", hint="use failback to go home", code="HUB-1963"
        )
    if kind != "failover" and kind != "drill" and not old_is_up:
        return Conflict(
            f"a {kind} needs both clusters, and {owner.acting} does not answer",
            hint=f"the records written there exist nowhere else: start {owner.acting} again"
            if kind == "failback"
            else "use failover if it is gone: it reports the losses",
            code="HUB-1963",
        )
    return None


def begin(
    control: Control,
    kind: Kind,
    *,
    id: str,
    mirror: str,
    home: str,
    new: str,
    now_ms: int,
    old_is_up: bool = True,
    tail: Tail = "replay",
    topics: Sequence[str] = (),
) -> OwnershipChange:
    """Return the operation that would change ownership; not written yet. ``topics``: those that move by
    themselves; empty: all of ``home``. Raises Conflict (HUB-1961 … 1963) when it cannot begin.
    """
    old = _of_topics(control, home, topics) if topics else control.owner(home).acting
    refused = _cannot_begin(control, kind, home, new, old_is_up, topics)
    if refused is not None:
        raise refused
    # An aborted operation keeps its epoch: a cluster that was down then, and has it as running, can
    # distinguish the next one.
    scopes = [scope_of(home, topic) for topic in topics or ("",)]
    epochs = [control.owner(scope).epoch for scope in scopes]
    epochs += [control.operations[scope].epoch for scope in scopes if scope in control.operations]
    return OwnershipChange(
        id,
        kind,
        mirror,
        home,
        old,
        new,
        max(epochs) + 1,
        old_is_up,
        tail,
        begun_at_ms=now_ms,
        topics=tuple(topics),
    )


def check_stands(control: Control, operation: OwnershipChange) -> None:
    """Raise Conflict (HUB-1961, HUB-1962) if another operation has changed ownership since this one began, or
    is about to. Two may be requested at the same time; only one of them counts.
    """
    if operation.kind == "drill":
        return
    home, running = operation.home, _under_way(control, operation.home, operation.topics, operation.id)
    if running is not None:
        raise Conflict(
            f'{running.kind} "{running.id}" of {home} is under way, and it is the one: this '
            f"{operation.kind} is not",
            hint="abort this one (`hub mirror resume MIRROR --abort`); `hub mirror status` shows the owners",
            code="HUB-1961",
        )
    for topic in operation.topics or ("",):
        owner = control.owner(scope_of(home, topic))
        as_begun = owner.acting == operation.old and owner.epoch < operation.epoch
        if not as_begun and (owner.epoch, owner.acting) != (operation.epoch, operation.new):
            raise Conflict(
                f"ownership has changed since this {operation.kind} began: {owner.acting} owns "
                f"{topic or f'the topics of {home}'} (epoch {owner.epoch})",
                hint="`hub mirror status` shows the owners; start again if it is still wanted",
                code="HUB-1962",
            )


def done(operation: OwnershipChange, name: StepName) -> OwnershipChange:
    """Return the operation after a step. Idempotent. Raises HubFault (HUB-5605) when another step was due."""
    if name in operation.done:
        return operation
    due = operation.next
    if due is None or due.name != name:
        raise HubFault(
            f'{operation.kind} "{operation.id}": step {name} was done, {due.name if due else "none"} was due',
            code="HUB-5605",
        )
    after = replace(operation, done=(*operation.done, name))
    return replace(after, state="done") if after.next is None else after


def abort(operation: OwnershipChange) -> tuple[OwnershipChange, tuple[StepName, ...]]:
    """Return the aborted operation, and the steps that undo it. Raises Conflict (HUB-1964) once ownership may
    have changed.
    """
    due = operation.next
    if (
        operation.state != "running"
        or POINT_OF_NO_RETURN in operation.done
        or (due and due.name == POINT_OF_NO_RETURN)
    ):
        raise Conflict(
            f'{operation.kind} "{operation.id}" cannot be aborted any more: {operation.new} may '
            "own the topics already",
            hint="continue it, then start the next change of ownership",
            code="HUB-1964",
        )
    undo: list[StepName] = []
    if "fence_mirror" in operation.done or (due and due.name == "fence_mirror"):
        undo.append("start_mirror")
    if "stop_writers" in operation.done or (due and due.name == "stop_writers"):
        undo.append("open_writers")
    return replace(operation, state="aborted"), tuple(undo)


def ownership(operation: OwnershipChange, now_ms: int) -> Ownership:
    """Return the record for ``take_ownership``: written to the new side first, then to the old one (or when
    it is back).
    """
    return Ownership(operation.home, operation.new, operation.epoch, now_ms, operation.topics)
