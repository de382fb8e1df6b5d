"""[edge] Put the rules of the sandbox on this process. There is no way out of it.

Entering fails with an OSError if a part that the kernel has cannot be used; then no code of a view runs.
"""

from __future__ import annotations

import os
import resource
import site
import sys
import sysconfig
import threading
from pathlib import Path

from hub.sandbox import kernel, refusals
from hub.sandbox.bpf import function_filter
from hub.sandbox.environment import safe_environment
from hub.sandbox.rules import Fences

# Files that the C library, numpy and pyarrow read, and that hold no secrets.
_OF_THE_MACHINE = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"),
    *("/etc/ld.so.cache", "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo"),
    *("/proc/sys/vm/overcommit_memory", "/sys/devices/system/cpu"),
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
)
_MOST_OPEN_FILES = 1_024


class NotSandboxed(RuntimeError):
    """Code of a view would run outside of its sandbox."""


class _Entered:
    fences: Fences | None = None


def enter(fences: Fences) -> None:
    """Put the rules on this process, for good. It must have one thread. Raises OSError, NotSandboxed.

    Does nothing if the process is in this sandbox already.
    """
    if _Entered.fences == fences:
        return
    if _Entered.fences is not None:
        raise NotSandboxed(f"this process is in the sandbox of {_Entered.fences.view}")
    if threading.active_count() > 1:
        raise NotSandboxed("a process with several threads cannot enter a sandbox")
    platform = kernel.platform_of_process()
    readable = readable_paths(fences)
    _limit(fences)
    for name in os.environ.keys() - safe_environment(os.environ).keys():
        del os.environ[name]
    refusals.explain()
    if platform.system == "linux":
        kernel.drop_capabilities(platform.machine)
    if platform.landlock:
        kernel.restrict_files(platform.landlock, readable)
    if platform.seccomp:
        kernel.refuse_calls(platform.machine, function_filter(platform.machine, os.getpid()))
    _Entered.fences = fences


def require(view: str) -> None:
    """Raise NotSandboxed unless this process is in the sandbox of a view."""
    if _Entered.fences is None or _Entered.fences.view != view:
        raise NotSandboxed(f'view "{view}": its functions would run outside of their sandbox')


def readable_paths(fences: Fences) -> list[Path]:
    """Return what a sandboxed process may read: the view's folders, Python and its packages."""
    return [*map(Path, fences.folders), *python_paths()]


def python_paths() -> list[Path]:
    """Return files and folders that Python and its packages need."""
    paths = [*_OF_THE_MACHINE, *site.getsitepackages(), str(Path(__file__).parents[1])]
    paths += [each for name, each in sysconfig.get_paths().items() if name in _PACKAGE_PATHS]
    paths += [os.path.join(sys.base_prefix, "lib"), os.path.join(sys.prefix, "lib")]
    paths += [os.path.join(sys.prefix, "pyvenv.cfg")]
    paths += [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [Path(each) for each in dict.fromkeys(paths)]


_PACKAGE_PATHS = frozenset(("stdlib", "platstdlib", "purelib", "platlib"))


def _limit(fences: Fences) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if fences.memory_mb:
        _lower(resource.RLIMIT_AS, fences.memory_mb << 20)
    _lower(resource.RLIMIT_NOFILE, _MOST_OPEN_FILES)


def _lower(kind: int, limit: int) -> None:
    """Set both limits, unless the hard one is lower already."""
    hard = resource.getrlimit(kind)[1]
    lowest = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        resource.setrlimit(kind, (lowest, lowest))
    except (ValueError, OSError):
        if sys.platform == "linux":  # macOS refuses a limit of the address space
            raise
