"""[edge] The file system: is a disk full that a view's engine writes to, which folder is on it, and what is to be done.

Spark, its RocksDB and Python each say it in words of their own, some without a path, so the disks are looked at as well.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from hub.errors import PeerError

# A disk with less is one on which nothing can be written that matters.
_FEW_BYTES = 1 << 20
_SAID = re.compile(
    r"no space left on device|disk quota exceeded|not enough space|\benospc\b|\bedquot\b", re.IGNORECASE
)
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def full_disk(view: str, error: BaseException | str, folders: Mapping[str, Path]) -> PeerError | None:
    """Why a view cannot go on, when that is a full disk; None when it is something else. ``folders``: what the engine writes to, by
    what it is; of several that are full the first is named."""
    said = isinstance(error, OSError) and error.errno in _NUMBERS
    if not said and not _SAID.search(str(error)):
        return None
    where = next((each for each in folders.items() if _is_full(each[1])), next(iter(folders.items())))
    what, folder = where
    return PeerError(
        f'view "{view}": the disk of {what} is full: "{folder}"',
        hint="make room there, or move `home` (hub.yaml) to a larger disk; nothing is lost, and it goes on by itself",
        code="HUB-3062",
    )


def _is_full(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        usage, files = shutil.disk_usage(folder), os.statvfs(folder)
    except OSError:
        return False
    return usage.free < _FEW_BYTES or (files.f_files > 0 and files.f_favail == 0)
