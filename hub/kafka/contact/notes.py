"""[edge] Contact of all of a hub's processes with Kafka, as files in the home folder.

A process that is cut off cannot write to the log that it is.

Each process writes ``<home>/contact/<process>.json`` every few seconds. The server and ``hub doctor`` read
them.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from hub.kafka.contact.watchdog import ContactReport, reports
from hub.runtime import repeating
from hub.supervisor import began_of
from hub.times import epoch_ms

FOLDER = "contact"
WRITE_EVERY_S = 2.0
# The process of an older note hangs or cannot write.
STALE_MS = 30_000
_MOST_PROCESSES = 100
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ContactNote:
    """Contact of one process. ``reports`` None: it runs and has written nothing for ``STALE_MS``,
    so nothing is known."""

    process: str
    pid: int
    at_ms: int
    reports: tuple[ContactReport, ...] | None


@contextlib.contextmanager
def noting(home: Path, process: str) -> Iterator[None]:
    """Write this process's note for as long as the block runs."""
    path = home / FOLDER / f"{process}.json"
    with repeating(
        lambda: _write(path),
        name="kafka-contact-notes",
        pause_s=lambda _took_s: WRITE_EVERY_S,
        failed=f"{path} cannot be written",
    ):
        yield
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def note_for_ever(home: Path, process: str) -> None:
    """Write this process's note until it ends."""
    threading.Thread(target=_note, args=(home, process), name="kafka-contact-of", daemon=True).start()


def _note(home: Path, process: str) -> None:
    with noting(home, process):
        threading.Event().wait()


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {
        "pid": os.getpid(),
        "began": began_of(os.getpid()),
        "at_ms": epoch_ms(),
        "reports": [each._asdict() for each in reports()],
    }
    written = path.with_suffix(f".{os.getpid()}.tmp")
    written.write_bytes(orjson.dumps(note))
    written.replace(path)


def notes(home: Path, now_ms: int) -> list[ContactNote]:
    """Return the notes of running processes, by name.
    Removes notes of ended processes and skips files of another format."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted((home / FOLDER).glob("*.json"))[:_MOST_PROCESSES]:
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
                if (note := _read(path, now_ms)) is not None:
                    found.append(note)
                else:
                    path.unlink(missing_ok=True)
    return found


def _read(path: Path, now_ms: int) -> ContactNote | None:
    with path.open("rb") as file:
        note = orjson.loads(file.read(_MOST_BYTES))
    if not _still_runs(int(note["pid"]), note["began"]):
        return None
    at_ms = int(note["at_ms"])
    known = tuple(
        ContactReport(str(each["cluster"]), str(each["client"]), float(each["cut_off_s"]), str(each["why"]))
        for each in note["reports"]
    )
    return ContactNote(path.stem, int(note["pid"]), at_ms, None if now_ms - at_ms > STALE_MS else known)


def _still_runs(pid: int, began: object) -> bool:
    """Return False when the process has ended, also when another one has its number now."""
    try:
        return began_of(pid) == began
    except OSError:
        return False
