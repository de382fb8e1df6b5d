"""[edge] ``--watch`` and ``--interval``: repeat a request until Ctrl-C. A restarting server does not end the
command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, note
from hub.errors import PeerError

REFRESH_S = 1.0
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")]
IntervalOption = Annotated[
    float, typer.Option("--interval", "-i", metavar="SECONDS", min=0.2, help="Pause between two updates.")
]

T = TypeVar("T")


def looked(
    look: Callable[[], T],
    show: Callable[[T], None],
    watch: bool,
    output: Output = Output.table,
    every_s: float = REFRESH_S,
) -> T:
    """Print and return the result of ``look``. With ``watch``, repeat it on a cleared screen if there is a
    terminal; each JSON result is a document of its own. Raises errors of the first request; later ones are
    printed and retried.
    """
    first = True
    while True:
        try:
            found = look()
        except PeerError as error:
            if first:
                raise
            note(error.message)
        else:
            if watch and output is Output.table and sys.stdout.isatty():
                sys.stdout.write("\x1b[2J\x1b[H")
            show(found)
            if not watch:
                return found
            sys.stdout.flush()
        first = False
        pause(every_s)
