"""[core] The seccomp filters of the sandbox as programs of classic BPF.

Each refused call gets EPERM. ``clone3`` gets ENOSYS, because its flags are in memory that a filter cannot
read; C libraries then call ``clone``, which is allowed for threads only. A call of another machine's
interface ends the process. Source: ``Documentation/userspace-api/seccomp_filter.rst`` of Linux.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Mapping

from hub.sandbox.syscalls import (
    CLONE,
    CLONE3,
    MACHINES,
    NETWORK,
    OPEN,
    OPENAT,
    OWN_PROCESS_ONLY,
    REFUSED,
    REFUSED_IN_PLANNING,
    SIGNALS,
    Numbers,
)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _MACHINE = 0, 4  # offsets in struct seccomp_data
_X32 = 0x40000000  # calls of x86_64 with 32-bit pointers have this bit
_CLONE_THREAD = 0x10000
# A file that is opened so could be written.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Instruction = tuple[int, int, int, int]


def function_filter(machine: str, pid: int) -> bytes:
    """Return the filter of a process that runs functions, as an array of ``struct sock_filter``. Raises
    KeyError for a machine that is not in ``MACHINES``."""
    place = MACHINES[machine][1]
    program = [*_head(machine, REFUSED), (_EQUAL, 0, 1, CLONE3[place] or 0), _refuse(errno.ENOSYS)]
    for number in _numbers([CLONE], place):
        program += _unless(number, argument=0, test=[(_ANY_BIT, 1, 0, _CLONE_THREAD)])
    for number in _numbers(SIGNALS.values(), place):
        program += _unless(number, argument=0, test=[(_EQUAL, 1, 0, pid)])
    for number in _numbers(OWN_PROCESS_ONLY.values(), place):
        program += _unless(number, argument=0, test=[(_EQUAL, 2, 0, pid), (_EQUAL, 1, 0, 0)])
    for pair, argument in ((OPEN, 1), (OPENAT, 2)):
        for number in _numbers([pair], place):
            program += _unless(number, argument, test=[(_AND, 0, 0, _WRITES), (_EQUAL, 1, 0, 0)])
    return _packed(program)


def planning_filter(machine: str) -> bytes:
    """Return the filter of a process that plans a PySpark view, and of its children. Sockets in the file
    system are refused: a network of its own does not keep a process from them."""
    program = _head(machine, REFUSED_IN_PLANNING)
    for number in _numbers([NETWORK["socket"]], MACHINES[machine][1]):
        program += _unless(number, argument=0, test=[(_EQUAL, 0, 1, socket.AF_UNIX)])
    return _packed(program)


def _head(machine: str, refused: Mapping[str, Numbers]) -> list[Instruction]:
    """Return the start of a filter: the machine's interface, and calls that are refused always."""
    architecture, place = MACHINES[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.EPERM)]
    for number in _numbers(refused.values(), place):
        program += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    return program


def _packed(program: list[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *each) for each in [*program, (_RETURN, 0, 0, _ALLOW)])


def _numbers(pairs: Iterable[Numbers], place: int) -> list[int]:
    return [number for pair in pairs if (number := pair[place]) is not None]


def _refuse(code: int) -> Instruction:
    return (_RETURN, 0, 0, 0x00050000 | code)


def _unless(number: int, argument: int, test: list[Instruction]) -> list[Instruction]:
    """Refuse a call unless ``test`` jumps over the refusal. ``argument``: place of the argument that it
    tests, of which it sees the lower 32 bits."""
    body = [(_LOAD, 0, 0, 16 + 8 * argument), *test, _refuse(errno.EPERM), (_LOAD, 0, 0, _NUMBER)]
    return [(_EQUAL, 0, len(body), number), *body]
