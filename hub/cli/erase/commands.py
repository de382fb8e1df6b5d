"""[edge] ``hub erase``: forget a person, at the running server (docs/how-to/forget-a-person.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import orjson
import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError

app = typer.Typer(
    help="Erase a person's fields in every copy of their events (docs/how-to/forget-a-person.md).",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Examples: hub erase plan C-42 --tree crm; hub erase request C-42 --tree crm --reason 'mail 17'",
)

_ROOT = "/api/erasures"
_COLUMNS = ("place", "state", "action", "detail")
PersonArgument = Annotated[str, typer.Argument(help="The person's id, as the field of erasable_by has it")]
IdArgument = Annotated[str, typer.Argument(help="The erasure, as hub erase ls shows it")]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="A topic, or a pattern of topics; may stand several times"),
]
TreeOption = Annotated[str | None, typer.Option("--tree", help="A node of the tree, with everything below")]


@app.command("plan")
def plan(
    person: PersonArgument,
    topic: TopicOption = None,
    tree: TreeOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Show every place that holds a person, what would be done there, and what cannot be erased.

    Example: hub erase plan C-00042 --topic "crm.*"
    """
    found = http.post(f"{_ROOT}/plan", {"person": person, "topics": _topics(topic, tree)})
    _show_places(found, output)


@app.command("request")
def request(
    person: PersonArgument,
    reason: Annotated[str, typer.Option("--reason", help="Why, for the record and the proof")],
    topic: TopicOption = None,
    tree: TreeOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Request an erasure. Nothing is done before a second person approves it.

    Example: hub erase request C-00042 --tree crm --reason "mail of 2026-11-02"
    """
    body = {"person": person, "topics": _topics(topic, tree), "reason": reason, "by": http.account()}
    found = http.post(_ROOT, body)
    _show_places(found, output)
    note(f"Erasure {found['id']} is requested. A second person approves it: hub erase approve {found['id']}")


@app.command("approve")
def approve(id: IdArgument, output: OutputOption = Output.table) -> None:
    """Approve an erasure. It begins after the delay of the setting erase_delay_hours.

    Example: hub erase approve 5f0c2a9be1d4
    """
    found = http.post(f"{_ROOT}/{quote(id, safe='')}/approve", {"by": http.account()})
    show_one(_row(found), output)
    note(f"Until it begins, it can be canceled: hub erase cancel {found['id']}")


@app.command("cancel")
def cancel(id: IdArgument, output: OutputOption = Output.table) -> None:
    """Cancel an erasure before its first step.

    Example: hub erase cancel 5f0c2a9be1d4
    """
    show_one(_row(http.post(f"{_ROOT}/{quote(id, safe='')}/cancel", {"by": http.account()})), output)


@app.command("ls")
def list_erasures(output: OutputOption = Output.table) -> None:
    """List all erasures, oldest first.

    Example: hub erase ls
    """
    columns = ("id", "person", "topics", "status", "requested by", "approved by", "open places", "not erased")
    show([_row(each) for each in http.get(_ROOT)], output, columns)


@app.command("show")
def show_erasure(id: IdArgument, output: OutputOption = Output.table) -> None:
    """Show an erasure with the state of each place: done, waiting, not erased, unknown.

    Example: hub erase show 5f0c2a9be1d4
    """
    found = http.get(f"{_ROOT}/{quote(id, safe='')}")
    if output is Output.table:
        note(f"Erasure {id} of {found['person']} in {', '.join(found['topics'])}: {found['status']}")
    _show_places(found, output)


@app.command("proof")
def proof(
    id: Annotated[str | None, typer.Argument(help="The erasure, as hub erase ls shows it")] = None,
    check: Annotated[
        Path | None, typer.Option("--check", help="Check the signature of a proof in a file instead")
    ] = None,
) -> None:
    """Print the signed report of an erasure as JSON: each place, and how it was verified.

    The key is the one that signs the access log.

    Example: hub erase proof 5f0c2a9be1d4 > proof.json; hub erase proof --check proof.json
    """
    if (id is None) == (check is None):
        raise CallerError("name an erasure, or a file with --check", hint="hub erase ls lists the erasures")
    if check is not None:
        _check(check)
        return
    found = http.get(f"{_ROOT}/{quote(str(id), safe='')}/proof")
    print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


def _check(path: Path) -> None:
    from hub.access_log.chain import LogSigner
    from hub.erasure.proof import signature_holds
    from hub.files import read_text
    from hub.home_key import read_key

    try:
        found = orjson.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise CallerError(
            f'"{path}" cannot be read as a proof: {error}', hint="hub erase proof ID > FILE"
        ) from None
    if not isinstance(found, dict) or not signature_holds(found):
        raise CallerError(
            f'"{path}": the report is not the one that was signed',
            hint="ask for the proof again: hub erase proof ID",
            code="HUB-1842",
        )
    own = read_key(load_settings().home)
    known = own is not None and LogSigner(own).public == found["key"]
    signer = "this home" if known else f"another home, with the key {found['key']}"
    note(f"The report is as it was signed by {signer}.")


def _topics(topics: list[str] | None, tree: str | None) -> list[str]:
    found = [*(topics or ()), *([f"{tree}.**"] if tree else ())]
    if not found:
        raise CallerError("no topics are named", hint="use --topic PATTERN or --tree NODE")
    return found


def _show_places(answer: dict[str, Any], output: Output) -> None:
    if output is Output.json:
        show_one(answer, output)
        return
    rows = [{**each, "place": f"{each['kind']} {each['name']}"} for each in answer["places"]]
    show(rows, output, _COLUMNS)


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    states = [each["state"] for each in answer["places"]]
    return {
        "id": answer["id"],
        "person": answer["person"],
        "topics": ", ".join(answer["topics"]),
        "status": answer["status"],
        "requested by": answer["requested_by"],
        "approved by": answer["approved_by"],
        "open places": sum(each in ("planned", "waiting") for each in states),
        "not erased": sum(each in ("not erased", "unknown") for each in states),
    }
