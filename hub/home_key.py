"""[edge] The file system: the key in the hub's home that only the hub's own account can read (0600).

It signs browsers' sessions and authenticates the hub's own processes: an account that can read the home is
the hub.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from stat import S_IMODE, S_ISLNK

from hub.errors import ConfigError

NAME = "access.key"
_BYTES = 32
# The user name under which a home's own processes ask the server.
OWN = "_hub"


def make_private(home: Path, *, shared: bool = False) -> None:
    """Make the home private to the hub's own account (0700 and 0600), including existing files and files that
    this process and its children create later. ``shared``: also open to its group, for executors of a cluster
    that keep state in it. Raises OSError. Changes only the folder and its direct entries, because these
    protect everything below.
    """
    closed = 0o007 if shared else 0o077
    os.umask(closed)
    home.mkdir(parents=True, exist_ok=True)
    for path in (home, *home.iterdir()):
        try:
            found = path.lstat()
            if not S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & closed:
                path.chmod(S_IMODE(found.st_mode) & ~closed)
        except FileNotFoundError:
            continue  # a draft, removed meanwhile


def read_key(home: Path) -> bytes | None:
    """Return the key; None if it does not exist or this account may not read it. Raises ConfigError when
    others may read it too.
    """
    path = home / NAME
    try:
        mode = path.stat().st_mode
        found = path.read_bytes()
    except OSError:
        return None
    if mode & 0o077:
        raise ConfigError(
            f'"{path}" can be read by other accounts (mode {mode & 0o777:o}), so they '
            "could sign in as anybody",
            hint=f"remove it, and start the hub again: it makes a new one (sessions end): rm {path}",
            code="HUB-1710",
        )
    if len(found) != _BYTES:
        raise ConfigError(
            f'"{path}" is {len(found)} bytes long, a key has {_BYTES}',
            hint="remove it, and start the hub again: it makes a new one",
            code="HUB-1710",
        )
    return found


def make_key(home: Path) -> bytes:
    """Return the home's key, created if missing. Raises ConfigError."""
    known = read_key(home)
    if known is not None:
        return known
    home.mkdir(parents=True, exist_ok=True)
    # The file appears complete or not at all. If two processes start at once, the first to link its file
    # wins.
    draft = home / f".{NAME}.{os.getpid()}.{secrets.token_hex(4)}"
    handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        os.write(handle, secrets.token_bytes(_BYTES))
        os.fsync(handle)
    finally:
        os.close(handle)
    try:
        os.link(draft, home / NAME)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    made = read_key(home)
    if made is None:
        raise ConfigError(f'"{home / NAME}" cannot be read by this account', code="HUB-1710")
    return made


def mask_key(key: bytes) -> bytes:
    """Return the key of hashed fields. Servers with the same key of the home hash alike."""
    return hmac.new(key, b"hashes of masked fields", hashlib.sha256).digest()


def own_password(key: bytes) -> str:
    """Return the password with which the hub's own processes sign in as ``_hub``."""
    return hmac.new(key, b"hub's own processes", hashlib.sha256).hexdigest()


def home_name(key: bytes) -> str:
    """Return a public name of the home: processes that share a home have the same."""
    return hmac.new(key, b"name of the home", hashlib.sha256).hexdigest()[:16]
