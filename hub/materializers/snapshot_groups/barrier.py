"""[core] When a store may apply the rows of a group of views: at its cuts, all members at once.

Rows beyond the newest cut wait, within two bounds: so long (``patience_s``) and so many of each member (``most``). Past them
the group is *apart* in this store and rows are applied as they come; the next cut that is heard of begins the waiting anew,
and the first one that no member is past brings the group together again.

Whether a store is at a cut is never believed of this object: who asks compares the positions in the store with those of
the cut that is noted beside them (in_store.py). So a kill at any moment, or a version that knows of no cuts, cannot make a claim false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hub.materializers.snapshot_groups.group import GroupSnapshot
from hub.record import Positions

# What may be done with a group's rows: apply all that were read, keep them, or apply those before the cut.
Verdict = Literal["free", "hold", "apply"]


@dataclass(frozen=True, slots=True)
class MemberStanding:
    """A member in a store: what of its changelog is applied, what is read, how many rows wait in between."""

    applied: Positions
    read: Positions
    waiting: int
    stopped: bool = False


@dataclass
class GroupBarrier:
    """A group in one store. ``hear`` of each cut, then ``judge`` in each step, and ``applied`` when that was done."""

    name: str
    patience_s: float
    most: int
    cut: GroupSnapshot | None = None  # the newest that was heard of
    at: GroupSnapshot | None = None  # that the store was brought to
    why: str | None = None  # it is apart
    holding: bool = True
    heard: int = -1  # offset of the newest record
    since_s: float | None = None  # rows wait

    def hear(self, cut: GroupSnapshot, offset: int) -> None:
        """A record of the log; one that was heard before says nothing new."""
        if self.cut is not None and offset <= self.heard and cut.at_ms <= self.cut.at_ms:
            return
        self.cut, self.heard, self.holding = cut, offset, True

    def judge(self, members: Mapping[str, MemberStanding], now_s: float) -> Verdict:
        """What may be done now. ``members``: the views of this group that the store has; those that the cut does not name
        (a version that is being built, a view that has just joined) are free whatever is said of the others."""
        if self.cut is None:
            return "free"
        goals = {table: each.changelog for table, each in self.cut.views.items() if table in members}
        mine = {table: members[table] for table in goals}
        if not mine:
            return "free"
        for table, each in mine.items():
            if each.stopped:
                return self._part(f'view "{table}" is stopped in this store')
        ahead = any(not goals[table].covers(each.applied) for table, each in mine.items())
        unread = [table for table, each in mine.items() if not each.read.covers(goals[table])]
        if not ahead and not unread and self.at is not self.cut:
            return "apply"
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
        """Of which members nothing more is to be read now."""
        if self.cut is None or not self.holding:
            return set()
        return {
            table for table, each in members.items() if table in self.cut.views and each.waiting > self.most
        }

    def applied(self) -> None:
        """The store is at the cut."""
        self.at, self.why, self.since_s, self.holding = self.cut, None, None, True

    def part(self, why: str) -> None:
        """The members' rows are applied as they come, until the next cut is heard of."""
        self._part(why)

    def _part(self, why: str) -> Verdict:
        self.holding, self.since_s, self.at = False, None, None
        self.why = self.why or why
        return "free"
