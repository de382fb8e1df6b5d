"""Location and start options of Chromium: Debian's, headless, without its own calls to the outside."""

from __future__ import annotations

import os
import shutil

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def executable() -> str | None:
    """The browser's path: HUB_CHROMIUM, or the system's."""
    return os.environ.get("HUB_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
