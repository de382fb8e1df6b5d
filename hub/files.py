"""[edge] File system: read files that users name, refuse anything but regular files, notice changes, and
write whole files.

A FIFO in a project folder would block its reader forever, and a device may never end. So every file of a
project is read here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from hub.errors import ConfigError

# (inode, size in bytes, modification time in ns) of a file: differs when its content does.
Stamp = tuple[int, int, int]
_UNREADABLE: Stamp = (0, 0, 0)


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


def stamp_of(path: Path) -> Stamp:
    """Return the stamp of a file. Raises OSError."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def stamp_if_there(path: Path) -> Stamp | None:
    """Return the stamp of a file; None if it does not exist. A file that cannot be looked at has a stamp of
    its own.
    """
    try:
        return stamp_of(path)
    except FileNotFoundError:
        return None
    except OSError:
        return _UNREADABLE


def write_new(files: Mapping[Path, str]) -> None:
    """Write files that do not exist yet, and their folders.

    Raises ConfigError: HUB-1130 when one exists, then none is written; HUB-1131 when one cannot be written.
    """
    for path in files:
        if path.exists():
            raise ConfigError(
                f'file "{path}" exists', hint="take another name, or edit the file", code="HUB-1130"
            )
    for path, text in files.items():
        write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Write a whole file at once: a reader sees the former text or the new one. Raises ConfigError
    (HUB-1131).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, text.encode())
    except OSError as error:
        raise not_written(path, error) from None


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a whole file at once: a reader sees the former content or the new one, with the former rights.
    Raises OSError.
    """
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(b"")
    with contextlib.suppress(FileNotFoundError):
        draft.chmod(stat.S_IMODE(path.stat().st_mode))
    draft.write_bytes(content)
    draft.replace(path)


def sync(path: Path) -> None:
    """Wait until a file, or the names of a folder, are on the disk. Raises OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def not_written(path: Path, error: OSError) -> ConfigError:
    """Return the error about a file or folder that cannot be written."""
    return ConfigError(
        f'file "{path}" cannot be written ({error.strerror})',
        hint="check the folder's rights, or name one that this account may write",
        code="HUB-1131",
    )


def _not_regular(path: Path) -> NotRegular:
    return NotRegular(errno.EINVAL, "not a regular file: a folder, a pipe or a device is not read", str(path))
