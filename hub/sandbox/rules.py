"""[core] Rules of the sandbox, and the limits of one view."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

# Variable of a worker with its view and limits, as JSON.
VARIABLE = "HUB_SANDBOX"


class Rule(StrEnum):
    """Rules of the sandbox. The value is the name in messages."""

    files = "files"
    network = "network"
    processes = "processes"
    memory = "memory"
    time = "time"
    system = "system calls"


# Ends the sentence "rule …: a function may …".
TEXT_OF_RULE = {
    Rule.files: "read files of the views' folder and of Python packages only, and write none",
    Rule.network: "open no connection and look up no host",
    Rule.processes: "start no process and send no signal to another one",
    Rule.memory: "use at most python_memory_mb of address space",
    Rule.time: "use at most python_call_cpu_s of processor time for one batch",
    Rule.system: "call nothing that changes the machine or other processes",
}


@dataclass(frozen=True, slots=True)
class Fences:
    """Limits of one view's functions. ``folders``: folders of the project that they may read; ``memory_mb``:
    address space, 0 for no limit."""

    view: str
    folders: tuple[str, ...] = ()
    memory_mb: int = 0

    def text(self) -> str:
        """Return the value of the variable ``HUB_SANDBOX``."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of_text(cls, text: str) -> Fences:
        """Read ``text()``. Raises ValueError for another text."""
        try:
            body = json.loads(text)
            return cls(str(body["view"]), tuple(map(str, body["folders"])), int(body["memory_mb"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{VARIABLE} is not complete: {error}") from None
