"""[edge] ctypes: Landlock, seccomp and capabilities of this process. All calls are one-way.

Sources: ``Documentation/userspace-api/landlock.rst``, ``include/uapi/linux/landlock.h``, seccomp(2) and
capabilities(7). Landlock counts for the calling thread and those that it starts, so the process must have
one thread.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from hub.sandbox.platforms import Platform
from hub.sandbox.syscalls import MACHINES

# Landlock has one number on all machines.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _READ_FOLDER = 1, 1 << 3
_READ = 1 << 2 | _READ_FOLDER
_OF_FILES = 0b111 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl
_DEVICES = 1 << 6 | 1 << 11  # making devices
# Access to files that each version can govern: 13 kinds, then refer, truncate, ioctl of devices.
_FILE_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_FILE_ACCESS = 16
_TCP = 0b11  # bind, connect: version 4
_SCOPES = 0b11  # abstract sockets, signals: version 6
_NO_NEW_PRIVS = 38
_SECCOMP_MODE = {"x86_64": 317, "aarch64": 277, "arm64": 277}
_SECCOMP_SET_FILTER, _SECCOMP_ALL_THREADS = 1, 1
_SECCOMP_ACTION_AVAILABLE = 2
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_SET_FLAGS, _IFF_UP = 0x8914, 0x1  # ioctl SIOCSIFFLAGS
_CAPSET = {"x86_64": 126, "aarch64": 91, "arm64": 91}
_CAPABILITY_VERSION = 0x20080522


def platform_of_process() -> Platform:
    """Return what this kernel can enforce. Asks it, and changes nothing."""
    machine = platform.machine()
    if sys.platform != "linux":
        return Platform(sys.platform, machine, 0, False)
    version = _call(_CREATE_RULESET, None, 0, _VERSION)
    return Platform(sys.platform, machine, max(version, 0), machine in MACHINES and _has_seccomp(machine))


def drop_capabilities(machine: str) -> None:
    """Drop every capability and the way back to them. Raises OSError."""
    _checked(_libc().prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION, 0))
    _checked(_call(_CAPSET[machine], header, ctypes.create_string_buffer(24)), "capset")


def restrict_files(version: int, readable: Iterable[Path]) -> None:
    """Let this process read ``readable`` and files below it, open no other file, and use no TCP. Paths that
    do not exist are left out. Raises OSError."""
    _restrict(version, dict.fromkeys(readable, _READ), _TCP)


def restrict_tree(
    version: int, readable: Iterable[Path], writable: Iterable[Path], listed: Iterable[Path]
) -> None:
    """Let this process and its children read and run ``readable``, change ``writable``, and see the names of
    files in ``listed``. Paths that do not exist are left out. Raises OSError."""
    access = dict.fromkeys(listed, _READ_FOLDER)
    access |= dict.fromkeys(readable, _READ | _EXECUTE)
    access |= dict.fromkeys(writable, _every_access(version) & ~_DEVICES)
    _restrict(version, access, 0)


def _every_access(version: int) -> int:
    return (1 << _FILE_ACCESS.get(version, _NEWEST_FILE_ACCESS)) - 1


def _restrict(version: int, access: Mapping[Path, int], tcp: int) -> None:
    """Forbid every access to files but ``access``, and the access to TCP of ``tcp``."""
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    scopes = _SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", _every_access(version), tcp if version >= 4 else 0, scopes)[:size]
    rules = _checked(
        _call(_CREATE_RULESET, ctypes.create_string_buffer(attributes, size), size, 0), "Landlock"
    )
    try:
        for path, rights in access.items():
            _allow(rules, path, rights)
        _checked(_call(_RESTRICT_SELF, rules, 0), "Landlock")
    finally:
        os.close(rules)


def refuse_calls(machine: str, program: bytes) -> None:
    """Filter the system calls of every thread of this process. Raises OSError."""
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    filter_ = Program(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    refused = _call(_SECCOMP_MODE[machine], _SECCOMP_SET_FILTER, _SECCOMP_ALL_THREADS, ctypes.byref(filter_))
    _checked(refused, "seccomp")


def enter_own_network() -> None:
    """Give this process a network of its own, with a loopback interface and nothing else. Raises OSError
    where the kernel or the container allows no user namespaces."""
    user, group = os.getuid(), os.getgid()
    _checked(_libc().unshare(_NEW_USER | _NEW_NETWORK), "a network of its own")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        request = struct.pack("16sH14x", b"lo", _IFF_UP)
        fcntl.ioctl(opened, _SET_FLAGS, request)


def _allow(rules: int, path: Path, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            access &= _OF_FILES
        if not access:  # the kernel refuses an empty rule
            return
        rule = ctypes.create_string_buffer(struct.pack("=Qi", access, opened), 12)
        _checked(_call(_ADD_RULE, rules, _PATH_BENEATH, rule, 0), f"Landlock: {path}")
    finally:
        os.close(opened)


def _has_seccomp(machine: str) -> bool:
    action = ctypes.c_uint32(0x00050000)  # SECCOMP_RET_ERRNO
    return _call(_SECCOMP_MODE[machine], _SECCOMP_ACTION_AVAILABLE, 0, ctypes.byref(action)) == 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    """Make a system call. Return -1 for a failure, with its reason in ctypes' errno."""
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    words += [ctypes.c_long(0)] * (5 - len(words))
    syscall = _libc().syscall
    syscall.restype = ctypes.c_long
    return int(syscall(ctypes.c_long(number), *words))


def _checked(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno() or errno.EINVAL
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
