"""[edge] ``hub watch``: print a view's changes field by field; resumes after a disconnect."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hub.cli.http import base_url, who_asks
from hub.cli.terminal.conditions import condition
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, OutputOption, note, text_of
from hub.cli.terminal.rows import printable
from hub.client import Behind, Delete, Hub, Reset, Snapshot, Synced, Upsert


def watch(
    view: str,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Only this row")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Rows that meet it: city=Oslo, points>=100; repeatable"),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Follow a view: `+` a new field, `~` a changed one, `-` a removed one, and deleted rows. Ctrl-C ends.

    Examples: hub watch customer_360 --key C-00001      hub watch customer_360 --where city=Oslo
    """
    rows: dict[str, Mapping[str, Any]] = {}
    hub = Hub(base_url(), token=who_asks(), retry=False, sleep=pause)
    with (
        hub,
        hub.subscribe(
            view, key=key, where=[condition(each) for each in where or ()], on_disconnect=_broke
        ) as changes,
    ):
        for change in changes:
            match change:
                case Reset():
                    rows.clear()
                    note("The view was rebuilt: a new snapshot follows.")
                case Synced():
                    note(f"{len(rows)} rows; waiting for changes. Ctrl-C ends.")
                case Behind(coalesced=int(states)):
                    note(f"This reader was slow: {states} states between are not shown.")
                case Snapshot(changed, row, _) | Upsert(changed, row, _):
                    before = rows.get(changed, {})
                    rows[changed] = row
                    if isinstance(change, Upsert) or key is not None:
                        print_change(changed, before, row, output)
                case Delete(changed, _):
                    print_change(changed, rows.pop(changed, {}), None, output)


def _broke(_reason: str) -> None:
    note("The connection broke; trying again until the server is back.")


def print_change(
    key: str, before: Mapping[str, Any], after: Mapping[str, Any] | None, output: Output
) -> None:
    if output is Output.json:
        sys.stdout.write(json.dumps({"key": key, "row": after}) + "\n")
    else:
        now = time.strftime("%H:%M:%S")
        change = (
            "deleted" if after is None else "  ".join(differences(before, after)) or "(nothing that shows)"
        )
        sys.stdout.write(f"{now}  {printable(key)}  {printable(change)}\n")
    sys.stdout.flush()


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return one text per changed field; columns that the hub adds are left out."""
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
