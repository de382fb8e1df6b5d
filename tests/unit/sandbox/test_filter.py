"""The seccomp filters, run by an interpreter of their instructions, and what platforms lack."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from hub.sandbox import syscalls
from hub.sandbox.bpf import function_filter, planning_filter
from hub.sandbox.environment import safe_environment
from hub.sandbox.platforms import Platform, gaps, python_of_views
from hub.sandbox.rules import Rule

ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
PID = 4711
READ = {"x86_64": 0, "aarch64": 63}
MACHINES = pytest.mark.parametrize("machine", ["x86_64", "aarch64"])


def verdict(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """Run a filter on one call as the kernel would."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    seen = struct.pack("<IIQ6Q", number, syscalls.MACHINES[machine][0], 0, *words)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", seen, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            at += if_true if holds[code] else if_false


@MACHINES
def test_each_call_of_the_table_is_refused_and_others_are_allowed(machine: str) -> None:
    program, place = function_filter(machine, PID), syscalls.MACHINES[machine][1]
    numbers = [pair[place] for pair in syscalls.REFUSED.values()]
    assert {verdict(program, machine, each) for each in numbers if each is not None} == {REFUSE}
    assert verdict(program, machine, READ[machine]) == ALLOW
    assert verdict(program, machine, syscalls.CLONE3[place] or 0) == UNKNOWN
    assert len(set(numbers) - {None}) == sum(each is not None for each in numbers)


@MACHINES
def test_calls_are_refused_by_their_arguments(machine: str) -> None:
    program, place = function_filter(machine, PID), syscalls.MACHINES[machine][1]

    def called(pair: syscalls.Numbers, *arguments: int) -> int:
        number = pair[place]
        assert number is not None
        return verdict(program, machine, number, *arguments)

    assert called(syscalls.CLONE, 0x3D0F00) == ALLOW  # a thread of glibc
    assert called(syscalls.CLONE, 17) == REFUSE  # fork
    for pair in syscalls.SIGNALS.values():
        assert [called(pair, each) for each in (PID, PID + 1, 0, 2**32 - PID)] == [ALLOW, *[REFUSE] * 3]
    for pair in syscalls.OWN_PROCESS_ONLY.values():
        assert [called(pair, each) for each in (PID, 0, PID + 1)] == [ALLOW, ALLOW, REFUSE]
    writes = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_RDONLY | os.O_TRUNC)
    assert {called(syscalls.OPENAT, 0, 0, each) for each in writes} == {REFUSE}
    assert called(syscalls.OPENAT, 0, 0, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY) == ALLOW


@MACHINES
def test_a_call_of_another_interface_ends_the_process(machine: str) -> None:
    program = function_filter(machine, PID)
    other = "aarch64" if machine == "x86_64" else "x86_64"
    assert verdict(program, other, READ[other]) == KILL
    if machine == "x86_64":
        assert verdict(program, machine, 0x40000000 | 41) == REFUSE


@MACHINES
def test_planning_has_a_network_but_no_sockets_in_the_file_system(machine: str) -> None:
    program, place = planning_filter(machine), syscalls.MACHINES[machine][1]
    asked = syscalls.NETWORK["socket"][place] or 0
    assert verdict(program, machine, asked, socket.AF_UNIX) == REFUSE
    assert verdict(program, machine, asked, socket.AF_INET) == ALLOW
    assert verdict(program, machine, syscalls.PROCESSES["ptrace"][place] or 0) == REFUSE
    assert verdict(program, machine, syscalls.PROCESSES["execve"][place] or 0) == ALLOW


@pytest.mark.parametrize(
    ("platform", "missing"),
    [
        (Platform("linux", "x86_64", 7, True, True), set()),
        (Platform("linux", "x86_64", 7, True, False), {Rule.network}),
        (Platform("linux", "aarch64", 3, True, True), {Rule.processes}),
        (Platform("linux", "x86_64", 0, True, True), {Rule.files, Rule.processes}),
        (Platform("linux", "riscv64", 7, False, True), {Rule.network, Rule.processes, Rule.system}),
        (
            Platform("darwin", "arm64", 0, False),
            {Rule.files, Rule.network, Rule.processes, Rule.system},
        ),
    ],
)
def test_a_platform_names_the_rules_that_it_does_not_enforce(platform: Platform, missing: set[Rule]) -> None:
    assert {each.rule for each in gaps(platform)} == missing
    found = python_of_views("sandboxed", platform)
    assert found.is_complete == (not missing)
    assert all(rule in found.text for rule in missing)


def test_the_setting_says_how_python_runs() -> None:
    platform = Platform("linux", "x86_64", 7, True, True)
    assert python_of_views("off", platform).is_complete
    assert not python_of_views("trusted", platform).is_complete
    assert "the hub's rights" in python_of_views("trusted", platform).text
    assert python_of_views("sandboxed", platform).text == (
        "sandboxed by Landlock 7, seccomp, own networks, limits of processes"
    )


def test_only_known_variables_stay_in_the_environment() -> None:
    kept = {"PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "/code", "TZ": "UTC", "HUB_SANDBOX": "{}"}
    secrets = {"HUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "PGPASSWORD": "x", "SPARK_AUTH": "x"}
    assert safe_environment({**kept, **secrets}) == kept
