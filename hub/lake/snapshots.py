"""[core] Contents of a snapshot's summary about the log, and the choice of files to compact.

Each snapshot of the hub has these properties: ``hub.topic-id`` (Kafka's id of the topic), ``hub.positions``
(the next offset by partition, as JSON), ``hub.lost-offsets`` (offsets that retention removed before they
were read), ``hub.missing-ranges`` (partition, first and next offset of each range that was gone, those before
the first record included) and ``hub.dead-letters`` (records in ``<topic>.dlq`` instead of the table). All of
them are since the table was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

TOPIC_ID, POSITIONS = "hub.topic-id", "hub.positions"
LOST, DEAD, MISSING = "hub.lost-offsets", "hub.dead-letters", "hub.missing-ranges"
OWN_COMPACTION = {"hub.operation": "compaction"}


MissingRange = tuple[int, int, int]
"""Partition, first offset, and the offset after the last one."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Progress of a table in its topic. ``positions``: the next offset by partition. ``missing``: ranges of
    offsets that were gone; None: not known, for a table that an earlier release began.
    """

    topic_id: str
    positions: Mapping[int, int] = field(default_factory=dict)
    lost: int = 0
    dead_letters: int = 0
    missing: tuple[MissingRange, ...] | None = ()

    def summary(self) -> dict[str, str]:
        """Return the properties of a snapshot."""
        positions = {str(partition): at for partition, at in sorted(self.positions.items())}
        known = {} if self.missing is None else {MISSING: orjson.dumps(self.missing).decode()}
        return {
            TOPIC_ID: self.topic_id,
            POSITIONS: orjson.dumps(positions).decode(),
            LOST: str(self.lost),
            DEAD: str(self.dead_letters),
            **known,
        }


def progress_of(summary: Mapping[str, str]) -> TableProgress | None:
    """Return the progress in a snapshot's summary; None for a snapshot of another writer."""
    if POSITIONS not in summary:
        return None
    positions = {int(key): int(value) for key, value in orjson.loads(summary[POSITIONS]).items()}
    missing = None
    if MISSING in summary:
        missing = tuple((partition, first, end) for partition, first, end in orjson.loads(summary[MISSING]))
    return TableProgress(
        summary.get(TOPIC_ID, ""), positions, int(summary.get(LOST, 0)), int(summary.get(DEAD, 0)), missing
    )


def gone_ranges(progress: TableProgress, begins: Mapping[int, int]) -> list[MissingRange]:
    """Return the ranges that the log has no more, before they were read or before the table was made."""
    return [
        (partition, at, begin)
        for partition, begin in sorted(begins.items())
        if (at := progress.positions.get(partition, 0)) < begin
    ]


def starts(
    progress: TableProgress, begins: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[dict[int, int], int, list[int]]:
    """Return (where each partition is read from, offsets that are gone, partitions that end before their
    position).
    """
    found, lost, cut = {}, 0, []
    for partition, end in ends.items():
        at, begin = progress.positions.get(partition), begins.get(partition, 0)
        if at is not None and at > end:
            cut.append(partition)
        if at is not None and at < begin:
            lost += begin - at
        found[partition] = begin if at is None else max(at, begin)
    return found, lost, cut


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A data file, for the plan of a compaction. ``day``: its partition."""

    path: str
    day: object
    size: int
    records: int


def plan_compaction(
    files: Iterable[SmallFile], target_bytes: int, least_files: int
) -> list[Sequence[SmallFile]]:
    """Return groups of files of one day that become one file each.

    Files of half the target and more stay as they are. A group has at least ``least_files`` files and, as
    they are on disk, at most ``target_bytes``.
    """
    days: dict[object, list[SmallFile]] = {}
    for each in sorted(files, key=lambda file: file.path):
        if each.size < target_bytes / 2:
            days.setdefault(each.day, []).append(each)
    groups: list[Sequence[SmallFile]] = []
    for small in days.values():
        group: list[SmallFile] = []
        size = 0
        for each in small:
            if group and size + each.size > target_bytes:
                groups.append(group)
                group, size = [], 0
            group.append(each)
            size += each.size
        groups.append(group)
    return [group for group in groups if len(group) >= least_files]
