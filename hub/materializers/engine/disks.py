"""[edge] The file system: detect a full disk that a view's engine writes to, name the folder on it, and how
to fix it.

Spark, its RocksDB and Python each word the error differently, some without a path, so the disks are checked
as well.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from hub.errors import PeerError

# With fewer free bytes, a disk counts as full.
_FEW_BYTES = 1 << 20
_MESSAGE = re.compile(
    r"no space left on device|disk quota exceeded|not enough space|\benospc\b|\bedquot\b", re.IGNORECASE
)
_NUMBERS = (errno.ENOSPC, errno.EDQUOT)


def full_disk(view: str, error: BaseException | str, folders: Mapping[str, Path]) -> PeerError | None:
    """Return the error for a view that failed because of a full disk; None if it failed for another reason.

    ``folders``: the folders that the engine writes to, by description. If several are full, the first is
    named.
    """
    is_full = isinstance(error, OSError) and error.errno in _NUMBERS
    if not is_full and not _MESSAGE.search(str(error)):
        return None
    where = next((each for each in folders.items() if _is_full(each[1])), next(iter(folders.items())))
    what, folder = where
    return PeerError(
        f'view "{view}": the disk of {what} is full: "{folder}"',
        hint="free space there, or move `home` (hub.yaml) to a larger disk; nothing is lost, and the "
        "view resumes by itself",
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
