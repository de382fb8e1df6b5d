"""A disk of a size that a test chooses: a tmpfs in a mount namespace of its own,
in which processes can be started."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from hub.runtime import die_with_parent
from hub.supervisor import end


@dataclass(frozen=True)
class SmallDisk:
    """``folder`` is the disk for every command that begins with ``within``,
    and an empty folder for all others."""

    folder: Path
    within: list[str]

    def resize(self, megabytes: int) -> None:
        resized = ["mount", "-o", f"remount,size={megabytes}m", str(self.folder)]
        subprocess.run([*self.within, *resized], check=True, timeout=20)


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Skips the test where this user may make no namespaces."""
    folder.mkdir(parents=True)
    enter, leave = shutil.which("unshare"), shutil.which("nsenter")
    if enter is None or leave is None:
        pytest.skip("no unshare and nsenter on this machine (util-linux)")
    root = os.geteuid() == 0
    mount = f"mount -t tmpfs -o size={megabytes}m hub '{folder}' && echo mounted && exec sleep infinity"
    command = [enter, "--mount", *([] if root else ["--map-root-user"]), "sh", "-c", mount]
    holder = subprocess.Popen(die_with_parent(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert holder.stdout is not None and holder.stderr is not None
    try:
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip(f"no disk of its own here: {holder.stderr.read().decode().strip()}")
        user = [] if root else ["--user", "--preserve-credentials"]
        yield SmallDisk(
            folder, [leave, "--target", str(holder.pid), "--mount", *user, f"--wd={Path.cwd()}", "--"]
        )
    finally:
        end(holder, 5.0)
        holder.stdout.close()
        holder.stderr.close()
