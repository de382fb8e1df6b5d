"""[shell] The steps of a repair. Each step can be repeated, and the journal has the next one.

A killed repair has done a step or not: what a step writes is one transaction with its note, and what it does
to the topic (refuse events, delete, create) is the same the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from hub.errors import Conflict, PeerError
from hub.log import Cluster, GroupsLeftAlone
from hub.record import Positions
from hub.repairs import copying, filling
from hub.repairs.groups import (
    RepairGroupCluster,
    groups_of,
    moved_positions,
    require_inactive,
    wanted_positions,
)
from hub.repairs.holding import LIMIT, HoldWaits, hold, is_held
from hub.repairs.journal import JournalLog, RepairJournal
from hub.repairs.model import FilledPartition, GenerationChange, Step, finished, generation_topic

_MOST_ROUNDS: Final = 3


class RepairCluster(JournalLog, RepairGroupCluster, Protocol):
    """A cluster whose topics and groups are changed."""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Result of a repair. ``moved``: new positions by group; ``left``: groups with members, whose positions
    were not moved. ``rounds``: how often the topic was made again because of other producers.
    """

    generation: int
    counts: Mapping[str, int]
    moved: Mapping[str, Positions]
    left: tuple[str, ...]
    rounds: int


@dataclass
class Switch:
    """One change of a topic's generation, carried out. ``outcomes``: repairs a page of records.
    ``leave_active``: groups with members keep the positions that Kafka has. ``check`` is called between
    transactions, and stops the change by an error. ``say`` gets one line per step.
    """

    cluster: RepairCluster
    journal: RepairJournal
    outcomes: copying.Outcomes = copying.copied
    leave_active: bool = False
    waits: HoldWaits = field(default_factory=HoldWaits)
    check: Callable[[], None] = lambda: None
    say: Callable[[str], object] = lambda _line: None

    def run(self) -> RepairReport:
        """Carry the change out, from its present step on. Raises Conflict, PeerError; then it can be
        continued.
        """
        steps: Mapping[Step, Callable[[], None]] = {
            "copy": self._copy,
            "hold": self._hold,
            "switch": self._switch,
            "fill": self._fill,
        }
        while (change := self._change()).step != "finish":
            self.check()
            steps[change.step]()
        return self._finish()

    # ---- steps

    def _copy(self) -> None:
        """Copy the present events while producers write more."""
        change = self._change()
        copying.make_generations(self.journal, change)
        self.say(f"Copy the events into generation {change.target}")
        if change.base is not None:
            copying.copy_base(self.journal, change, self.check)
        ends = self.cluster.end_offsets([self._topic])
        change = copying.copy_topic(self.journal, ends, self.outcomes, self.check)
        if not self.leave_active:
            require_inactive(self._topic, groups_of(self.cluster, self._topic))
        self._note(replace(change, step="hold"))

    def _hold(self) -> None:
        """Stop the topic, copy the rest, note positions of groups. From here on the change is completed."""
        change = self._change()
        self.say("Refuse new events")
        ends = hold(self.cluster, self._topic, self.waits)
        try:
            change = copying.copy_topic(self.journal, ends, self.outcomes, self.check)
            groups = groups_of(self.cluster, self._topic)
            if not self.leave_active:
                require_inactive(self._topic, groups)
        except Conflict:
            self.cluster.alter_config(self._topic, {LIMIT: change.config.get(LIMIT)})
            raise
        stopped = {str(tp.partition): end for tp, end in ends}
        noted = replace(
            change, step="switch", ends=stopped, groups=groups.positions, left_groups=groups.active
        )
        self._note(noted)

    def _switch(self) -> None:
        """Delete the topic and make it again. A topic that a broker made on its own in between is emptied
        into the generations first.
        """
        change = self._change()
        there = self.cluster.described([self._topic]).get(self._topic)
        if there is not None and there.topic_id == change.topic_id:
            self.say("Delete the topic and make it again")
            self.cluster.delete_topic(self._topic)
            there = None
        if there is None:
            try:
                filling.create_again(self.journal, change)
            except Conflict:
                return  # a producer's request made it first
            there = self.cluster.described([self._topic])[self._topic]
        if is_held(self.cluster, self._topic):
            filling.require_partitions(change, there.partitions, self._topic)
            self._note(replace(change, step="fill", new_id=there.topic_id))
            return
        self._note(replace(change, new_id=there.topic_id))
        self._carry_over({})

    def _fill(self) -> None:
        change = self._change()
        self.journal.reopen()
        filling.open_for_fill(self.journal)
        self.say(f"Fill the topic from generation {change.target}")
        wanted = wanted_positions(change, self.journal.state.archived)
        try:
            filling.fill(self.journal, wanted, self.check)
        except filling.Interrupted:
            self._carry_over(filling.filled_partitions(self.journal, change))
            if self._change().round % _MOST_ROUNDS == 0:
                raise _still_written(self._topic) from None
            return
        self._note(replace(change, step="finish"))

    def _finish(self) -> RepairReport:
        """Restore the settings, and commit the positions of groups with the new state."""
        change = self._change()
        filling.restore_settings(self.journal, change)
        filled = filling.filled_partitions(self.journal, change)
        archived = {str(number): each.end for number, each in filled.items()}
        while True:
            moved = moved_positions(self._topic, change, self.journal.state.archived, filled)
            after = finished(replace(self.journal.state, change=change), archived)
            try:
                self.journal.finish(after, moved, partial(self._require_inactive, moved))
                break
            except GroupsLeftAlone as error:
                change = replace(change, left_groups=(*change.left_groups, *error.groups))
        self.say(f"Topic {self._topic} has generation {change.target}")
        return RepairReport(change.target, change.counts, moved, change.left_groups, change.round)

    # ---- parts

    def _carry_over(self, filled: Mapping[int, FilledPartition]) -> None:
        """Hold the topic, and copy its events of other producers to the end of both generations."""
        self.say("Another producer wrote events meanwhile: carry them over, and make the topic again")
        hold(self.cluster, self._topic, self.waits)
        copying.carry_over(self.journal, filling.late_events(self.journal, filled))

    def _require_inactive(self, moved: Mapping[str, Positions]) -> None:
        """Raise GroupsLeftAlone for groups that have members: they keep their own positions."""
        members = self.cluster.group_members(sorted(moved)) if moved else {}
        active = [group for group in moved if members.get(group)]
        if active:
            raise GroupsLeftAlone("groups have members", active)

    @property
    def _topic(self) -> str:
        return self.journal.topic

    def _change(self) -> GenerationChange:
        change = self.journal.state.change
        assert change is not None
        return change

    def _note(self, change: GenerationChange) -> None:
        self.journal.append(state=replace(self.journal.state, change=change))


def abort(cluster: Cluster, journal: RepairJournal) -> None:
    """End a change that has not deleted the topic: the topic accepts events again, and the next generation is
    deleted. Raises Conflict (HUB-1942) for a change that is too far.
    """
    state = journal.state
    change = state.change
    assert change is not None
    if change.step not in ("copy", "hold"):
        raise Conflict(
            f'topic "{state.topic}": the repair has begun to make the topic again, it cannot be aborted',
            hint="continue it (--continue), then undo it (--undo)",
            code="HUB-1942",
        )
    cluster.alter_config(state.topic, {LIMIT: change.config.get(LIMIT)})
    target = generation_topic(state.topic, change.target)
    if cluster.partition_counts([target]):
        cluster.delete_topic(target)
    archived = _archived_so_far(journal, change)
    notes = dict.fromkeys(journal.progress)
    after = replace(state, archived=archived, topic_id=change.topic_id, change=None)
    journal.append(state=after, progress=notes)


def _archived_so_far(journal: RepairJournal, change: GenerationChange) -> dict[str, int]:
    """Return the positions up to which the current generation's archive has the topic's records."""
    known = dict(journal.state.archived)
    for number in range(change.partitions):
        noted = journal.noted("topic", change.target, number)
        place = str(number)
        known[place] = max(known.get(place, 0), int(noted.get("next", 0)))
    return known


def _still_written(topic: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": other producers wrote to it each time that it was made again. No event is lost; '
        "the topic refuses events now",
        hint="stop its producers, then continue: hub topic repair TOPIC --continue",
        code="HUB-3111",
    )
