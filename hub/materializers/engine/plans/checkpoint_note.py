"""[edge] ``plan.json`` and the quarantine of one version's checkpoint folder.

``plan.json`` notes which plan the state belongs to: generation, fingerprint, topic ids, partitions, and the
schemas and topics that the version was created with. A corrupt checkpoint is moved to ``<view>.damaged``.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from hub.errors import PeerError
from hub.formats.stamps import Stamp
from hub.formats.table import CHECKPOINT, DELTA, VIEW_RULES, DurableFormat
from hub.formats.verdicts import require_readable
from hub.materializers.spark import checkpoint_corruption
from hub.materializers.spark.delta.state import noted_version
from hub.materializers.types.source_formats import without_defaults
from hub.times import epoch_ms

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointFolder:
    """Checkpoints of one version, one folder per generation.

    ``checkpoints``: folder of all views. ``damaged_rebuilds``: most quarantines within an hour after which
    the view is built again; 0: no limit.
    """

    checkpoints: Path
    view: str
    table: str
    damaged_rebuilds: int

    @property
    def path(self) -> Path:
        return self.checkpoints / self.table

    @property
    def quarantine(self) -> Path:
        return checkpoint_corruption.aside_of(self.checkpoints, self.view)

    def of(self, generation: int) -> Path:
        return self.path / str(generation)

    def generations(self) -> list[int]:
        """Return the generations that have a folder."""
        return [int(path.name) for path in self.path.glob("*") if path.name.isdecimal()]

    def note(self) -> dict[str, Any] | None:
        """Return the note (plan.json); None if there is none or it is corrupt. Raises ConfigError (HUB-1150)
        for a note of a newer release, whose state stays as it is."""
        path = self.path / "plan.json"
        if not path.exists():
            return None
        try:
            note: dict[str, Any] = orjson.loads(path.read_bytes())
        except ValueError:
            note = {}
        if "fingerprint" in note and "generation" in note:
            require_readable(CHECKPOINT, Stamp(int(note.pop("format", 1))), f'file "{path}"')
            require_readable(VIEW_RULES, Stamp(int(note.get("rules", 0))), f'file "{path}"')
            return _with_resolution(note)
        # Without the note, it is unknown which plan the state belongs to.
        last = max(self.generations(), default=None)
        if last is not None:
            self.set_aside(self.of(last), "plan.json was changed")
        path.unlink()
        return None

    def write_note(self, body: Mapping[str, Any]) -> None:
        """Replace the note in one step."""
        path = self.path / "plan.json"
        beside = path.with_suffix(".tmp")
        beside.write_bytes(orjson.dumps({**body, "format": CHECKPOINT.version}))
        beside.replace(path)

    def begin(self, generation: int, body: Mapping[str, Any]) -> Path:
        """Make the folder of a new generation, note its plan, and remove the other generations."""
        checkpoint = self.of(generation)
        checkpoint.mkdir(parents=True, exist_ok=True)
        self.write_note({"generation": generation, **body})
        for old in self.generations():
            if old != generation:
                shutil.rmtree(self.of(old), ignore_errors=True)
        log.info("view %s: generation %d from the start of its log", self.table, generation)
        return checkpoint

    def set_aside(self, checkpoint: Path, why: str) -> None:
        """Move a corrupt checkpoint to quarantine."""
        checkpoint_corruption.set_aside(checkpoint, self.quarantine, self.table, why, epoch_ms())
        log.error(
            "view %s: its checkpoint is corrupt: %s; it is kept in %s", self.table, why, self.quarantine
        )

    def check_rebuilds(self) -> None:
        """Raise PeerError (HUB-3064) when the checkpoint was corrupt ``damaged_rebuilds`` times within the
        last hour.

        Otherwise a disk that corrupts everything would have the view rebuilt forever.
        """
        times, most = checkpoint_corruption.lately(self.quarantine, epoch_ms()), self.damaged_rebuilds
        if most and len(times) >= most:
            until = datetime.fromtimestamp((times[-most] + checkpoint_corruption.LATELY_MS) / 1000, UTC)
            raise PeerError(
                f"its checkpoint was corrupt {len(times)} times within an hour: it is not rebuilt before"
                f" {until:%H:%M} UTC",
                hint=f"look after the disk of {self.checkpoints}; then remove {self.quarantine}, "
                "and it is built at once",
                code="HUB-3064",
            )

    def why_lost(self, generation: int | None) -> str:
        """Return why a checkpoint is missing. ``generation`` None: any generation, when it is not known which
        one was running."""
        why = checkpoint_corruption.why_aside(self.quarantine, self.table, generation)
        if why is None:
            return "its checkpoint is lost"
        return f"its checkpoint is corrupt: {first_line(why)} (kept in {self.quarantine})"


def noted_versions(checkpoints: Path) -> Iterator[tuple[DurableFormat, Stamp | None, Path]]:
    """Yield format, version (None: it cannot be read now) and file of the state of all views. Changes
    nothing.
    """
    for path in sorted(checkpoints.glob("*/plan.json")):
        try:
            note = orjson.loads(path.read_bytes())
            yield CHECKPOINT, Stamp(int(note.get("format", 1))), path
            yield VIEW_RULES, Stamp(int(note.get("rules", 0))), path
        except (OSError, ValueError, TypeError, AttributeError):
            yield CHECKPOINT, None, path
    for path in sorted(checkpoints.glob("*/*/delta/delta.duckdb")):
        yield DELTA, noted_version(path), path


def first_line(text: str) -> str:
    """Return the first line of a message, at most 500 characters."""
    return text.strip().split("\n")[0][:500]


def _with_resolution(note: dict[str, Any]) -> dict[str, Any]:
    """Return a version's note with the schemas that its state was made with.

    In notes without ``resolves``, columns have neither defaults nor aliases. Such a version continues without
    them, and the next one is built beside it.
    """
    if "latest" not in note or "resolves" in note:
        return note
    plain = {name: without_defaults(schema) for name, schema in note["latest"].items()}
    return {**note, "latest": plain, "resolves": True}
