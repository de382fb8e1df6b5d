"""[shell] Groups of views moved in step, in a thread of the materializer.

A step of a group is bounded: it looks whether every member has committed up to the place that was set, tells the cut, and
sets the next place. Whatever changes (a query ends, another version is served, Spark is another one, Kafka is away) lets
all members run on their own and begins anew: no view waits for one that does not run.

Why what is told is a cut: while a place is set no member reads past it, so what members have written when all have committed
there is made of what lies before it. The ends of the changelogs are asked then, and a member of which another query may
have begun meanwhile (``Member.open``) makes the answer void. The next place is set after the record is in the log.

A member that reads another one's changelog goes last: the place that is chosen is of topics beside the group, and when all that
a member reads of the group are there, the ends of their changelogs are what of the place is its. These ends, asked once, are
also those that the cut tells: rows behind them are of the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hub.errors import HubError, PeerError
from hub.log import Writer
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
from hub.record import NewRecord, Positions

log = logging.getLogger(__name__)

_LOOK_S = 0.01
# Without a group, or after trouble.
_IDLE_S = 0.5


class ReadEnds(Protocol):
    """How far a running query may read."""

    def hold(self, begin: Positions) -> Positions | None:
        """From now on no batch begins; what is running goes on to its end. Returns the place after it, at least ``begin``;
        None: not at this moment. Raises HubError when this Spark cannot be held."""

    def until(self, place: Positions) -> None:
        """It may read up to there, which is not before what ``hold`` returned."""

    def free(self) -> None:
        """It may read all there is."""


@dataclass
class Member:
    """A view's running query as its group sees it. The view's thread sets ``reached`` after each commit, and ``open`` to
    False before another query of the view can begin."""

    table: str
    generation: int
    topics: tuple[str, ...]
    changelog: str
    ends: ReadEnds
    reached: Positions
    open: bool = True
    views: tuple[str, ...] = ()  # those of its topics that are changelogs of views which it reads


class GroupLog(Protocol):
    def end_offsets(self, topics: Sequence[str]) -> Positions: ...

    def beginning_offsets(self, topics: Sequence[str]) -> Positions: ...


@dataclass
class SnapshotGroup:
    """One group. ``most``: events from one place to the next; ``pause_s``: between two questions for news."""

    name: str
    log: GroupLog
    writer: Writer
    most: int
    pause_s: float = 0.0
    members: tuple[Member, ...] = ()
    begin: Positions = field(default_factory=Positions)
    place: Positions | None = None
    # Of those that may go to the place, and of those of them that are there: the end of their changelogs.
    let: set[str] = field(default_factory=set)
    written: dict[str, Positions] = field(default_factory=dict)
    told: bool = False  # the cut at ``place``
    ask_at_s: float = 0.0
    note: GroupNote | None = None

    def step(self, members: Sequence[Member], now_s: float, now_ms: int) -> None:
        """``members``: all that the group has. Raises HubError; then ``part`` it."""
        if not self._same(members):
            self._release(members)
            self.members = tuple(members)
            _check(self.members)
        if self.place is None and not self._gather(now_ms):
            return
        assert self.place is not None
        self._bring()
        if not self.told and len(self.written) == len(self.members):
            self._tell(self.place, now_ms)
        if self.told and now_s >= self.ask_at_s:
            self.ask_at_s = now_s + self.pause_s
            self._go_on(self.place)

    def part(self, state: GroupState, why: str, views: Iterable[str], now_ms: int) -> None:
        """Every member runs on its own. Raises HubError when that cannot be said."""
        self._release(())
        self.say(state, why, tuple(views), now_ms)

    def say(self, state: GroupState, why: str | None, views: tuple[str, ...], now_ms: int) -> None:
        known = self.note
        if known is not None and (known.state, known.why, known.views) == (state, why, views):
            return
        note = GroupNote(self.name, state, why, views, now_ms)
        self.writer.append([note.record()])
        self.note = note
        log.info("group %s: %s%s", self.name, state, f" ({why})" if why else "")

    def forget(self) -> None:
        """There is no such group any more."""
        self._release(())
        keys = (f"{CUT}{self.name}", f"{GROUP}{self.name}")
        self.writer.append([NewRecord(PROGRESS_TOPIC, key.encode(), None) for key in keys])

    def _same(self, members: Sequence[Member]) -> bool:
        return [id(each) for each in members] == [id(each) for each in self.members]

    def _release(self, keep: Sequence[Member]) -> None:
        kept = {id(each) for each in keep}
        for each in self.members:
            if each.open and id(each) not in kept:
                try:
                    each.ends.free()
                except Exception:  # the others must not stand still for it
                    log.exception("view %s: not let go", each.table)
        self.members, self.place, self.told = (), None, False

    def _gather(self, now_ms: int) -> bool:
        """Hold all, each where it is; the first place is the furthest of all. False: again at the next look."""
        self.say("gathering", None, _tables(self.members), now_ms)
        begin = self.log.beginning_offsets(_topics(self.members))
        held = []
        for each in self.members:
            at = each.ends.hold(begin.of_topics(each.topics))
            if at is None:
                return False  # a batch of it is just being made; those before it are held already
            held.append(at)
        self.begin = begin
        self._set(joined(held))
        return True

    def _set(self, place: Positions) -> None:
        """The next place, as far as it is of topics beside the group."""
        self.place, self.told = place.of_topics(_beside(self.members)), False
        self.let, self.written = set(), {}
        self._bring()

    def _bring(self) -> None:
        """Let each go on whose views are there, and see who else is there then."""
        while self._bring_some():
            pass

    def _bring_some(self) -> bool:
        """True when somebody has come there, so that others may go on."""
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

    def _tell(self, place: Positions, now_ms: int) -> None:
        if not all(each.open for each in self.members):
            return
        views = {
            each.table: MemberPosition(each.generation, self.written[each.table], each.topics)
            for each in self.members
        }
        self.writer.append([GroupSnapshot(self.name, place, views, now_ms).record()])
        self.told = True
        self.say("together", None, _tables(self.members), now_ms)

    def _go_on(self, place: Positions) -> None:
        beside = _beside(self.members)
        place = place.of_topics(beside)
        following = next_place(place, self.log.end_offsets(beside), self.most)
        if following != place:
            self._set(following)  # before any member may pass the old one


def _tables(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(sorted(each.table for each in members))


def _topics(members: Iterable[Member]) -> list[str]:
    return sorted({topic for each in members for topic in each.topics})


def _beside(members: Iterable[Member]) -> list[str]:
    """The topics that they read and do not write."""
    written = {each.changelog for each in members}
    return [topic for topic in _topics(members) if topic not in written]


def _check(members: Sequence[Member]) -> None:
    """Raises PeerError (HUB-3061) for members that cannot come to one place."""
    written = {each.changelog for each in members}
    for each in members:
        for topic in each.views:
            if topic not in written:
                raise PeerError(
                    f'view "{each.table}" reads {topic}, which no view of its group writes',
                    hint="write the same `cut` in both views' files; while another version of one is built, it passes by itself",
                    code="HUB-3061",
                )
    left = list(members)
    while left:
        free = [
            each
            for each in left
            if not any(other.changelog in each.topics for other in left if other is not each)
        ]
        if not free:
            names = ", ".join(each.table for each in left)
            raise PeerError(
                f"views {names} read one another in a circle", hint="no place has both", code="HUB-3061"
            )
        left = [each for each in left if each not in free]


class RunningVersion(Protocol):
    """A version of a view and what its thread does."""

    table: str
    member: Member | None
    unheld: str | None  # why its query cannot be held
    said: tuple[str, str | None]  # its state, and why

    @property
    def group(self) -> str | None: ...

    @property
    def served(self) -> bool: ...


@dataclass
class SnapshotGroups:
    """Every group of the project. ``running`` is replaced by the materializer's loop, never changed."""

    log: GroupLog
    writer: Writer
    most: int
    pause_s: float
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
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
            except Exception:  # a fault of ours must not end it: members would stand still
                log.exception("views in step")
        self.part_all("the materializer stops")
        self.writer.close()

    def step(self, now_s: float) -> bool:
        """One step of each group. True when one of them moves."""
        wanted: dict[str, list[RunningVersion]] = {}
        for each in self.running:
            if each.group is not None and each.served:
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
            said = error.message if isinstance(error, HubError) else f"{type(error).__name__}: {error}"[:300]
            group.part("apart", said, tables, self.now_ms())
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
    """Why a group cannot move in step now; None: it can."""
    for each in views:
        if each.unheld is not None:
            return "apart", each.unheld
    for each, member in zip(views, members, strict=True):
        if member is None or not member.open:
            state, why = each.said
            if state == "bulk":
                return "catching up", f'view "{each.table}" reads what it has missed'
            return "apart", f'view "{each.table}" is {state}' + (f": {why}" if why else "")
    return None
