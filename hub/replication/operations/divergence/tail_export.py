"""[edge] Files of the records that a failover left at the old source, and the signed report of a failback.

A failback with ``export`` writes them before it appends them, declares them lost or removes them: a file of
JSON lines for each range of a partition, then ``report.json``. A file appears complete or not at all. After a
crash the step is repeated: a range that a file has already is not written again, and a longer one replaces
its beginning. Records of aborted transactions are in the files, and marked as such.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hub.access_log import signed_reports
from hub.access_log.chain import LogSigner
from hub.access_log.entry import iso
from hub.errors import CallerError
from hub.log import between
from hub.record import Positions, Record, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.ownership.divergence import RestoredTopic
from hub.replication.ownership.loss_report import FailoverRecord
from hub.replication.ownership.operation_steps import OwnershipChange

REPORT = "report.json"
_KIND = "mirror report"
_SILENT_S = 30.0
_ABORTED, _SUPERSEDED = b'"transaction":"aborted"', b'"reason":"superseded'


@dataclass(frozen=True, slots=True)
class ExportedRange:
    """Source offsets [first, end) of one partition to export. ``reason``: of each record."""

    place: TopicPartition
    first: int
    end: int
    reason: Callable[[Record], str]


@dataclass(frozen=True, slots=True)
class TailFile:
    """A file with the records of source offsets [first, end) of one partition. ``records``: committed ones;
    ``superseded`` are among them. ``aborted``: records of aborted transactions.
    """

    name: str
    place: TopicPartition
    first: int
    end: int
    records: int
    aborted: int
    superseded: int
    size: int
    sha256: str

    def covers(self, place: TopicPartition, first: int, end: int) -> bool:
        return self.place == place and self.first <= first and end <= self.end

    def as_json(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "topic": self.place.topic,
            "partition": self.place.partition,
            "first": self.first,
            "end": self.end,
            "offsets": self.end - self.first,
            "records": self.records,
            "aborted": self.aborted,
            "superseded": self.superseded,
            "bytes": self.size,
            "sha256": self.sha256,
        }


def export_ranges(folder: Path, source: ClusterHandle, ranges: Iterable[ExportedRange]) -> None:
    """Write a file for each range of source offsets. Raises PeerError if the source stops answering,
    CallerError if a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in sorted(ranges, key=lambda one: (one.place, one.first)):
            known = [file for file in files_of(folder) if file.place == each.place]
            if any(file.covers(each.place, each.first, each.end) for file in known):
                continue
            _write(folder, source, each)
            for file in known:
                if each.first <= file.first and file.end <= each.end:
                    (folder / file.name).unlink()
    except OSError as error:
        raise CallerError(
            f'folder "{folder}" cannot be written: {error}',
            hint="nothing was discarded; make room or rights, then hub mirror resume",
        ) from None


def _write(folder: Path, source: ClusterHandle, each: ExportedRange) -> None:
    place, first, end = each.place, each.first, each.end
    part = folder / f".{place.topic}-{place.partition}.partial"
    with part.open("wb") as out:
        head = {"topic": place.topic, "partition": place.partition, "first": first, "end": end}
        out.write(orjson.dumps(head) + b"\n")
        for record, committed in _with_states(source, each):
            out.write(orjson.dumps(line_of(record, each.reason(record), committed=committed)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    part.rename(folder / f"{place.topic}-{place.partition}-{first}-{end}.jsonl")


def _with_states(source: ClusterHandle, each: ExportedRange) -> Iterator[tuple[Record, bool]]:
    """Yield every record of a range and whether it is committed. Open transactions have ended when this
    returns.
    """

    def read(*, committed: bool) -> Iterator[Record]:
        start, stop = Positions({each.place: each.first}), Positions({each.place: each.end})
        return between(start, stop, source.kafka.reader(queue_kb=1_024, committed=committed), _SILENT_S)

    yield from with_states(read(committed=False), read(committed=True))


def with_states(every: Iterable[Record], committed: Iterator[Record]) -> Iterator[tuple[Record, bool]]:
    """Yield each record and whether it is committed. ``committed``: those of ``every`` that are, in the same
    order.
    """
    due = next(committed, None)
    for record in every:
        is_committed = due is not None and due.offset == record.offset
        yield record, is_committed
        if is_committed:
            due = next(committed, None)


def line_of(record: Record, why: str, *, committed: bool = True) -> dict[str, Any]:
    """Return a record as JSON; key, value and headers in base64, null for none."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "transaction": "committed" if committed else "aborted",
        "reason": why,
    }


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def files_of(folder: Path) -> list[TailFile]:
    """Return the files of an export, by partition and offset. Raises CallerError for a file that is none."""
    return [_file(path) for path in sorted(folder.glob("*.jsonl"))]


def _file(path: Path) -> TailFile:
    digest, lines, aborted, superseded = hashlib.sha256(), 0, 0, 0
    head = b""
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            head, lines = head or line, lines + 1
            aborted, superseded = aborted + (_ABORTED in line), superseded + (_SUPERSEDED in line)
    try:
        body = orjson.loads(head)
        place = TopicPartition(body["topic"], body["partition"])
        first, end = body["first"], body["end"]
    except (ValueError, KeyError, TypeError):
        raise CallerError(f'file "{path}" is not an export of a mirror', hint="move it elsewhere") from None
    records, size = lines - 1 - aborted, path.stat().st_size
    return TailFile(path.name, place, first, end, records, aborted, superseded, size, digest.hexdigest())


def write_report(
    folder: Path,
    operation: OwnershipChange,
    left: Sequence[FailoverRecord],
    signer: LogSigner,
    by: str,
    now_ms: int,
    restored: Sequence[RestoredTopic] = (),
) -> None:
    """Write the signed report. ``left``: losses as the failover declared them. ``restored``: topics that were
    made again, with their counts.
    """
    files = files_of(folder)
    report = {
        "mirror": operation.mirror,
        "operation": f'{operation.kind} "{operation.id}", epoch {operation.epoch}',
        "from": operation.old,
        "to": operation.new,
        "topics": list(operation.topics) or f"all of {operation.home}",
        "decision": operation.tail,
        "by": by,
        "begun": iso(operation.begun_at_ms),
        "made": iso(now_ms),
        "declared_by_failover": [_declared(each) for each in left],
        "files": [each.as_json() for each in files],
        "offsets": sum(each.end - each.first for each in files),
        "records": sum(each.records for each in files),
        "aborted": sum(each.aborted for each in files),
        "superseded": sum(each.superseded for each in files),
        "restored": [each.as_json() for each in restored],
    }
    proof = signed_reports.signed_report(_KIND, report, signer)
    part = folder / f".{REPORT}.partial"
    with part.open("wb") as out:
        out.write(orjson.dumps(proof, option=orjson.OPT_INDENT_2))
        out.flush()
        os.fsync(out.fileno())
    part.rename(folder / REPORT)


def _declared(left: FailoverRecord) -> dict[str, Any]:
    return {
        "epoch": left.epoch,
        "at": iso(left.at_ms),
        "exact": left.exact,
        "losses": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "first": each.first,
                "end": each.end,
                "known": each.known,
            }
            for each in left.losses
        ],
    }


def signature_holds(proof: Mapping[str, Any]) -> bool:
    """Return whether a report has the signature of the key that it names."""
    return signed_reports.signature_holds(_KIND, proof)


def differences(folder: Path, report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the differences between a report and the files in its folder."""
    there = {path.name for path in folder.glob("*.jsonl")}
    for each in report["files"]:
        name = str(each["file"])
        if name not in there:
            yield f"{name} is missing"
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != each["sha256"]:
            yield f"{name} was changed"
    for name in sorted(there - {str(each["file"]) for each in report["files"]}):
        yield f"{name} is not in the report"
