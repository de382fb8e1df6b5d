"""[edge] File system: read files that users name, and refuse anything but regular files.

A FIFO in a project folder would block its reader forever, and a device may never end. So every file of a
project is read here.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


class NotRegular(OSError):
    """A folder, FIFO, socket or device has the name of an expected file."""


def read_bytes(path: Path, most_bytes: int = -1) -> bytes:
    """Read a regular file, at most ``most_bytes`` of it; -1: all of it. Never blocks. Raises NotRegular if
    the path is not a regular file, and OSError.
    """
    # Without O_NONBLOCK, opening a FIFO waits for its writer. The kind is checked on the opened file, so a
    # rename cannot interfere.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise _not_regular(path)
        return opened.read(most_bytes)


def read_text(path: Path, *, errors: str = "strict", encoding: str = "utf-8") -> str:
    """Read a regular file as text. Raises NotRegular, OSError, UnicodeDecodeError."""
    return read_bytes(path).decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def _not_regular(path: Path) -> NotRegular:
    return NotRegular(errno.EINVAL, "not a regular file: a folder, a pipe or a device is not read", str(path))
