"""[shell] A YAML file of the project that the server may edit."""

from __future__ import annotations

import os
from pathlib import Path

from hub.errors import ConfigError
from hub.files import read_bytes


def text_of(path: Path) -> str:
    """Return the text of the file; "" if it does not exist. Raises ConfigError (HUB-1114)."""
    try:
        return read_bytes(path).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=f"{path}", code="HUB-1114") from None


def is_writable(path: Path) -> bool:
    """Return whether this process may replace the file, or make it."""
    home = path.resolve()
    return os.access(home.parent, os.W_OK) and (not home.exists() or os.access(home, os.W_OK))
