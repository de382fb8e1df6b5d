"""[edge] ``hub access token``, ``session`` and ``usage``: what people have made, opened and used, at the
running server.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hub.access.personal_tokens import grant_of, shown_grants
from hub.cli import http
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError

tokens = typer.Typer(
    help="Tokens that act as their owner, within grants of their own.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog='Example: hub access token create ci --owner ana --grant "read:shop.**"; hub access token ls',
)


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(help="What the token is for.")],
    owner: Annotated[
        str | None, typer.Option(help="User of access.yaml. Default: the one that HUB_TOKEN names.")
    ] = None,
    expires: Annotated[int, typer.Option(metavar="DAYS", help="Days until it ends, up to 366.")] = 90,
    grant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE:OBJECT",
            help="read:shop.**, read:view:customers or read:hub. May stand several times. "
            "Default: all of the owner's.",
        ),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Make a token and print it, this once. It may do what its owner may, within its own grants.

    Example: hub access token create ci --owner ana --expires 30 --grant "write:shop.orders"
    """
    body = {
        "name": name,
        "owner": owner,
        "expires_days": expires,
        "grants": [grant_of(each) for each in grant or ()],
    }
    made = http.post("/api/access/tokens", body)
    if output is Output.json:
        show_one(made, output)
        return
    note(f'Token "{name}" of {made["owner"]}, for {expires} days; shown this once:')
    print(made["token"])


@tokens.command("ls")
def list_tokens(output: OutputOption = Output.table) -> None:
    """List tokens: your own, for admins of the hub those of everybody.

    Example: hub access token ls -o json
    """
    rows: list[dict[str, Any]] = http.get("/api/access/tokens")
    if output is Output.table:
        rows = [
            {
                "id": each["id"],
                "name": each["name"],
                "owner": each["owner"],
                "may": shown_grants(each["grants"]),
                "expires": _time(each["expires_at_s"]),
                "last used": _time(each["last_used_at_s"]),
            }
            for each in rows
        ]
    show(rows, output)


@tokens.command("revoke")
def revoke_token(id: Annotated[str, typer.Argument(help="Its id, as ls shows it.")]) -> None:
    """Revoke a token: it ends at once, with its open streams.

    Example: hub access token revoke 3f2c9a1b7d04
    """
    gone = http.delete(f"/api/access/tokens/{id}")
    note(f'Revoked "{gone["name"]}" of {gone["owner"]}.')


sessions = typer.Typer(
    help="Sessions of people who have signed in on the page.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub access session ls; hub access session revoke --user ana",
)


@sessions.command("ls")
def list_sessions(output: OutputOption = Output.table) -> None:
    """List sessions: your own, for admins of the hub those of everybody.

    Example: hub access session ls -o json
    """
    rows: list[dict[str, Any]] = http.get("/api/access/sessions")
    if output is Output.table:
        rows = [
            {
                "id": each["id"],
                "user": each["name"],
                "signed in by": each["way"],
                "from": each["address"],
                "since": _time(each["started_at_s"]),
                "until": _time(each["ends_at_s"]),
            }
            for each in rows
        ]
    show(rows, output)


@sessions.command("revoke")
def end_sessions(
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


def usage(output: OutputOption) -> None:
    """Print the rows of ``hub access usage``."""
    answer: dict[str, Any] = http.get("/api/usage")
    if output is Output.json:
        show(answer["rows"], output)
        return
    if not answer["is_on"]:
        note("access.yaml has no quotas: docs/how-to/share-a-hub.md")
        return
    rows = [
        {
            "who": f"{each['kind']} {each['name']}",
            "quota": each["quota"],
            "now": f"{each['now']:.10g}",
            "limit": "unlimited" if each["limit"] is None else f"{each['limit']:.15g}",
            "last hour": f"{each['last_hour']:.15g}",
            "refused": each["refused_last_hour"],
            "set by": each["source"],
        }
        for each in answer["rows"]
    ]
    show(rows, output)
    if answer["left_out"]:
        note(f"{answer['left_out']} more rows are not shown.")
    if not answer["whole"]:
        note("Your own use; everybody's takes the role read with hub: true.")


def _time(seconds: int | None) -> str:
    from hub.times import iso

    return "never" if seconds is None else iso(seconds * 1000)
