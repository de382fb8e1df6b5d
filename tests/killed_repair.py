"""A repair in a process of its own that ends itself by SIGKILL at one of its operations.

Run: ``python -m killed_repair BOOTSTRAP TOPIC NUMBER before|inside|after``. Operation NUMBER is one change
of the cluster; ``inside`` is after the records of a transaction and before its commit. Events are JSON with a
number ``n``: those that 4 divides are dropped, odd ones get ``"odd": true``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.kafka import KafkaCluster
from hub.kafka.writer import KafkaWriter
from hub.record import NewRecord, Positions, Record
from hub.repairs.beginning import ChangeOrigin, begin_repair
from hub.repairs.holding import HoldWaits
from hub.repairs.journal import open_journal
from hub.repairs.outcomes import RepairOutcome
from hub.repairs.selection import RepairRange
from hub.repairs.switching import RepairReport, Switch


def outcome(record: Record) -> RepairOutcome:
    n = json.loads(record.value or b"{}")["n"]
    if n >= 1_000_000 or n % 4 == 2:
        return RepairOutcome("unchanged")
    return (
        RepairOutcome("dropped") if n % 4 == 0 else RepairOutcome("changed", (b'{"n": %d, "odd": true}' % n,))
    )


@dataclass
class Operations:
    """Counts operations, and kills the process at one. ``number`` 0: never."""

    number: int = 0
    moment: str = "after"
    count: int = 0

    def run(self, work: Callable[[], Any]) -> Any:
        self.count += 1
        self.at("before")
        result = work()
        self.at("after")
        return result

    def at(self, moment: str) -> None:
        if (self.count, moment) == (self.number, self.moment):
            os.kill(os.getpid(), signal.SIGKILL)


class CountedWriter(KafkaWriter):
    operations: Operations

    def append(self, records: Sequence[NewRecord]) -> Positions:
        return self.append_if(records, lambda _after: None)

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        def checked(after: Positions) -> None:
            check(after)
            self.operations.at("inside")

        return self.operations.run(lambda: KafkaWriter.append_if(self, records, checked))  # type: ignore[no-any-return]

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        def checked() -> None:
            check()
            self.operations.at("inside")

        return self.operations.run(  # type: ignore[no-any-return]
            lambda: KafkaWriter.append_with_groups(self, records, groups, checked)
        )


class CountedCluster(KafkaCluster):
    operations: Operations

    def create_topic(self, name: str, **more: Any) -> None:
        self.operations.run(lambda: KafkaCluster.create_topic(self, name, **more))

    def alter_config(self, name: str, changes: Mapping[str, str | None], **more: Any) -> None:
        self.operations.run(lambda: KafkaCluster.alter_config(self, name, changes, **more))

    def delete_topic(self, name: str) -> None:
        self.operations.run(lambda: KafkaCluster.delete_topic(self, name))

    def writer(self, transactional_id: str | None = None) -> KafkaWriter:
        writer = CountedWriter(self, transactional_id)
        writer.operations = self.operations
        return writer


def run(bootstrap: str, topic: str, operations: Operations) -> RepairReport:
    """Run the repair, or continue the one that is under way."""
    cluster = CountedCluster(bootstrap, 60.0)
    cluster.operations = operations
    with open_journal(cluster, topic, 1) as journal:
        if journal.state.change is None:
            begin_repair(journal, RepairRange(), ChangeOrigin("test", "test", 0, "digest"))
        waits = HoldWaits(settled_s=0.5, at_most_s=180.0)
        return Switch(cluster, journal, lambda page: [outcome(each) for each in page], waits=waits).run()


if __name__ == "__main__":
    bootstrap, topic, number, moment = sys.argv[1:]
    run(bootstrap, topic, Operations(int(number), moment))
