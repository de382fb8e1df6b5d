"""[edge] ``hub governance``: the report of the running server, and the rules of flows.yaml."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one

app = typer.Typer(
    help="Governance: owners, classified fields, their flows and readers (docs/how-to/govern-data.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub governance report shop --tag PII -o json; hub governance check",
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


@app.command("check")
def check(
    server: Annotated[
        bool,
        typer.Option(
            "--server",
            help="Judge what the running server knows: registered schemas, views that run, backups",
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Check the rules of flows.yaml: which fields with tags may go where. Reads the project's files alone.

    Plans and validations of topics, mirrors, views and sinks make the same check. Exit code 1: a flow is
    refused, or a file cannot be read.

    Example: hub governance check
    """
    from dataclasses import asdict

    from hub.api.masking.flow_gate import judged_files

    if server:
        answer: dict[str, Any] = http.get("/api/governance/flows")
    else:
        judgement = judged_files(load_settings())
        answer = {"is_kept": True, "rules": 0, "violations": (), "unread": ()}
        if judgement is not None:
            answer = {"is_kept": judgement.is_kept, **asdict(judgement)}
    if output is Output.json:
        show_one(answer, output)
    else:
        _show_check(answer, output)
    if not answer["is_kept"]:
        raise typer.Exit(1)


def _show_check(answer: dict[str, Any], output: Output) -> None:
    rows = [
        {
            "rule": each["rule"],
            "result": ("refused" if each["is_refused"] else "warning")
            + ("" if each["flow"]["is_traced"] else ", UNKNOWN"),
            "flow": " → ".join(each["flow"]["steps"]),
            "way out": each["hint"],
        }
        for each in answer["violations"]
    ]
    if rows:
        show(rows, output, ("rule", "result", "flow", "way out"))
    for each in answer["unread"]:
        note(f"{each} cannot be read: its declarations are UNKNOWN.")
    if not answer["rules"]:
        note("There are no rules: flows.yaml has none, or is not there (docs/how-to/govern-data.md).")
    elif not rows and answer["is_kept"]:
        note(f"No flow breaks a rule. Rules: {answer['rules']}.")


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
