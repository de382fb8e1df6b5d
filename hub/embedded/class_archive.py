"""[edge] Class archive of Spark: classes in the JVM's memory layout, in a file. First query after 5 s instead
of 9 (2 cores).

A JVM that runs a small stream writes the archive when it ends, once per Java and set of jars: class data
sharing (JEP 350) before Java 25, the ahead-of-time cache (JEP 514) from 25 on. The JVM checks the file and
ignores one that does not match, so a missing, old or corrupt file only costs time.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hub.config import Settings
from hub.embedded.jars import spark_classpath
from hub.embedded.java import Java, find_java
from hub.runtime import die_with_parent

MAKE_TIMEOUT_S = 300.0  # longer than it takes, for a machine that others use
# Version of the training run of ``main``; files of earlier versions are no longer used.
_TRAINING = 3
# The JVM remarks on every class that it cannot keep; none of it is of use to anyone.
_QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]


def archive_path(settings: Settings, java: Java, classpath: str) -> Path:
    """Return the path of the class archive for this Java and classpath, whether the file exists or not."""
    java_stamp = f"{java.path.resolve()} {java.path.stat().st_mtime_ns}"
    name = hashlib.sha256(f"{_TRAINING}\n{java_stamp}\n{classpath}".encode()).hexdigest()[:16]
    return settings.cache.expanduser().absolute() / "classes" / f"spark-{java.version}-{name}"


def reading_flags(java: Java, path: Path) -> list[str]:
    """Return the JVM flags that use the archive; none if the file does not exist."""
    if not path.exists():
        return []
    return [f"-XX:{'AOTCache' if java.version >= 25 else 'SharedArchiveFile'}={path}", *_QUIET]


def writing_flags(java: Java, path: Path) -> list[str]:
    """Return the flags with which a JVM writes the archive when it ends."""
    return [f"-XX:{'AOTCacheOutput' if java.version >= 25 else 'ArchiveClassesAtExit'}={path}", *_QUIET]


def has_archive(settings: Settings, jars: Sequence[Path]) -> bool:
    """True when a start would find the file."""
    return archive_path(settings, find_java(settings), spark_classpath(settings, jars)).exists()


def make_archive(settings: Settings, jars: Sequence[Path]) -> bool:
    """Make the file when it is missing (about 30 s), in a process of its own.
    False when that did not work."""
    path = archive_path(settings, find_java(settings), spark_classpath(settings, jars))
    if path.exists():
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            die_with_parent(
                [sys.executable, "-m", "hub.embedded.class_archive_training", str(path), *map(str, jars)]
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=MAKE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return path.exists()
