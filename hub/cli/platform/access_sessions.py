"""[edge] ``hub access session``: list and end sessions of people, at the running server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.errors import CallerError

app = typer.Typer(
    help="Sessions of people who have signed in on the page.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub access session ls; hub access session revoke --user ana",
)


@app.command()
def ls(output: OutputOption = Output.table) -> None:
    """List sessions: your own, for admins of the hub those of everybody.

    Example: hub access session ls -o json
    """
    from hub.observability.format import iso

    rows: list[dict[str, Any]] = http.get("/api/access/sessions")
    if output is Output.table:
        rows = [
            {
                "id": each["id"],
                "user": each["name"],
                "signed in by": each["way"],
                "from": each["address"],
                "since": iso(each["started_at_s"] * 1000),
                "until": iso(each["ends_at_s"] * 1000),
            }
            for each in rows
        ]
    show(rows, output)


@app.command()
def revoke(
    id: Annotated[str | None, typer.Argument(help="Its id, as ls shows it.")] = None,
    user: Annotated[str | None, typer.Option(help="End all sessions of this user instead.")] = None,
) -> None:
    """End a session, or all of a user: at once, with their open streams.

    Example: hub access session revoke --user ana
    """
    if (id is None) == (user is None):
        raise CallerError("name one session, or --user", hint="hub access session ls", code="HUB-1000")
    ids = (
        [id]
        if id is not None
        else [each["id"] for each in http.get("/api/access/sessions") if each["name"] == user]
    )
    for each in ids:
        gone = http.delete(f"/api/access/sessions/{each}")
        note(f"Ended a session of {gone['name']} from {gone['address']}.")
    if not ids:
        note(f"{user} has no sessions.")
