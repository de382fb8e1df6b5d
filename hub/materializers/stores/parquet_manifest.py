"""[core] Manifest of a table in Parquet: its files, and which of them to merge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import orjson

from hub.formats.fields import known_fields
from hub.formats.stamps import Stamp
from hub.formats.table import PARQUET
from hub.formats.verdicts import require_readable
from hub.materializers.types.avro_types import AvroType
from hub.record import Positions

MANIFEST = "manifest.json"


# This many deltas of one size become one delta of the next size.
MOST_ALIKE = 8


# A snapshot is rewritten when the deltas have this share of its rows, and at least this many rows.
SNAPSHOT_SHARE, SNAPSHOT_ROWS = 0.5, 100_000


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file of a view."""

    name: str
    kind: Literal["snapshot", "delta"]
    rows: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a view at one moment. ``retired``: files no longer live, and since when (epoch ms)."""

    view: str
    topic_id: str
    types: Mapping[str, AvroType]
    indexes: Sequence[str]
    sequence: int = 0
    newest_version: int = 0
    swept: int = 0
    changelog: Positions = field(default_factory=Positions)
    source: Positions = field(default_factory=Positions)
    files: tuple[File, ...] = ()
    retired: Mapping[str, int] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        return {
            "format": PARQUET.version,
            "view": self.view,
            "topic_id": self.topic_id,
            "types": dict(self.types),
            "indexes": list(self.indexes),
            "sequence": self.sequence,
            "newest_version": self.newest_version,
            "swept": self.swept,
            "changelog": str(self.changelog),
            "source": str(self.source),
            "files": [asdict(each) for each in self.files],
            "retired": dict(self.retired),
        }

    def instead(self, old: Sequence[File], new: Sequence[File], now_ms: int) -> Manifest:
        """Return the manifest with ``new`` in place of ``old``, whose files retire now."""
        kept = tuple(each for each in self.files if each not in old)
        retired = {**self.retired, **{each.name: now_ms for each in old}}
        return replace(self, files=(*kept, *new), retired=retired)


def manifest_of(data: bytes) -> Manifest:
    """Parse a manifest. Raises ValueError, KeyError or TypeError for an invalid one; ConfigError (HUB-1150)
    for one of a newer release.
    """
    body = orjson.loads(data)
    require_readable(PARQUET, Stamp(int(body["format"])), f'manifest of view "{body["view"]}"')
    return Manifest(
        body["view"],
        body["topic_id"],
        body["types"],
        body["indexes"],
        body["sequence"],
        body["newest_version"],
        body["swept"],
        Positions.parse(body["changelog"]),
        Positions.parse(body["source"]),
        tuple(known_fields(File, each) for each in body["files"]),
        body["retired"],
    )


def to_merge(files: Sequence[File]) -> tuple[Literal["snapshot", "delta"], tuple[File, ...]] | None:
    """Return the kind of the next merge and its files; None if none is due."""
    deltas = [each for each in files if each.kind == "delta"]
    fresh = sum(each.rows for each in deltas)
    settled = sum(each.rows for each in files) - fresh
    if fresh >= max(SNAPSHOT_ROWS, settled * SNAPSHOT_SHARE) and len(files) > 1:
        return "snapshot", tuple(files)
    by_size: dict[int, list[File]] = {}
    for each in deltas:
        by_size.setdefault((each.rows.bit_length() + 2) // 3, []).append(each)
    alike = next((group for _, group in sorted(by_size.items()) if len(group) >= MOST_ALIKE), None)
    return ("delta", tuple(alike)) if alike is not None else None
