"""[core] Differences between both sides of a mirror: the first ones listed, all of them counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class DifferingRecord(NamedTuple):
    """One difference. ``source`` None: the record is foreign, and ``at`` is the source position that it
    precedes. ``target`` None: the target lacks the record.
    """

    at: int
    source: int | None
    target: int | None
    why: str

    def place(self) -> tuple[int, int]:
        """Sort key: by source position, then by target offset."""
        return self.at, -1 if self.target is None else self.target


@dataclass
class Differences:
    """The first ``limit`` differences, and the number of all."""

    limit: int
    listed: list[DifferingRecord] = field(default_factory=list)
    count: int = 0

    def add(self, each: DifferingRecord) -> None:
        self.count += 1
        if len(self.listed) < self.limit:
            self.listed.append(each)


def foreign_record(at: int, target: int) -> DifferingRecord:
    """Return the difference for a record of the copy that the map does not name, at offset ``target``."""
    return DifferingRecord(
        at, None, target, f"the target has a record at offset {target} that no mirror brought"
    )
