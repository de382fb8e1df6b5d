"""[edge] ``hub logs``: what the hub's processes write, from their files in the home folder."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.rows import printable
from hub.errors import NotFound

_LOOK_S = 0.5
# Times at the beginning of a line: "2026-01-31 09:00:00,123" of the hub, "[2026-01-31 09:00:00,123]" of
# Kafka.
_TIME = re.compile(r"\[?(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)")
_TROUBLE = re.compile(r"\b(WARN|WARNING|ERROR|FATAL|CRITICAL|Traceback|Error|Exception)\b")


def logs(
    processes: Annotated[
        list[str] | None, typer.Argument(help="Processes, such as server or materializer. Default: all")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="The last lines of each process")] = 20,
    watch: Annotated[
        bool, typer.Option("--watch", "--follow", "-w", help="Show new lines until Ctrl-C")
    ] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Only warnings and errors")] = False,
) -> None:
    """Show the last lines of the hub's processes in the order of their times. It needs no running hub.

    Examples: hub logs; hub logs materializer -n 200; hub logs --errors --watch
    """
    files = chosen(load_settings().logs, processes or [])
    width = max(len(name) for name in files)
    opened: dict[str, IO[bytes]] = {name: path.open("rb") for name, path in files.items()}
    try:
        found = [
            line for name, file in opened.items() for line in timed(name, last_lines(file, limit, errors))
        ]
        for _, name, text in sorted(found, key=lambda line: line[0]):
            _print(name, text, width)
        while watch:
            pause(_LOOK_S)
            for name, file in opened.items():
                opened[name] = reopened(files[name], file)
                for text in whole_lines(opened[name], errors):
                    _print(name, text, width)
    finally:
        for file in opened.values():
            file.close()


def chosen(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """Return the log files by process. Raises NotFound (HUB-1418) when there are none, or none of a name."""
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not paths:
        raise NotFound(
            f'there are no logs in "{folder}"',
            hint="start the hub, or name its folder: hub --home FOLDER",
            code="HUB-1418",
        )
    for name in names:
        if name not in paths:
            raise NotFound(
                f'no process "{name}" has a log in "{folder}"',
                hint=f"known are: {', '.join(paths)}",
                code="HUB-1418",
            )
    return {name: path for name, path in paths.items() if not names or name in names}


def timed(name: str, lines: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (time, process, line) per line;
    one without a time, as in a traceback, has that of the line before."""
    time = ""
    for text in lines:
        if match := _TIME.match(text):
            time = match[1].replace("T", " ").replace(",", ".")
        yield time, name, text


def last_lines(file: IO[bytes], limit: int, errors: bool) -> Sequence[str]:
    """Return the last ``limit`` whole lines; the file is then read to its end."""
    return deque(whole_lines(file, errors), maxlen=limit)


def whole_lines(file: IO[bytes], errors: bool) -> Iterator[str]:
    """Yield the complete lines from here on; an incomplete one is read again the next time."""
    while line := file.readline():
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)
            return
        text = line.decode(errors="replace").rstrip("\r\n")
        if not errors or _TROUBLE.search(text):
            yield text


def reopened(path: Path, file: IO[bytes]) -> IO[bytes]:
    """Return the same file, or a new one when the process writes another (a large log
    is renamed at a start)."""
    try:
        now = path.stat()
        if now.st_ino == os.fstat(file.fileno()).st_ino and now.st_size >= file.tell():
            return file
        new = path.open("rb")
    except FileNotFoundError:
        return file
    file.close()
    return new


def _print(name: str, text: str, width: int) -> None:
    print(f"{name:<{width}}  {printable(text, keep=chr(9))}", flush=True)
