"""[edge] A tree of processes with files and a network of its own: ``python -m hub.sandbox.launch FENCES
COMMAND``.

The function of a PySpark view has Spark's JVM at hand, and the JVM can open files and connections, too. So
the rules are put on both, before either starts: the process enters, then becomes the command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from hub.sandbox import kernel
from hub.sandbox.bpf import planning_filter
from hub.sandbox.enter import python_paths
from hub.sandbox.platforms import Platform

_MODULE = "hub.sandbox.launch"
# Of the JVM: its processors and memory, of itself and of its container.
_OF_JAVA = ("/proc", "/sys", "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/bin/rm", "/usr/bin/rm")
_PROBE_S = 20.0


def launched(command: Sequence[str], readable: Sequence[Path], writable: Sequence[Path]) -> list[str]:
    """Return the command that runs ``command`` with these files and without a network. The command is a path
    with its arguments."""
    fences = json.dumps({"read": [*map(str, readable)], "write": [*map(str, writable)]})
    return [sys.executable, "-P", "-m", _MODULE, fences, *command]


@lru_cache(1)
def probed_platform() -> Platform:
    """Return the platform with all its parts. Starts a process, once, because only a process can try some."""
    found = kernel.platform_of_process()
    if found.system != "linux":
        return found
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [sys.executable, "-P", "-m", _MODULE, "--probe"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_S,
            check=False,
        )
        return replace(found, networks=done.returncode == 0)
    return found


def main() -> None:
    """Put the rules on this process, and become the command."""
    if sys.argv[1:] == ["--probe"]:
        kernel.enter_own_network()
        return
    fences, command = json.loads(sys.argv[1]), sys.argv[2:]
    platform = kernel.platform_of_process()
    if platform.system == "linux":
        with suppress(OSError):  # a gap of the platform, which `hub doctor` names
            kernel.enter_own_network()
        kernel.drop_capabilities(platform.machine)
    if platform.landlock:
        programs = (Path(sys.prefix, "bin"), Path(sys.base_prefix, "bin"), Path(sys.executable).resolve())
        readable = [*map(Path, fences["read"]), *python_paths(), *programs, *map(Path, _OF_JAVA)]
        writable = [*map(Path, fences["write"]), Path("/dev/null")]
        # Python looks for packages in folders that it can list: also where the hub runs from its source.
        kernel.restrict_tree(platform.landlock, readable, writable, listed=map(Path, sys.path))
    if platform.seccomp:
        kernel.refuse_calls(platform.machine, planning_filter(platform.machine))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
