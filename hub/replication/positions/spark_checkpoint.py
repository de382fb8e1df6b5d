"""[edge] The file system: a Spark checkpoint, read as it is and written to a new folder.

The input is never changed. The new folder appears complete or not at all: it is written under a temporary
name and renamed. The next command removes the rest of a killed one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hub.errors import CallerError, Conflict
from hub.files import sync
from hub.replication.positions.spark_logs import CheckpointLogs, MovedCheckpoint

_PART = ".partial"


def read_logs(folder: Path) -> CheckpointLogs:
    """Read the logs of a checkpoint. Raises CallerError (HUB-1641)."""
    if not folder.is_dir():
        raise CallerError(
            f'checkpoint "{folder}" is not a folder',
            hint="copy checkpoints of HDFS or S3 to a local folder first, and back afterwards",
            code="HUB-1641",
        )
    try:
        return CheckpointLogs(
            str(folder),
            {int(path.name): path.read_text() for path in _numbered(folder / "offsets")},
            frozenset(int(path.name) for path in _numbered(folder / "commits")),
            {
                int(path.name): (path / "0").read_text()
                for path in _numbered(folder / "sources")
                if (path / "0").is_file()
            },
        )
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f'checkpoint "{folder}" cannot be read: {error}', code="HUB-1641") from None


def write_moved(folder: Path, to: Path, plan: MovedCheckpoint) -> None:
    """Write the moved checkpoint. Raises Conflict (HUB-1977) if the new folder exists or the checkpoint
    changed meanwhile, CallerError (HUB-1641) if it cannot be written.
    """
    if to.exists():
        raise Conflict(
            f'folder "{to}" exists already: nothing was written',
            hint="name a new folder, or remove it if it is of an earlier try",
            code="HUB-1977",
        )
    if folder.resolve() in (to.resolve(), *to.resolve().parents):
        raise Conflict(
            f'folder "{to}" is inside the checkpoint, which is never changed',
            hint="name a folder outside of it",
            code="HUB-1977",
        )
    part = to.with_name(to.name + _PART)
    before = read_logs(folder)
    try:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(folder, part)
        _rewrite(part, plan)
        if read_logs(folder) != before:
            shutil.rmtree(part)
            raise Conflict(
                f'checkpoint "{folder}" changed while it was copied: its query runs',
                hint="stop the query first",
                code="HUB-1977",
            )
        _sync(part)
        part.rename(to)
        sync(to.parent)
    except OSError as error:
        raise CallerError(f'folder "{to}" cannot be written: {error}', code="HUB-1641") from None


def _rewrite(part: Path, plan: MovedCheckpoint) -> None:
    for batch, text in plan.offsets.items():
        _replace(part / "offsets" / str(batch), text)
    for number, text in plan.sources.items():
        _replace(part / "sources" / str(number) / "0", text)
    for batch in plan.left_out:
        for log in ("offsets", "commits"):
            (part / log / str(batch)).unlink(missing_ok=True)
            (part / log / f".{batch}.crc").unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    path.write_text(text)
    # Hadoop's checksum of the former text; a file without one is read as it is.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.name.isdecimal())


def _sync(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        if path.is_file() or path.is_dir():
            sync(path)
