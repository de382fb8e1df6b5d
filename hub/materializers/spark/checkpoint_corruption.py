"""[shell] Detect corrupt checkpoints and quarantine their files.

There are two checks. ``of_logs`` reads, before Spark does, the files that Spark's query reads first: its
metadata, the offsets of each batch and the committed batches. A kill never leaves one of them half written,
but a failing disk, a copy or a power failure can. A missing file is worse than a garbled one: Spark continues
behind a gap among its commits, and the events in the gap are lost. ``corruption_of_message`` judges the error
that Spark or DuckDB raises for state that cannot be loaded. Transient problems (a full disk, no memory, no
connection to Kafka) and errors of the view's own functions are not corruption, whatever exception wraps them.

``set_aside`` moves a corrupt checkpoint to ``<view>.damaged`` for inspection, one per view.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

_NOTE = "hub.damage"
LATELY_MS = 3_600_000
_ASIDE = ".damaged"  # names of views and versions have no dot
_CLASS = re.compile(r"(?:Caused by: )?(?:[\w$]+\.)+[\w$]+: ")  # exception class before its message
_VERSION = re.compile(r"v\d+")

# Transient problems: the files may be intact.
_OUTAGE = re.compile(
    r"no space left|disk quota|too many open files|cannot allocate memory|out of "
    r"memory|outofmemory|OUT_OF_MEMORY|permission denied|accessdenied|read-only file system|input/output "
    r"error|stale file handle|connection (?:refused|reset)|timed "
    r"out|timeoutexception|interruptedexception|UNRELEASED_THREAD_ERROR|set lock on file",
    re.IGNORECASE,
)
# Error names of Spark that always mean corruption.
_NAMED = re.compile(
    r"CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED|STATE_STORE_(?:ROW_CHECKSUM_VERIFICATION_FAILED"
    r"|(?:KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE|BASE_CHECKPOINT_ID_MISMATCH|(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE)"
    r"|STREAMING_CHECKPOINT_MISSING_METADATA_FILE|STREAMING_STATEFUL_OPERATOR_(?:MISSING_STATE_DIRECTORY|NOT_MATCH_IN_STATE_METADATA)"
    r"|MALFORMED_LOG_FILE|ChecksumException|Checksum error: file"
    r"|CANNOT_LOAD_STATE_STORE\.(?:AUTO_SNAPSHOT_REPAIR_FAILED|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT|CANNOT_READ_\w+"
    r"|INVALID_CHANGE_LOG_READER_VERSION|INVALID_CHECKPOINT_LINEAGE|(?:KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
    r"|UNEXPECTED_FILE_SIZE|UNEXPECTED_VERSION)"
)
# Without such a name, two matches are needed: state was being read, and its content is wrong.
_STATE = re.compile(
    r"CANNOT_LOAD_STATE_STORE|streaming[./]state[./]|StateSchema|OperatorStateMetadata|HDFSMetadataLog|StreamMetadata"
)
_NOT_AS_WRITTEN = re.compile(
    r"EOFException|ZipException|FileNotFoundException|NoSuchFileException|does not exist|corrupt|checksum"
    r"|JsonParseException|JsonMappingException|JsonEOFException|MismatchedInputException|MappingException|ParseException"
    r"|UTFDataFormatException|NegativeArraySizeException|MalformedInputException|StreamCorruptedException|Incomplete log file"  # noqa: E501
    r"|NumberFormatException|Log file was malformed|unknown compression|Decompression "
    r"error|invalid (?:header|magic)",
    re.IGNORECASE,
)
# DuckDB's messages about its own file, after opening it.
_DUCKDB = re.compile(
    r"corrupt|checksum|not a valid duckdb|failed to deserialize|replaying wal|serialization error|could not "
    r"read enough bytes|truncated|database has been invalidated",
    re.IGNORECASE,
)


def of_logs(checkpoint: Path, *, delta: bool = False) -> str | None:
    """Return what is wrong with a checkpoint folder's logs, as a half sentence; None if they are intact or do
    not exist yet.

    ``delta``: the view keeps its tables beside the logs.

    Raises OSError when the files cannot be read now, which proves nothing.
    """
    offsets, commits = _entries(checkpoint / "offsets"), _entries(checkpoint / "commits")
    begun, done = max(offsets, default=-1), max(commits, default=-1)
    wrong = _wrong(checkpoint, checkpoint / "metadata", _check_metadata) if begun >= 0 or done >= 0 else None
    for path in offsets.values():
        wrong = wrong or _wrong(checkpoint, path, _check_offsets)
    for path in commits.values():
        wrong = wrong or _wrong(checkpoint, path, _check_commit)
    if wrong is not None:
        return wrong
    if done >= 0 and done not in offsets:
        return f"batch {done} is committed, and offsets/{done} is missing"
    if begun > done + 1:
        return f"batch {begun} was begun, and commits/{begun - 1} is missing"
    if delta and done >= 0 and not (checkpoint / "delta" / "delta.duckdb").exists():
        return f"batch {done} is committed, and delta/delta.duckdb is missing"
    return None


def corruption_of_message(message: str, checkpoint: Path | None = None) -> str | None:
    """Return the line of a query's error that reports corrupt state; None if the error is about something
    else.

    ``checkpoint``: the query's checkpoint folder. A file within it that cannot be read is its state.
    """
    if _OUTAGE.search(message):
        return None
    named = _NAMED.search(message)
    if named is not None:
        return _line_of(message, named.start())
    odd = _NOT_AS_WRITTEN.search(message)
    within = checkpoint is not None and str(checkpoint) in message
    if odd is None or not (within or _STATE.search(message)):
        return None
    return _line_of(message, odd.start())


def of_duckdb(message: str) -> bool:
    """Return True if DuckDB's message means that its file is corrupt."""
    return _OUTAGE.search(message) is None and _DUCKDB.search(message) is not None


def is_outage(message: str) -> bool:
    """Return True if an error is about a transient problem."""
    return _OUTAGE.search(message) is not None


def aside_of(checkpoints: Path, view: str) -> Path:
    """Return the folder that keeps the corrupt checkpoint of a view."""
    return checkpoints / f"{view}{_ASIDE}"


def set_aside(checkpoint: Path, aside: Path, version: str, why: str, now_ms: int) -> None:
    """Move a checkpoint to quarantine, with a note of the reason. Replaces the one that was kept there
    before.

    A kill in between leaves the checkpoint where it was.
    """
    if not checkpoint.exists():
        return
    times = [*lately(aside, now_ms), now_ms]
    body = {"version": version, "generation": checkpoint.name, "why": why, "times_ms": times}
    (checkpoint / _NOTE).write_bytes(orjson.dumps(body))
    shutil.rmtree(aside, ignore_errors=True)
    os.replace(checkpoint, aside)


def why_aside(aside: Path, version: str, generation: int | None) -> str | None:
    """Return why a version's checkpoint was quarantined; None if another one is kept there.

    ``generation`` None: any generation of that version.
    """
    body = _note(aside)
    same = body.get("version") == version and (
        generation is None or body.get("generation") == str(generation)
    )
    return str(body.get("why")) if same else None


def lately(aside: Path, now_ms: int) -> list[int]:
    """Return when checkpoints of a view were quarantined within the last hour, in epoch milliseconds, from
    the last note."""
    times = _note(aside).get("times_ms", ())
    return [at_ms for at_ms in times if now_ms - LATELY_MS < at_ms <= now_ms]


def _note(aside: Path) -> dict[str, Any]:
    try:
        body: dict[str, Any] = orjson.loads((aside / _NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return body


def _entries(log: Path) -> dict[int, Path]:
    return {int(path.name): path for path in sorted(log.glob("*")) if path.name.isdecimal()}


def _wrong(checkpoint: Path, path: Path, check: Callable[[list[str]], None]) -> str | None:
    name = path.relative_to(checkpoint)
    try:
        found = path.read_bytes()
        lines = found.decode().splitlines()
    except FileNotFoundError:
        return f"{name} is missing"
    except UnicodeDecodeError:
        return f"{name} is not text"
    if not lines:
        return f"{name} is empty"
    if not _sums_up(path, found):
        return f"{name} does not fit its checksum"
    try:
        check(lines)
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"{name} was changed"
    return None


def _sums_up(path: Path, found: bytes) -> bool:
    """Return True if a file matches Hadoop's checksum file, or has none.

    ``.<name>.crc`` holds "crc", 0, the chunk size, and a CRC-32 per chunk. Spark does not read a file that
    does not match.
    """
    try:
        sums = path.with_name(f".{path.name}.crc").read_bytes()
    except FileNotFoundError:
        return True
    size = int.from_bytes(sums[4:8])
    if sums[:4] != b"crc\0" or size <= 0:
        return False
    pieces = (found[at : at + size] for at in range(0, len(found), size))
    return sums[8:] == b"".join(zlib.crc32(piece).to_bytes(4) for piece in pieces)


def _check_metadata(lines: list[str]) -> None:
    if not isinstance(_object(" ".join(lines))["id"], str):
        raise TypeError


def _check_offsets(lines: list[str]) -> None:
    """Check an offsets file: its version, a line of metadata, and one line per source with the next offsets
    or ``-``."""
    _check_version(lines)
    _object(lines[1] if len(lines) > 1 else "")
    if len(lines) < 3:
        raise ValueError("no source")
    for line in lines[2:]:
        if line == "-":
            continue
        for by_partition in _object(line).values():
            for partition, offset in by_partition.items():
                if int(partition) < 0 or not isinstance(offset, int):
                    raise ValueError


def _check_commit(lines: list[str]) -> None:
    _check_version(lines)
    _object(lines[1] if len(lines) > 1 else "")


def _check_version(lines: list[str]) -> None:
    if _VERSION.fullmatch(lines[0]) is None:
        raise ValueError


def _object(line: str) -> Mapping[str, Any]:
    found = orjson.loads(line)
    if not isinstance(found, dict):
        raise TypeError
    return found


def _line_of(message: str, at: int) -> str:
    """Return the line of a text that contains position ``at``, without Java's exception class in front."""
    begin, end = message.rfind("\n", 0, at) + 1, message.find("\n", at)
    line = message[begin : end if end >= 0 else len(message)].strip()
    return _CLASS.sub("", line)[:300]
