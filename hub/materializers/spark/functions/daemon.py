"""[edge] pyspark: the daemon that forks Spark's Python workers, for views' functions in a sandbox.

Spark starts a daemon for each environment of functions, so each sandboxed view has workers of its own::

    JVM ─▶ daemon, with the JVM's variables ─▶ the same daemon, started again with an allow-list
                                                 └ fork ─▶ worker: enters the sandbox ─▶ reads the first byte

The second start matters: variables that a process only deletes stay in its memory. Without the variable
``HUB_SANDBOX`` this is Spark's own daemon. The hub's own functions, such as decryption, have that one.
"""

from __future__ import annotations

import os
import socket
import sys

from pyspark import daemon

from hub.sandbox.enter import enter
from hub.sandbox.environment import safe_environment
from hub.sandbox.rules import VARIABLE, Fences

_STARTED_AGAIN = "PYTHON_HUB_CLEAN"


def main() -> None:
    """Run the daemon until Spark closes its standard input."""
    text = os.environ.get(VARIABLE)
    if text is not None:
        if os.environ.pop(_STARTED_AGAIN, "") != text:
            _start_again(text)
        _enter_in_workers(Fences.of_text(text))
    daemon.manager()


def _start_again(text: str) -> None:
    module = "hub.materializers.spark.functions.daemon"
    command = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, command, {**safe_environment(os.environ), _STARTED_AGAIN: text})


def _enter_in_workers(fences: Fences) -> None:
    """Let each worker enter the sandbox after its fork, when it has one thread."""
    serve = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        enter(fences)
        return int(serve(sock, authenticated))

    daemon.worker = worker


if __name__ == "__main__":
    main()
