"""[edge] The rule behind an error. The kernel refuses; an audit hook raises first where its error would be
unclear."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

from hub.sandbox.rules import TEXT_OF_RULE, Rule

_RULE_OF_EVENT = {
    "socket.getaddrinfo": Rule.network,
    "socket.gethostbyname": Rule.network,
    "socket.gethostbyaddr": Rule.network,
    "subprocess.Popen": Rule.processes,
    "os.exec": Rule.processes,
    "os.fork": Rule.processes,
    "os.forkpty": Rule.processes,
    "os.posix_spawn": Rule.processes,
    "os.system": Rule.processes,
    "os.kill": Rule.processes,
    "os.killpg": Rule.processes,
}
_DEEPEST = 20


class SandboxRefusal(PermissionError):
    """A function asked for something that a rule of its sandbox forbids."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(errno.EPERM, f"a sandboxed function may {TEXT_OF_RULE[rule]}")
        self.rule = rule


class TimeIsUp(BaseException):
    """A call used more processor time than it may. No `except Exception` of a function catches it."""


def explain() -> None:
    """Raise SandboxRefusal where Python itself starts something that the kernel would refuse. Once a
    process, for good."""
    sys.addaudithook(_raise_refusal)


def _raise_refusal(event: str, arguments: tuple[Any, ...]) -> None:
    rule = _RULE_OF_EVENT.get(event)
    if event == "socket.__new__" and arguments[1] in (socket.AF_INET, socket.AF_INET6):
        rule = Rule.network
    if rule is not None:
        raise SandboxRefusal(rule)


def rule_of(error: BaseException | None) -> Rule | None:
    """Return the rule that caused an error; None if it has another cause. Follows the chain of causes,
    because libraries wrap errors."""
    for _ in range(_DEEPEST):
        if error is None:
            return None
        if isinstance(error, SandboxRefusal):
            return error.rule
        if isinstance(error, TimeIsUp):
            return Rule.time
        if isinstance(error, MemoryError):
            return Rule.memory
        if isinstance(error, socket.gaierror) or getattr(error, "errno", None) == errno.ENETUNREACH:
            return Rule.network
        if isinstance(error, OSError) and error.errno in (errno.EPERM, errno.EACCES):
            of_files = error.errno == errno.EACCES or error.filename is not None
            return Rule.files if of_files else Rule.system
        error = error.__cause__ or error.__context__
    return None
