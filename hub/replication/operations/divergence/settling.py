"""[shell] Settle the records that only the old source has, in the steps of a failback.

::

    tail      fence_home   stop_writers     settle_tail                    fence_mirror
    replay    export                        workers append; report
    discard   export                        declare lost; report
    merge                  decide, export   workers append; report
    restore                                 export, make again; report     count; report again

Workers append a tail as soon as the step before ``settle_tail`` is recorded, so a tail that is appended is
exported before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from hub.errors import CallerError
from hub.record import NewRecord, Record
from hub.replication.clusters.clusters import topics_of
from hub.replication.operations.catch_up import HomeTail, catch_up, discard, tails
from hub.replication.operations.divergence.merging import declare_merge
from hub.replication.operations.divergence.restoring import conclude, record_topics, restore
from hub.replication.operations.divergence.tail_export import (
    ExportedRange,
    export_ranges,
    files_of,
    write_report,
)
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.ownership.divergence import RestoredTopic
from hub.replication.ownership.operation_steps import OwnershipChange, StepName, scope_of
from hub.times import epoch_ms


@dataclass(frozen=True, slots=True)
class Settling:
    """Settlement of one failback. ``publish`` writes a control record to both clusters."""

    world: MirroredClusters
    operation: OwnershipChange
    wait_s: float
    say: Callable[[str], None]
    publish: Callable[[NewRecord], None]

    def after(self, step: StepName) -> None:
        """Do the part of a step that is about the tail, perhaps again. See the module."""
        tail = self.operation.tail
        if step == "fence_home" and tail in ("replay", "discard"):
            self._export_tail()
        elif step == "stop_writers" and tail == "merge":
            self._merge()
        elif step == "settle_tail":
            self._settle()
        elif step == "fence_mirror" and tail == "restore":
            self._report(conclude(self.world, self.operation, self.publish, self.say).values())

    def _settle(self) -> None:
        """Settle the tail. With ``export``, exactly the exported offsets are declared lost: records that a
        writer adds meanwhile stay and are mirrored later.
        """
        operation = self.operation
        restored: Iterable[RestoredTopic] = ()
        match operation.tail:
            case "replay" | "merge":
                catch_up(
                    self.world, operation.new, operation.old, operation.home, wait_s=self.wait_s, say=self.say
                )
            case "discard":
                discard(self.world, operation.old, self._export_tail())
            case "restore":
                restored = self._restore()
            case _:
                assert_never(operation.tail)
        self._report(restored)

    def _export_tail(self) -> list[HomeTail]:
        """Export the tail if the operation wants that, and return its ranges."""
        operation = self.operation
        found = tails(self.world, operation.new, operation.old, operation.home)
        decision = "appended behind the records of the other side" if operation.tail == "replay" else "lost"

        def reason(_: Record) -> str:
            return f"not mirrored: {decision}"

        self._export([ExportedRange(each.mark.place, each.first, each.end, reason) for each in found])
        return found

    def _merge(self) -> None:
        merge = declare_merge(self.world, self.operation, self.wait_s, self.say)
        away = self.operation.old

        def reason(record: Record) -> str:
            return merge.reason(record, away)

        rows = [row for topic in merge.topics for row in topic.partitions if row.only_home]
        self._export([ExportedRange(row.place, row.common, row.home_end, reason) for row in rows])

    def _restore(self) -> Iterable[RestoredTopic]:
        topics = record_topics(self.world, self.operation, self.publish, self.say)
        there = topics_of(self.world.clusters[self.operation.home])
        wanted = [each for topic in topics.values() for each in removed_ranges(topic, self.operation.old)]
        stand = {
            name for name, each in topics.items() if name in there and there[name].topic_id == each.former_id
        }
        self._export([each for each in wanted if each.place.topic in stand])
        self.check_exported(topics, [each for each in wanted if each.place.topic not in stand])
        restore(self.world, self.operation, topics, self.wait_s, self.publish, self.say)
        return topics.values()

    def check_exported(self, topics: dict[str, RestoredTopic], wanted: Iterable[ExportedRange]) -> None:
        """Raise CallerError if records of a topic that is deleted already are not in files here."""
        folder = Path(self.operation.export)
        known = files_of(folder) if folder.is_dir() else []
        for each in wanted:
            if not any(file.covers(each.place, each.first, each.end) for file in known):
                by = topics[each.place.topic].by
                raise CallerError(
                    f'topic "{each.place.topic}": its exported records are not in "{folder}" on this machine',
                    hint=f"continue where the failback began: {by}"
                    if by
                    else "continue on the machine where it began",
                )

    def _export(self, ranges: list[ExportedRange]) -> None:
        operation = self.operation
        if not operation.export:
            return
        if self.world.signer is None:
            raise CallerError(
                f"this process cannot sign the report of {operation.kind} {operation.id}",
                hint=f"continue with the command line: hub mirror resume {operation.mirror}",
            )
        export_ranges(Path(operation.export), self.world.clusters[operation.new], ranges)
        self.say(f"  exported to {operation.export}")

    def _report(self, restored: Iterable[RestoredTopic]) -> None:
        operation = self.operation
        if not operation.export or self.world.signer is None:
            return
        scopes = [scope_of(operation.home, topic) for topic in operation.topics or ("",)]
        declared = {
            scope: state.declared[scope]
            for state in self.world.control_states().values()
            for scope in scopes
            if scope in state.declared
        }
        write_report(
            Path(operation.export),
            operation,
            [*declared.values()],
            self.world.signer(),
            self.world.by,
            epoch_ms(),
            [*restored],
        )


def removed_ranges(topic: RestoredTopic, away: str) -> list[ExportedRange]:
    """Return the ranges of a topic that a restore removes from home's log and that ``away`` does not have."""

    def not_mirrored(_: Record) -> str:
        return f"not mirrored: removed, the topic was restored from {away}"

    def older(_: Record) -> str:
        return f"older, and not at {away} any more: removed, the topic was restored from there"

    found = []
    for each in topic.before:
        found += [ExportedRange(each.place, first, end, older) for first, end in each.before]
        if each.only_home:
            found.append(ExportedRange(each.place, each.common, each.home_end, not_mirrored))
    return found
