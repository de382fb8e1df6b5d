"""[edge] A process that loads a view's file and ends: ``python -m hub.sandbox.load_check``.

The hub never runs such a file itself. The process reads a request from standard input, and writes one line of
JSON: ``{}``, or what failed. ``check`` starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from hub.sandbox.cpu_limit import cpu_limit
from hub.sandbox.enter import enter
from hub.sandbox.environment import safe_environment
from hub.sandbox.refusals import TimeIsUp, rule_of
from hub.sandbox.rules import Fences
from hub.sandbox.user_code import UserCode, line_in

_MOST_TEXT = 500


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why a file cannot be loaded. ``rule``: name of the sandbox's rule that it broke, or empty."""

    error: str
    line: int | None
    rule: str


def check(
    code: UserCode, names: Sequence[str], fences: Fences | None, timeout_s: float
) -> LoadFailure | None:
    """Load a file in a process of its own; None if that works and it has ``names``. ``fences``: of its
    sandbox; None: there is none. Blocks for ``timeout_s`` at most."""
    request = {
        "code": [code.view, code.file, code.path, code.text],
        "names": list(names),
        "fences": None if fences is None else fences.text(),
        "cpu_s": timeout_s,
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "hub.sandbox.load_check"],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=dict(os.environ) if fences is None else safe_environment(os.environ),
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return LoadFailure(f"it was not loaded after {timeout_s:g} s", None, "time")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last_lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return LoadFailure(
            f"its process ended ({done.returncode}) {' '.join(last_lines)[:_MOST_TEXT]}", None, ""
        )
    return LoadFailure(**answer) if answer else None


def main() -> None:
    """Answer the request on standard input."""
    request = json.load(sys.stdin)
    answers = os.dup(1)
    os.dup2(2, 1)  # printed text must not be among the answers
    fences = request["fences"]
    if fences is not None:
        enter(Fences.of_text(fences))
    view, file, path, text = request["code"]
    code = UserCode(view, file, path, text, sandboxed=fences is not None)
    os.write(answers, json.dumps(_failure(code, request["names"], request["cpu_s"])).encode())
    os._exit(0)  # the file may have started threads


def _failure(code: UserCode, names: Sequence[str], cpu_s: float) -> dict[str, object]:
    try:
        with cpu_limit(cpu_s):
            found = code.names()
            missing = [name for name in names if name not in found]
        if missing:
            raise NameError(f'it removes "{missing[0]}" when it is run')
    except (Exception, SystemExit, TimeIsUp) as error:  # noqa: BLE001 - whatever the file does when it is run
        rule = rule_of(error) if code.sandboxed else None
        reason = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
        return {"error": reason, "line": line_in(error, code.file), "rule": rule or ""}
    return {}


if __name__ == "__main__":
    main()
