"""[edge] ``hub governance``: the governance report of the running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one

app = typer.Typer(
    help="Governance: owners, classified fields, their flows and readers (docs/how-to/govern-data.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub governance report shop --tag PII -o json",
)


@app.callback()
def governance() -> None:
    """Governance."""


@app.command("report")
def report(
    tree: Annotated[
        str, typer.Argument(help="A node of the tree (shop), or view:NAME. Default: everything.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", help="Only objects with a field of this tag.")] = "",
    output: OutputOption = Output.table,
) -> None:
    """Report each topic and view: owner, purpose, tagged fields, where they flow, who reads them in clear.

    Example: hub governance report shop --tag PII
    """
    found: dict[str, Any] = http.get("/api/governance", {"tree": tree, "tag": tag})
    if output is Output.json:
        show_one(found, output)
        return
    show([_row(each) for each in found["rows"]], output)
    for each in found["unread"]:
        note(f"{each} cannot be read: its declarations are UNKNOWN.")
    for each in found["rows"]:
        for unknown in each["unknown"]:
            note(f"UNKNOWN {each['kind']} {each['name']}: {unknown}")
    if found["left_out"]:
        note(f"{found['left_out']} more are not shown. Name a node of the tree.")


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    clear = [each for each in answer["readers"] if each["clear"]]
    more = ", …" if answer["more_readers"] else ""
    return {
        "object": f"{answer['kind']} {answer['name']}",
        "owner": answer["owner"],
        "purpose": answer["purpose"],
        "fields": ", ".join(f"{name} ({', '.join(tags)})" for name, tags in answer["fields"].items()),
        "flows to": ", ".join(dict.fromkeys(_place(each) for each in answer["flows"])),
        "in clear": ", ".join(f"{each['kind']} {each['name']}" for each in clear) + more,
        "retention": answer["retention"]
        + (f", hold: {answer['legal_hold']}" if answer["legal_hold"] else ""),
        "erasable by": answer["erasable_by"],
    }


def _place(flow: dict[str, Any]) -> str:
    return flow["place"] if flow["is_traced"] else f"{flow['place']} (UNKNOWN)"
