"""[edge] What ``--watch`` does: look again every second, until Ctrl-C. A server that starts again is no reason to end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, note
from hub.errors import PeerError

REFRESH_S = 1.0
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Again every second, until Ctrl-C.")]

T = TypeVar("T")


def looked(
    look: Callable[[], T],
    tell: Callable[[T], None],
    watch: bool,
    output: Output = Output.table,
    every_s: float = REFRESH_S,
) -> T:
    """What ``look`` gives, told; with ``watch`` again and again, on a cleared screen where there is one. With JSON each look is a
    document of its own. Raises what the first look raises; later ones are told and tried again."""
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
            tell(found)
            if not watch:
                return found
            sys.stdout.flush()
        first = False
        pause(every_s)
