"""[edge] The Python file of a view, run from its text. Each process runs it once.

The text comes from the view, not from the disk: a version runs the code that it was created with.
"""

from __future__ import annotations

import hashlib
import types
from dataclasses import dataclass
from typing import Any

from hub.sandbox.enter import require

_NAMESPACES: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class UserCode:
    """A view's file. ``file``: its name in errors; ``path``: its ``__file__``; ``sandboxed``: it
    runs in a sandbox only."""

    view: str
    file: str
    path: str
    text: str
    sandboxed: bool

    def names(self) -> dict[str, Any]:
        """Run the file, once in this process, and return its names. Raises its errors, NotSandboxed."""
        if self.sandboxed:
            require(self.view)
        key = hashlib.sha256(f"{self.view}\0{self.path}\0{self.text}".encode()).hexdigest()
        if key not in _NAMESPACES:
            module = types.ModuleType("hub_transforms")
            module.__file__ = self.path
            exec(compile(self.text, self.file, "exec"), module.__dict__)  # noqa: S102 - settings.transforms
            _NAMESPACES[key] = module.__dict__
        return _NAMESPACES[key]


def line_in(error: BaseException, file: str) -> int | None:
    """Return the line of ``file`` that is last in an error's traceback; None without one."""
    found, at = None, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == file:
            found = at.tb_lineno
        at = at.tb_next
    return found
