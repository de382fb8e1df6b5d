"""[edge] ``hub watch``: a view's changes as they happen, field by field; goes on where it was when the line breaks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import httpx2
import typer

from hub.cli.http import base_url, refused, unreachable
from hub.cli.interrupt import pause
from hub.cli.output import Output, OutputOption, note, text_of

_SILENCE_S = 30.0  # the server says "still here" every 10 s
_PAUSE_S = 1.0


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    mark: str | None
    body: Any


def watch(
    view: str,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only this row")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Follow a view: `+` a field that came, `~` one that changed, `-` one that went, and deleted rows. Ctrl-C ends.

    Example: hub watch customer_360 --key C-00001
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for event in follow(f"{base_url()}/views/{quote(view)}/changes", {"key": key} if key else {}):
        if event.name == "reset":
            rows.clear()
            note("The view was built anew: a new snapshot follows.")
        elif event.name == "synced":
            note(f"{len(rows)} rows; waiting for changes. Ctrl-C ends.")
        elif event.name in ("snapshot", "upsert", "delete"):
            changed = event.body["key"]
            before, after = rows.pop(changed, {}), event.body["row"]
            if after is not None:
                rows[changed] = after
            if event.name != "snapshot" or key is not None:
                _print(changed, before, after, output)


def follow(url: str, parameters: Mapping[str, str]) -> Iterator[Event]:
    """Events for ever; a broken connection is opened again after the last event seen. Raises what the server refuses,
    and PeerError when it cannot be reached at first."""
    last: str | None = None
    reached = quiet = False
    while True:
        headers = {"Last-Event-ID": last} if last else {}
        if reached and last is None:
            yield Event("reset", None, None)  # the line broke within the snapshot: it comes whole again
        try:
            with httpx2.stream(
                "GET", url, params=dict(parameters), headers=headers, timeout=_SILENCE_S
            ) as stream:
                if stream.is_success:
                    reached, quiet = True, False
                    for event in _events(stream.iter_lines()):
                        last = event.mark or last
                        yield event
                elif not reached or stream.status_code < 500:  # a server that starts again is waited for
                    stream.read()
                    raise refused(stream)
        except httpx2.HTTPError as error:
            if not reached:
                raise unreachable(base_url(), error) from None
        if not quiet:
            note("The connection broke; trying again until the server is back.")
        quiet = True
        pause(_PAUSE_S)


def _events(lines: Iterator[str]) -> Iterator[Event]:
    name, mark = "message", None
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            mark = value
        elif field == "data":
            yield Event(name, mark, json.loads(value))
            name, mark = "message", None


def _print(key: str, before: Mapping[str, Any], after: Mapping[str, Any] | None, output: Output) -> None:
    if output is Output.json:
        sys.stdout.write(json.dumps({"key": key, "row": after}) + "\n")
    else:
        now = time.strftime("%H:%M:%S")
        said = "deleted" if after is None else "  ".join(differences(before, after)) or "(nothing that shows)"
        sys.stdout.write(f"{now}  {key}  {said}\n")
    sys.stdout.flush()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What changed, a word a field; what the hub adds to a row is left out."""
    found = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if name.startswith("_") or old == new:
            continue
        if old is None:
            found.append(f"+{name}={text_of(new)}")
        elif new is None:
            found.append(f"-{name}")
        else:
            found.append(f"~{name}: {text_of(old)} -> {text_of(new)}")
    return found


app = watch
