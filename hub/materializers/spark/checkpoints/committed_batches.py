"""[edge] Batches that a checkpoint has: their offsets, watermark and state."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from pyspark.sql.streaming.query import StreamingQuery

from hub.materializers.progress.records import Mode
from hub.materializers.spark.session import executed
from hub.record import Positions, TopicPartition


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A committed micro-batch as reported by Spark."""

    batch_id: int
    sources: Positions
    input_rows: int
    batch_ms: int
    # Durations that Spark reports, by part, in milliseconds. In real-time mode, all but ``addBatch`` are of
    # the pause in which no row arrives.
    parts: Mapping[str, int] = field(default_factory=dict)


def last_batch(query: StreamingQuery, known: int = -1) -> CommittedBatch | None:
    """Return the last batch that the query committed since it started, if it is later than ``known``; else
    None."""
    report = query._jsq.lastProgress()
    if (
        report is None or report.batchId() <= known
    ):  # called often, and the whole report costs Spark milliseconds
        return None
    idle = not executed(report.durationMs())
    done = report.batchId() - idle  # idle: the previous batch is committed and reached the reported offsets
    if done <= known:
        return None
    progress = orjson.loads(report.json())
    if not progress["sources"] or progress["sources"][0].get("endOffset") is None:
        return None
    reached = _least(positions_of(source.get("endOffset") or {}) for source in progress["sources"])
    parts: dict[str, int] = progress["durationMs"]
    return CommittedBatch(
        done, reached, progress["numInputRows"], int(parts.get("triggerExecution", 0)), parts
    )


def committed_batch(checkpoint: Path) -> CommittedBatch | None:
    """Return the last committed batch of a checkpoint folder, read from Spark's logs; None if there is none.

    ``commits/<n>`` exists once batch n is done. ``offsets/<n>`` ends with one line per source: JSON, the next
    offsets.
    """
    commits = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]
    if not commits:
        return None
    last = max(commits)
    reached, _ = logged_offsets(checkpoint, last)
    return CommittedBatch(last, reached, 0, 0)


def is_uncommitted(checkpoint: Path) -> bool:
    """Return True if a batch was begun and not committed.

    Micro-batches read the same offsets again. Real-time mode discards the planned end and continues from the
    batch's start.
    """
    return _last(checkpoint / "offsets") > _last(checkpoint / "commits")


def forget_state_of_no_batch(checkpoint: Path, mode: Mode) -> None:
    """Remove the state of a query that died in its first batch, unless that batch runs again unchanged.

    Such a state is of no use, and Spark refuses to start with it (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
    Real-time mode does not repeat the batch unchanged, because it logs offsets only at the end.
    """
    nothing_begun = mode == "realtime" or _last(checkpoint / "offsets") < 0
    if nothing_begun and _last(checkpoint / "commits") < 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)


def _last(log: Path) -> int:
    """Return the last batch in one of Spark's logs, -1 if there is none."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdecimal()), default=-1)


def logged_offsets(checkpoint: Path, batch_id: int) -> tuple[Positions, int]:
    """Return (the next offsets after a batch, its watermark in epoch milliseconds) from Spark's offset log.

    The file has a line with its version, one with metadata, and one per source (``-``: the source has no
    offsets yet).
    """
    lines = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    reached = _least(positions_of(line) for line in lines[2:] if line.startswith("{"))
    return reached, _watermark_ms(lines)


def _least(sources: Iterable[Positions]) -> Positions:
    """Return the offsets up to which all sources of a query have read. Two sources may read one partition,
    not equally far."""
    found: dict[TopicPartition, int] = {}
    for source in sources:
        for tp, offset in source:
            found[tp] = min(offset, found.get(tp, offset))
    return Positions(found)


def logged_watermark_ms(checkpoint: Path, batch_id: int) -> int:
    """Return the watermark that a batch ran with, in epoch milliseconds; 0 for a batch that is not in the
    log."""
    try:
        return _watermark_ms((checkpoint / "offsets" / str(batch_id)).read_text().splitlines())
    except FileNotFoundError:
        return 0


def logged_read_ms(checkpoint: Path, batch_id: int) -> int | None:
    """Return when a micro-batch took its events, in epoch milliseconds; None if that is not logged.

    Spark notes the time after it has asked for the ends of its topics, so all of the batch's events were in
    the log by then. A batch that is run again keeps its first time.
    """
    try:
        noted = orjson.loads((checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[1])
        return int(noted["batchTimestampMs"]) or None
    except (OSError, IndexError, KeyError, TypeError, ValueError):
        return None


def _watermark_ms(lines: Sequence[str]) -> int:
    return int(orjson.loads(lines[1]).get("batchWatermarkMs", 0))


def positions_of(offsets: str | Mapping[str, Mapping[str, int]]) -> Positions:
    """Parse Spark's offsets ({"topic":{"0":next}}), given as text or as a mapping."""
    parsed: Mapping[str, Mapping[str, int]] = orjson.loads(offsets) if isinstance(offsets, str) else offsets
    return Positions.of(
        (topic, int(partition), offset)
        for topic, by_partition in parsed.items()
        for partition, offset in by_partition.items()
    )
