"""[shell] Snapshot groups of one store: which rows of their views a step may apply
(snapshot_groups/barrier.py).

Views of one group (``cut`` in their files) are applied at the group's snapshots, all in one transaction,
which also notes the snapshot. Rows past it wait in memory, within bounds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from hub.errors import HubFault
from hub.materializers.applying.followed_view import AppliedView, StepPart
from hub.materializers.definition.declared import is_transaction_group
from hub.materializers.snapshot_groups.barrier import GroupBarrier, MemberStanding
from hub.materializers.snapshot_groups.group import CUT, GroupSnapshot, group_snapshot_of
from hub.materializers.stores.store import ViewBatch
from hub.times import epoch_ms

log = logging.getLogger(__name__)

Followed = Mapping[str, AppliedView]


class GroupGate:
    """Barriers of one store's groups. ``paused``: views of which no more is read, as too many of their rows
    wait. ``records``: what the step writes to the store in addition to rows."""

    def __init__(self, wait_s: float, most_waiting: int) -> None:
        self._wait_s, self._most_waiting = wait_s, most_waiting
        self._barriers: dict[str, GroupBarrier] = {}
        self._reported_apart: dict[str, str] = {}
        self.paused: set[str] = set()

    def recall(self, stored: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore the snapshots that the store is at; rows are held from the first one on. ``stored``: the
        store's records."""
        for key, body in stored.items():
            if key.startswith(CUT) and body.get("state") == "together":
                try:
                    snapshot = group_snapshot_of(body)
                except HubFault as fault:
                    log.error("%s: %s", key, fault.message)
                    continue
                barrier = self._barrier(key.removeprefix(CUT))
                barrier.cut = barrier.at = snapshot

    def forget(self, names: AbstractSet[str | None]) -> list[str]:
        """Drop the groups that are not among ``names``. Return the keys of store records to remove."""
        gone = [self._barriers.pop(name) for name in [*self._barriers] if name not in names]
        return [f"{CUT}{each.name}" for each in gone if each.at is not None or each.why is not None]

    def take_snapshot(self, name: str, snapshot: GroupSnapshot, offset: int) -> None:
        """Take a group's snapshot. ``offset``: of its record."""
        self._barrier(name).take_snapshot(snapshot, offset)

    def drop(self, name: str) -> None:
        """Note that a group was deleted."""
        self._barriers.pop(name, None)

    def parts(self, followed: Followed, records: dict[str, Any], now_s: float) -> dict[str, StepPart]:
        """Return the end of each view's rows that may be applied now; views that wait for a snapshot are left
        out."""
        parts = {table: StepPart(each.read) for table, each in followed.items()}
        for each in followed.values():
            if each.view.group is not None and is_transaction_group(each.view.group):
                self._barrier(each.view.group)  # its rows wait for the first snapshot, too
        for name, barrier in self._barriers.items():
            members = _members(followed, name)
            verdict, snapshot = barrier.judge(members, now_s), barrier.cut
            if verdict == "free":
                self._report_apart(barrier, records)
                continue
            if snapshot is None:  # a strict group before its first one
                for table in members:
                    del parts[table]
                continue
            mine = [table for table in snapshot.views if table in members]
            for table in members if barrier.strict else mine:
                if verdict == "apply":
                    parts[table] = StepPart(snapshot.views[table].changelog, snapshot)
                else:
                    del parts[table]
            if verdict == "apply":
                # Only the members in this store: nobody can check the others.
                here = {**snapshot.body(), "state": "together"}
                here["views"] = {table: place for table, place in here["views"].items() if table in mine}
                records[f"{CUT}{name}"] = here
        return parts

    def only_whole(
        self,
        batches: Sequence[ViewBatch],
        parts: Mapping[str, StepPart],
        followed: Followed,
        records: dict[str, Any],
    ) -> list[ViewBatch]:
        """Return the batches without those of groups in which a member stopped in this step; these groups are
        apart."""
        broken = {
            part.cut.name: table
            for table, part in parts.items()
            if part.cut is not None and followed[table].stopped is not None
        }
        for name, table in broken.items():
            records.pop(f"{CUT}{name}", None)
            barrier = self._barriers[name]
            barrier.part(f'view "{table}" is stopped in this store')
            self._report_apart(barrier, records)
        return [each for each in batches if (cut := parts[each.view].cut) is None or cut.name not in broken]

    def note_applied(self, records: Mapping[str, Any], followed: Followed) -> None:
        """Mark group snapshots as applied, after their transaction."""
        for name, barrier in self._barriers.items():
            noted = records.get(f"{CUT}{name}")
            if noted is None or noted.get("state") != "together" or barrier.cut is None:
                continue
            stopped = next((table for table in noted["views"] if followed[table].stopped), None)
            if stopped is not None:  # the store refused its rows
                barrier.part(f'view "{stopped}" is stopped in this store')
                continue
            barrier.applied()
            self._reported_apart.pop(name, None)

    def pause(self, followed: Followed) -> bool:
        """Pause the views with too many waiting rows. Return True if these are others than before."""
        full = {
            table
            for name, barrier in self._barriers.items()
            for table in barrier.full(_members(followed, name))
        }
        changed, self.paused = full != self.paused, full
        return changed

    def _barrier(self, name: str) -> GroupBarrier:
        made = GroupBarrier(name, self._wait_s, self._most_waiting, strict=is_transaction_group(name))
        return self._barriers.setdefault(name, made)

    def _report_apart(self, barrier: GroupBarrier, records: dict[str, Any]) -> None:
        """Note that the group is apart, in the transaction with the first rows outside a snapshot; once per
        reason."""
        if barrier.why is None or self._reported_apart.get(barrier.name) == barrier.why:
            return
        self._reported_apart[barrier.name] = barrier.why
        log.warning("group %s: its views are applied as their rows come: %s", barrier.name, barrier.why)
        since_ms = epoch_ms()
        records[f"{CUT}{barrier.name}"] = {"state": "apart", "why": barrier.why, "since_ms": since_ms}


def _members(followed: Followed, name: str) -> dict[str, MemberStanding]:
    return {table: each.standing for table, each in followed.items() if each.view.group == name}
