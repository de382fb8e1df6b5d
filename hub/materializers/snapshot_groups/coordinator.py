"""[shell] Moves the views of snapshot groups in steps, in a thread of the materializer.

A step of a group is bounded: it checks whether every member has committed up to the current place, publishes
the snapshot, and sets the next place. Any change (a query ends, another version is served, Spark restarts,
Kafka is unavailable) lets all members run on their own and starts over: no view waits for one that does not
run.

Why a published snapshot is consistent: while a place is set, no member reads past it, so once all have
committed there, everything that members have written is made of events before it. The ends of the changelogs
are read then, and a member of which another query may have begun meanwhile (``Member.open``) makes the result
void. The next place is set after the record is in the log.

A member that reads another member's changelog goes last: the chosen place covers topics outside the group,
and when all members that it reads are there, the ends of their changelogs are its part of the place. The
snapshot publishes the same ends, read once: rows past them belong to the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hub.errors import HubError
from hub.log import Cluster, Writer
from hub.materializers.definition.declared import is_transaction_group
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.snapshot_groups.group import (
    CUT,
    GROUP,
    GroupNote,
    GroupSnapshot,
    GroupState,
    MemberPosition,
    joined,
    next_place,
)
from hub.materializers.snapshot_groups.members import Member, Places, RunningVersion, check_members
from hub.record import NewRecord, Positions
from hub.times import epoch_ms

log = logging.getLogger(__name__)

_LOOK_S = 0.01
# Pause without a group, or after a failure.
_IDLE_S = 0.5
# Interval of reporting what a group waits for.
_WAITING_EVERY_S = 5.0


@dataclass
class SnapshotGroup:
    """One group. ``most``: events from one place to the next; ``pause_s``: between polls for events."""

    name: str
    log: Cluster
    writer: Writer
    most: int
    pause_s: float = 0.0
    members: tuple[Member, ...] = ()
    begin: Positions = field(default_factory=Positions)
    place: Positions | None = None
    # Members that may read to the place, and the changelog ends of those that are there.
    let: set[str] = field(default_factory=set)
    written: dict[str, Positions] = field(default_factory=dict)
    is_written: bool = False  # whether the snapshot at ``place`` is published
    ask_at_s: float = 0.0
    wait_at_s: float = 0.0  # when it is reported again what the group waits for
    note: GroupNote | None = None

    def step(self, members: Sequence[Member], now_s: float, now_ms: int) -> None:
        """Run one step. ``members``: all of the group's. Raises HubError; call ``part`` then."""
        if not self._same(members):
            self._release(members)
            self.members = tuple(members)
            check_members(self.members)
        if self.place is None and not self._gather(now_ms):
            return
        assert self.place is not None
        self._bring()
        if (places := self.places) is not None:
            places.read_ahead(self.place)
            self._report_waiting(places, now_s, now_ms)
        if not self.is_written and len(self.written) == len(self.members):
            self._publish(self.place, now_ms)
        if self.is_written and now_s >= self.ask_at_s:
            self.ask_at_s = now_s + self.pause_s
            self._go_on(self.place)

    def part(self, state: GroupState, why: str, views: Iterable[str], now_ms: int) -> None:
        """Let every member run on its own and publish the reason. Raises HubError when that cannot be
        written.
        """
        self._release(())
        self.report_state(state, why, tuple(views), now_ms)

    def report_state(self, state: GroupState, why: str | None, views: tuple[str, ...], now_ms: int) -> None:
        group_note = self.note
        if group_note is not None and (group_note.state, group_note.why, group_note.views) == (
            state,
            why,
            views,
        ):
            return
        note = GroupNote(self.name, state, why, views, now_ms)
        self.writer.append([note.record()])
        self.note = note
        log.info("group %s: %s%s", self.name, state, f" ({why})" if why else "")

    def forget(self) -> None:
        """Delete the group's records and release its members."""
        self._release(())
        keys = (f"{CUT}{self.name}", f"{GROUP}{self.name}")
        self.writer.append([NewRecord(PROGRESS_TOPIC, key.encode(), None) for key in keys])

    @property
    def places(self) -> Places | None:
        """The places that the group may stop at, those of its only member; None: any."""
        return self.members[0].places if len(self.members) == 1 else None

    def _report_waiting(self, places: Places, now_s: float, now_ms: int) -> None:
        """Publish what the next place waits for, every few seconds."""
        if now_s < self.wait_at_s:
            return
        self.wait_at_s = now_s + _WAITING_EVERY_S
        why, tables = places.waiting(), _tables(self.members)
        if why is not None:
            self.report_state("waiting", why, tables, now_ms)
        elif self.note is not None and self.note.state == "waiting":
            self.report_state("together", None, tables, now_ms)

    def _same(self, members: Sequence[Member]) -> bool:
        return [id(each) for each in members] == [id(each) for each in self.members]

    def _release(self, keep: Sequence[Member]) -> None:
        kept = {id(each) for each in keep}
        for each in self.members:
            if each.open and id(each) not in kept:
                try:
                    each.ends.free()
                except Exception:  # the other members must not wait for it
                    log.exception("view %s: not released", each.table)
            if each.places is not None:
                each.places.close()
        self.members, self.place, self.is_written = (), None, False

    def _gather(self, now_ms: int) -> bool:
        """Hold all members where they are; the first place is the furthest. False: try again at the next
        look.
        """
        if self.note is None or self.note.state != "waiting":
            self.report_state("gathering", None, _tables(self.members), now_ms)
        begin = self.log.beginning_offsets(_topics(self.members))
        held = []
        for each in self.members:
            at = each.ends.hold(begin.of_topics(each.topics))
            if at is None:
                return False  # a batch of it is just being made; those before it are held already
            held.append(at)
        self.begin = begin
        first = joined(held)
        if (places := self.places) is not None:
            found = places.first(first)
            self._report_waiting(places, time.monotonic(), now_ms)
            if found is None:
                return False
            first = found
        self._set(first)
        return True

    def _set(self, place: Positions) -> None:
        """Set the next place, limited to topics outside the group."""
        self.place, self.is_written = place.of_topics(_beside(self.members)), False
        self.let, self.written = set(), {}
        self._bring()

    def _bring(self) -> None:
        """Release each member whose input views have arrived, and check which members arrive then."""
        while self._bring_some():
            pass

    def _bring_some(self) -> bool:
        """Run one round of ``_bring``. True when a member arrived, so that others may be released."""
        came = []
        for each in self.members:
            if each.table not in self.let:
                below = [other for other in self.members if other.changelog in each.topics]
                if any(other.table not in self.written for other in below):
                    continue
                assert self.place is not None
                self.place = joined([self.place, *(self.written[other.table] for other in below)])
                each.ends.until(self.place.of_topics(each.topics))
                self.let.add(each.table)
            if each.table not in self.written and self._there(each):
                came.append(each)
        if not came:
            return False
        ends = self.log.end_offsets([each.changelog for each in came])
        if not all(each.open for each in came):
            return False
        self.written |= {each.table: ends.of_topics([each.changelog]) for each in came}
        return True

    def _there(self, member: Member) -> bool:
        assert self.place is not None
        return self.begin.advanced(member.reached).covers(self.place.of_topics(member.topics))

    def _publish(self, place: Positions, now_ms: int) -> None:
        if not all(each.open for each in self.members):
            return
        views = {
            each.table: MemberPosition(each.generation, self.written[each.table], each.topics)
            for each in self.members
        }
        self.writer.append([GroupSnapshot(self.name, place, views, now_ms).record()])
        self.is_written = True
        if self.note is None or self.note.state != "waiting":
            self.report_state("together", None, _tables(self.members), now_ms)

    def _go_on(self, place: Positions) -> None:
        beside = _beside(self.members)
        place, places = place.of_topics(beside), self.places
        if places is None:
            following = next_place(place, self.log.end_offsets(beside), self.most)
        else:
            following = next_place(place, places.following(place), places.at_once)
        if following != place:
            self._set(following)  # before any member may pass the old one


def _tables(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(sorted(each.table for each in members))


def _topics(members: Iterable[Member]) -> list[str]:
    return sorted({topic for each in members for topic in each.topics})


def _beside(members: Iterable[Member]) -> list[str]:
    """Return the topics that members read and do not write."""
    written = {each.changelog for each in members}
    return [topic for topic in _topics(members) if topic not in written]


@dataclass
class SnapshotGroups:
    """Every group of the project. The materializer's loop replaces ``running`` and never mutates it."""

    log: Cluster
    writer: Writer
    most: int
    pause_s: float
    now_ms: Callable[[], int] = epoch_ms
    running: Sequence[RunningVersion] = ()
    groups: dict[str, SnapshotGroup] = field(default_factory=dict)

    def run(self, stop: threading.Event) -> None:
        pause_s = _IDLE_S
        while not stop.wait(pause_s):
            pause_s = _IDLE_S
            try:
                if self.step(time.monotonic()):
                    pause_s = _LOOK_S
            except HubError as error:
                log.warning("views in step, tried again: %s", error.message)
            except Exception:  # an internal error must not end the thread: members would wait for ever
                log.exception("views in step")
        self.part_all("the materializer stops")
        self.writer.close()

    def step(self, now_s: float) -> bool:
        """Run one step of each group. True when one of them moves."""
        wanted: dict[str, list[RunningVersion]] = {}
        for each in self.running:
            if each.group is not None and (each.served or is_transaction_group(each.group)):
                wanted.setdefault(each.group, []).append(each)
        for name in self.groups.keys() - wanted.keys():
            self.groups[name].forget()
            del self.groups[name]
        moving = False
        for name, views in wanted.items():
            group = self.groups.get(name)
            if group is None:
                group = self.groups[name] = SnapshotGroup(
                    name, self.log, self.writer, self.most, self.pause_s
                )
            try:
                moving |= self._step(group, views, now_s)
            except HubError as error:
                log.warning("group %s: %s", name, error.message)
        return moving

    def _step(self, group: SnapshotGroup, views: Sequence[RunningVersion], now_s: float) -> bool:
        tables = sorted(each.table for each in views)
        members = [each.member for each in views]  # once: their threads change it
        missing = _missing(views, members)
        if missing is not None:
            group.part(*missing, tables, self.now_ms())
            return False
        try:
            group.step([each for each in members if each is not None], now_s, self.now_ms())
        except Exception as error:
            if not isinstance(error, HubError):
                log.exception("group %s", group.name)
            message = (
                error.message if isinstance(error, HubError) else f"{type(error).__name__}: {error}"[:300]
            )
            group.part("apart", message, tables, self.now_ms())
            return False
        return True

    def part_all(self, why: str) -> None:
        for group in self.groups.values():
            try:
                group.part("apart", why, (), self.now_ms())
            except HubError as error:
                log.debug("group %s: %s", group.name, error.message)


def _missing(
    views: Sequence[RunningVersion], members: Sequence[Member | None]
) -> tuple[GroupState, str] | None:
    """Return why a group cannot move in steps now; None if it can."""
    for each in views:
        if each.unheld is not None:
            return "apart", each.unheld
    for each, member in zip(views, members, strict=True):
        if member is None or not member.open:
            state, why = each.reported
            if state == "bulk":
                return "catching up", f'view "{each.table}" reads what it has missed'
            return "apart", f'view "{each.table}" is {state}' + (f": {why}" if why else "")
    return None
