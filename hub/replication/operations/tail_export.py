"""[edge] Files of the records that a failover left at the old source, and the signed report of a failback.

A failback with ``export`` writes them before it appends them or declares them lost: a file of JSON lines for
each partition, then ``report.json``. A file appears complete or not at all. After a crash the step is
repeated: a range that a file has already is not written again, and a longer one replaces its beginning.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
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
from hub.replication.ownership.loss_report import FailoverRecord
from hub.replication.ownership.operation_steps import OwnershipChange

REPORT = "report.json"
_KIND = "mirror report"
_SILENT_S = 30.0


@dataclass(frozen=True, slots=True)
class TailFile:
    """A file with the records of source offsets [first, end) of one partition."""

    name: str
    place: TopicPartition
    first: int
    end: int
    records: int
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
            "bytes": self.size,
            "sha256": self.sha256,
        }


def export_tails(
    folder: Path, source: ClusterHandle, tails: Mapping[TopicPartition, tuple[int, int]], why: str
) -> None:
    """Write a file for each range of source offsets. Raises PeerError if the source stops answering,
    CallerError if a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for place, (first, end) in sorted(tails.items()):
            known = [each for each in files_of(folder) if each.place == place]
            if any(each.covers(place, first, end) for each in known):
                continue
            _write(folder, source, place, first, end, why)
            for each in known:
                if first <= each.first and each.end <= end:
                    (folder / each.name).unlink()
    except OSError as error:
        raise CallerError(
            f'folder "{folder}" cannot be written: {error}',
            hint="nothing was discarded; make room or rights, then hub mirror resume",
        ) from None


def _write(
    folder: Path, source: ClusterHandle, place: TopicPartition, first: int, end: int, why: str
) -> None:
    part = folder / f".{place.topic}-{place.partition}.partial"
    start, stop = Positions({place: first}), Positions({place: end})
    with part.open("wb") as out:
        head = {"topic": place.topic, "partition": place.partition, "first": first, "end": end}
        out.write(orjson.dumps(head) + b"\n")
        for record in between(start, stop, source.kafka.reader(queue_kb=1_024), _SILENT_S):
            out.write(orjson.dumps(line_of(record, why)) + b"\n")
        out.flush()
        os.fsync(out.fileno())
    part.rename(folder / f"{place.topic}-{place.partition}-{first}-{end}.jsonl")


def line_of(record: Record, why: str) -> dict[str, Any]:
    """Return a record as JSON; key, value and headers in base64, null for none."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "reason": why,
    }


def _base64(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def files_of(folder: Path) -> list[TailFile]:
    """Return the files of an export, by partition and offset. Raises CallerError for a file that is none."""
    return [_file(path) for path in sorted(folder.glob("*.jsonl"))]


def _file(path: Path) -> TailFile:
    digest, lines = hashlib.sha256(), 0
    head = b""
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            head, lines = head or line, lines + 1
    try:
        body = orjson.loads(head)
        place = TopicPartition(body["topic"], body["partition"])
        first, end = body["first"], body["end"]
    except (ValueError, KeyError, TypeError):
        raise CallerError(f'file "{path}" is not an export of a mirror', hint="move it elsewhere") from None
    return TailFile(path.name, place, first, end, lines - 1, path.stat().st_size, digest.hexdigest())


def write_report(
    folder: Path,
    operation: OwnershipChange,
    left: Sequence[FailoverRecord],
    signer: LogSigner,
    by: str,
    now_ms: int,
) -> None:
    """Write the signed report. ``left``: losses as the failover declared them."""
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
