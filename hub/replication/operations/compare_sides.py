"""[shell] Compare both sides of a mirror once, as ``hub mirror verify`` and the server do, and record the
result where the status reads it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.errors import HubError, NotFound
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.renaming.link_view import seen_by
from hub.replication.config.load_mirrors import present_keys
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.operations.pausing import append
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import Link
from hub.replication.verification.comparable import compared
from hub.replication.verification.continuous_check import of_everything
from hub.replication.verification.differences import DifferingRecord
from hub.replication.verification.verify import ComparedPartition, PartitionVerdict, Verifier, summary
from hub.times import epoch_ms

Progress = Callable[[int, int], None]
"""Receives source offsets compared so far, and all of them."""


@dataclass(frozen=True, slots=True)
class SidesCompared:
    """Result of a comparison. ``limit``: the most differences that are listed."""

    mirror: str
    verdicts: tuple[PartitionVerdict, ...]
    limit: int

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how many partitions are equal, different and not compared."""
        return summary(self.verdicts)

    @property
    def is_equal(self) -> bool:
        """Return True if every partition was compared and none differs."""
        return all(each.equal for each in self.verdicts)

    @property
    def listed(self) -> list[dict[str, Any]]:
        """Return the first differences."""
        return [_difference(verdict, one) for verdict in self.verdicts for one in verdict.listed][
            : self.limit
        ]

    @property
    def unlisted(self) -> int:
        """Return the number of differences that are not listed."""
        return sum(len(each.listed) + each.more for each in self.verdicts) - len(self.listed)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each partition."""
        return [_row(each) for each in self.verdicts]

    def as_json(self) -> dict[str, Any]:
        """Return the result as ``hub mirror verify -o json`` prints it."""
        listing = {"differences": self.listed, "more_differences": self.unlisted}
        return {"mirror": self.mirror, **self.counts, "partitions": self.rows, **listing}


def compare_sides(
    file: MirrorsFile,
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    control: Control,
    environ: Mapping[str, str],
    *,
    topics: Sequence[str] = (),
    newest: int | None = None,
    limit: int = 100,
    progress: Progress = lambda done, total: None,
    say: Callable[[str], None] = lambda line: None,
) -> SidesCompared:
    """Read both sides of a link and compare them. ``newest``: only the newest offsets of each partition, and
    the result is not recorded. Raises NotFound when nothing is mirrored, PeerError.
    """
    clusters = seen_by(link, clusters)
    every = compared(file, link, clusters, control, topics)
    if not every:
        raise NotFound(
            f'mirror "{link.name}": nothing is mirrored yet' + (" of these topics" if topics else ""),
            hint="hub mirror status shows whether a worker runs",
        )
    verdicts = _verdicts(link, clusters, environ, every, newest, limit, progress)
    if newest is None:
        _record(clusters[link.target], link.name, every, verdicts, say)
    return SidesCompared(link.name, tuple(verdicts), limit)


def _verdicts(
    link: Link,
    clusters: Mapping[str, ClusterHandle],
    environ: Mapping[str, str],
    every: Sequence[ComparedPartition],
    newest: int | None,
    limit: int,
    progress: Progress,
) -> list[PartitionVerdict]:
    """Compare the partitions; list up to ``limit`` differences."""
    total = sum(
        min(each.checkpoint.source_next - each.checkpoint.source_start, newest or sys.maxsize)
        for each in every
    )
    # Those of former rules too.
    keys = {key for each in every for one in each.ruled if one.rules.shape for key in one.rules.shape.secrets}
    verdicts: list[PartitionVerdict] = []
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        progress(done, max(total, done))

    source, target = clusters[link.source], clusters[link.target]
    verifier = Verifier(source, target, more, present_keys(keys, environ))
    try:
        for partition in every:
            room = limit - sum(len(verdict.listed) for verdict in verdicts)
            verdicts.append(verifier.verify(partition, newest, max(1, room)))
    finally:
        verifier.close()
    return verdicts


def _row(each: PartitionVerdict) -> dict[str, Any]:
    return {
        "topic": each.place.topic,
        "partition": each.place.partition,
        "from": each.first,
        "to": each.end,
        "records": each.records,
        "digest": str(each.digest),
        "equal": each.equal,
        "differs_at": each.differs_at,
        "why": each.why,
        "rules": each.rules,
    }


def _difference(verdict: PartitionVerdict, each: DifferingRecord) -> dict[str, Any]:
    """Return a difference as a table row; an offset is None where that side has no such record."""
    return {
        "topic": verdict.place.topic,
        "partition": verdict.place.partition,
        "source_offset": each.source,
        "target_offset": each.target,
        "why": each.why,
    }


def _record(
    target: ClusterHandle,
    name: str,
    every: Sequence[ComparedPartition],
    verdicts: Sequence[PartitionVerdict],
    say: Callable[[str], None],
) -> None:
    """Store the verdicts where `hub mirror status` reads them. A user without write access gets a message
    instead.
    """
    now_ms = epoch_ms()
    ranges = [
        of_everything(name, each.checkpoint, verdict, now_ms)
        for each, verdict in zip(every, verdicts, strict=True)
        if verdict.compared
    ]
    try:
        append(target, [each.record() for each in ranges])
    except HubError as error:
        say(f"! not reported in hub mirror status: {error.message}")
