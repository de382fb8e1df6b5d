"""[core] Barrier of a snapshot group in a store: rows are applied at its snapshots, all members at once.

Rows past the newest snapshot wait within two bounds: a time (``patience_s``) and a number of rows per member
(``most``). Past them the group is *apart* in this store and rows are applied as they come; the next snapshot
record starts the waiting again, and the first one that no member is past brings the group together.

The rows of a view with ``consistent_with: transaction`` are applied at its snapshots and nowhere else: its
group is ``strict``, never apart, and waits for the next snapshot however long and for however many rows.

This object is not the authority on whether a store is at a snapshot: readers compare the positions in the
store with those of the snapshot that is noted with them (in_store.py). So a kill at any moment, or a version
without snapshot groups, cannot make a claim false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hub.materializers.snapshot_groups.group import GroupSnapshot
from hub.record import Positions

# Verdict on a group's rows: apply all that were read, hold them, or apply those before the snapshot.
Verdict = Literal["free", "hold", "apply"]


@dataclass(frozen=True, slots=True)
class MemberStanding:
    """A member in a store: applied and read positions of its changelog, and the number of rows waiting
    between them.
    """

    applied: Positions
    read: Positions
    waiting: int
    stopped: bool = False


@dataclass
class GroupBarrier:
    """A group in one store. Call ``take_snapshot`` with each snapshot, ``judge`` in each step, and
    ``applied`` after an apply.
    """

    name: str
    patience_s: float
    most: int
    cut: GroupSnapshot | None = None  # newest received snapshot
    at: GroupSnapshot | None = None  # snapshot that the store is at
    why: str | None = None  # reason, when it is apart
    holding: bool = True
    newest_offset: int = -1  # offset of the newest record
    since_s: float | None = None  # start of the rows' wait
    strict: bool = False  # rows are applied at snapshots only

    def take_snapshot(self, cut: GroupSnapshot, offset: int) -> None:
        """Take a snapshot record of the log; ignores a repeated one."""
        if self.cut is not None and offset <= self.newest_offset and cut.at_ms <= self.cut.at_ms:
            return
        self.cut, self.newest_offset, self.holding = cut, offset, True

    def judge(self, members: Mapping[str, MemberStanding], now_s: float) -> Verdict:
        """Return what may be done now. ``members``: the views of this group that the store has.

        Members that the snapshot does not name (a version in building, a view that has just joined) are
        always free.
        """
        if self.cut is None:
            return "hold" if self.strict else "free"
        goals = {table: each.changelog for table, each in self.cut.views.items() if table in members}
        mine = {table: members[table] for table in goals}
        if not mine:
            return "hold" if self.strict else "free"
        for table, each in mine.items():
            if each.stopped and self.strict:
                return "hold"
            if each.stopped:
                return self._part(f'view "{table}" is stopped in this store')
        ahead = any(not goals[table].covers(each.applied) for table, each in mine.items())
        unread = [table for table, each in mine.items() if not each.read.covers(goals[table])]
        if not ahead and not unread and self.at is not self.cut:
            return "apply"
        if self.strict:
            return "hold"
        if not self.holding:
            return "free"
        for table in unread:
            if mine[table].waiting > self.most and not ahead:
                return self._part(f'a cut has more than {self.most} rows of view "{table}"')
        if not any(each.waiting for each in mine.values()) and (ahead or not unread):
            self.since_s = None
            return "hold"
        if self.since_s is None:
            self.since_s = now_s
        if now_s - self.since_s > self.patience_s:
            return self._part(f"rows have waited for a cut for {self.patience_s:g} s")
        return "hold"

    def full(self, members: Mapping[str, MemberStanding]) -> set[str]:
        """Return the members of which no more may be read now."""
        if self.strict:
            return {
                table
                for table, each in members.items()
                if each.waiting > self.most and (self.cut is None or self._is_read(table, each, self.cut))
            }
        if self.cut is None or not self.holding:
            return set()
        return {
            table for table, each in members.items() if table in self.cut.views and each.waiting > self.most
        }

    @staticmethod
    def _is_read(table: str, standing: MemberStanding, cut: GroupSnapshot) -> bool:
        """Return whether all rows of a member up to a snapshot are read: more would only wait."""
        place = cut.views.get(table)
        return place is None or standing.read.covers(place.changelog)

    def applied(self) -> None:
        """Note that the store is at the snapshot."""
        self.at, self.why, self.since_s, self.holding = self.cut, None, None, True

    def part(self, why: str) -> None:
        """Let the members' rows be applied as they come, until the next snapshot is received."""
        if not self.strict:
            self._part(why)

    def _part(self, why: str) -> Verdict:
        self.holding, self.since_s, self.at = False, None, None
        self.why = self.why or why
        return "free"
