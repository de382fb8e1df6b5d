"""[shell] Upkeep of a table: small files merged, old snapshots expired, unused files deleted."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

from hub.config import Settings
from hub.iceberg.files import ago
from hub.lake.table import LakeTable

log = logging.getLogger(__name__)

# A group is in memory while it is merged, several times as large as its files.
TARGET_BYTES, LEAST_FILES = 64 << 20, 4
# A file of a commit under way has no snapshot yet.
SWEEP_AFTER_H = 24.0


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Result of one run: files merged and made of them, snapshots expired, files deleted."""

    table: str
    merged: int
    into: int
    expired: int
    deleted: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def maintain(
    table: LakeTable,
    settings: Settings,
    now_s: float,
    *,
    least_files: int = LEAST_FILES,
    keep_h: float | None = None,
    sweep_after_h: float = SWEEP_AFTER_H,
) -> Upkeep:
    """Compact, expire and sweep one table. ``keep_h``: snapshots younger than this stay; None: as the
    settings say.

    Raises Conflict (HUB-1813) when another writer commits meanwhile, PeerError (HUB-3810); finished parts
    stay.
    """
    merged, into = table.compact(TARGET_BYTES, least_files)
    expired = table.expire(ago(settings.lake_keep_h if keep_h is None else keep_h, now_s))
    deleted = table.sweep(ago(sweep_after_h, now_s))
    done = Upkeep(table.name, merged, into, expired, deleted)
    if merged or expired or deleted:
        log.info(
            'table "%s": %d files merged into %d, %d snapshots expired, %d files deleted',
            *(table.name, merged, into, expired, deleted),
        )
    return done
