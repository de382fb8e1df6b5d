"""[edge] ``hub access request`` and ``hub access requests``, at the running server."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError
from hub.times import iso

_ROOT = "/api/access/requests"

requests = typer.Typer(
    help="Requests for access: list, show, approve, refuse, withdraw (docs/how-to/ask-for-access.md).",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub access requests ls; hub access requests approve 5f0c2a9be1d4",
)


class Requested(StrEnum):
    """Object of a request: a role, or a new topic."""

    read = "read"
    write = "write"
    operate = "operate"
    topic = "topic"


IdArgument = Annotated[str, typer.Argument(help="The request, as hub access requests ls shows it.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for the other side and the access log.")]


def request(
    what: Annotated[Requested, typer.Argument(help="A role; or topic, for a new topic.")],
    name: Annotated[
        str,
        typer.Argument(
            metavar="OBJECT", help="shop.orders; shop.** for a node with everything below; view:NAME."
        ),
    ],
    reason: ReasonOption,
    grantee: Annotated[
        str,
        typer.Option("--for", metavar="KIND:NAME", help="user:ana, group:shop or token:ci. Default: you."),
    ] = "",
    days: Annotated[float | None, typer.Option(help="Days until the grant ends. Default: 7.")] = None,
    partitions: Annotated[str, typer.Option(help="Of a new topic.")] = "",
    retention: Annotated[str, typer.Option(help="Of a new topic, such as 7d.")] = "",
    owner: Annotated[str, typer.Option(help="Of a new topic; default: inherited.")] = "",
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of a new topic; may stand several times.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Ask for a grant that ends by itself, or for a new topic. The owner of the node or an admin answers.

    Example: hub access request read shop.orders --days 14 --reason "the report on returns"
    """
    kind, colon, target = grantee.partition(":")
    if grantee and (not colon or kind not in ("user", "group", "token") or not target):
        raise CallerError(
            f'"{grantee[:100]}" is nobody who could get a grant',
            hint="write user:ana, group:shop or token:ci",
        )
    body: dict[str, Any] = {
        "role": None if what is Requested.topic else what,
        "view" if name.startswith("view:") else "topic": name.removeprefix("view:"),
        "reason": reason,
        "days": days,
        "partitions": partitions,
        "retention": retention,
        "owner": owner,
        "config": "\n".join(config or ()),
        "by": http.account(),
    }
    if grantee:
        body |= {"grantee_kind": kind, "grantee": target}
    made = http.post(_ROOT, body)
    show_one(_row(made), output)
    note(f"{_answerers(made)} answers: hub access requests approve {made['id']}")


@requests.command("ls")
def list_requests(
    everything: Annotated[
        bool, typer.Option("--all", help="With those that are over: refused, ended, expired, withdrawn.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """List requests that you made, may answer, or would gain by; oldest first.

    Example: hub access requests ls --all
    """
    over = ("refused", "withdrawn", "expired", "ended")
    found = [each for each in http.get(_ROOT) if everything or each["status"] not in over]
    columns = ("id", "request", "by", "reason", "status", "answers", "until")
    show([_row(each) for each in found] if output is Output.table else found, output, columns)


@requests.command("show")
def show_request(id: IdArgument, output: OutputOption = Output.table) -> None:
    """Show a request: its state, who may answer it, and the difference for a pull request.

    Example: hub access requests show 5f0c2a9be1d4
    """
    found = http.get(f"{_ROOT}/{quote(id, safe='')}")
    if output is Output.json:
        show_one(found, output)
        return
    show_one(_row(found), output)
    if found.get("diff"):
        note("This server cannot write the file, or has not written it yet. The difference:")
        print(found["diff"])


@requests.command("approve")
def approve(
    id: IdArgument,
    reason: Annotated[str, typer.Option("--reason", help="A remark for the requester.")] = "",
    output: OutputOption = Output.table,
) -> None:
    """Approve a request as the owner of its node or as an admin. Nobody approves their own.

    Example: hub access requests approve 5f0c2a9be1d4
    """
    _act(id, "approve", reason, output)


@requests.command("refuse")
def refuse(id: IdArgument, reason: ReasonOption, output: OutputOption = Output.table) -> None:
    """Refuse a request with a reason.

    Example: hub access requests refuse 5f0c2a9be1d4 --reason "use view:orders_public"
    """
    _act(id, "refuse", reason, output)


@requests.command("withdraw")
def withdraw(id: IdArgument, output: OutputOption = Output.table) -> None:
    """Withdraw your own request.

    Example: hub access requests withdraw 5f0c2a9be1d4
    """
    _act(id, "withdraw", "", output)


def _act(id: str, action: str, reason: str, output: Output) -> None:
    body = {"reason": reason, "by": http.account()}
    show_one(_row(http.post(f"{_ROOT}/{quote(id, safe='')}/{action}", body)), output)
    if action == "approve":
        note(f"Its effect follows within seconds: hub access requests show {id}")


def _answerers(answer: dict[str, Any]) -> str:
    return " or ".join([*answer.get("owners", ()), "an admin"])


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": answer["id"],
        "request": answer.get("text", ""),
        "by": answer["requested_by"],
        "reason": answer["reason"],
        "days": answer["days"] if answer["role"] else None,
        "status": answer["status"],
        "answers": f"{answer['answered_by']}: {answer['answer']}".rstrip(": ") or _answerers(answer),
        "until": "" if answer["until_ms"] is None else iso(answer["until_ms"]),
        "state": answer["detail"],
    }
