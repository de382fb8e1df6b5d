"""[edge] ``hub webhook``: what other systems send to ``POST /hooks/NAME``
(docs/how-to/receive-webhooks.md)."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import unreachable
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError, ConfigError, PeerError

app = typer.Typer(
    help="Webhooks: signed requests of other systems, as events of topics.",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Examples: hub webhook ls; hub webhook send github event.json",
)


@app.command("ls")
def ls(output: OutputOption = Output.table) -> None:
    """List the webhooks of webhooks.yaml, with their paths, and what is missing. Exit code 1: one cannot be
    used.

    Example: hub webhook ls
    """
    from hub.topics.webhooks.webhooks_file import WEBHOOKS_FILE, load_webhooks, webhook_of

    path = load_settings().project / WEBHOOKS_FILE
    if not path.exists():
        raise ConfigError(
            f"there is no {WEBHOOKS_FILE}", where=f"{path}",
            hint="docs/how-to/receive-webhooks.md has an example",
            code="HUB-1327",
        )  # fmt: skip
    entries, wrong = load_webhooks(path)
    rows: list[dict[str, Any]] = []
    for name, entry in entries.items():
        try:
            webhook_of(name, entry, os.environ)
            state = "ready"
        except PeerError as error:
            state = error.message
        rows.append(
            {
                "webhook": name,
                "path": f"/hooks/{name}",
                "topic": entry.topic,
                "scheme": entry.verify.scheme,
                "owner": entry.owner or "",
                "state": state,
            }
        )
    rows += [{"webhook": name or "all", "state": f"{error}"} for name, error in wrong.items()]
    show(rows, output, ("webhook", "path", "topic", "scheme", "owner", "state"))
    if any(row["state"] != "ready" for row in rows):
        raise typer.Exit(1)


@app.command("send")
def send(
    name: Annotated[str, typer.Argument(help="The webhook, by its name in webhooks.yaml")],
    file: Annotated[Path, typer.Argument(help="The body: a file with JSON", exists=True, dir_okay=False)],
    delivery: Annotated[
        str | None, typer.Option("--delivery", help="Id of the delivery; the same id again is written once")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="A further header, as NAME: VALUE")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Sign a file as the sender would, send it to the hub's server, and show the answer: a trial of the whole
    way.

    The secret is read from the variable that webhooks.yaml names, in this shell.

    Example: hub webhook send github event.json -H "X-GitHub-Event: push"
    """
    import httpx2

    from hub.topics.webhooks.signatures import signed_headers
    from hub.topics.webhooks.webhooks_file import WEBHOOKS_FILE, entry_named, load_webhooks, webhook_of

    settings = load_settings()
    entries, wrong = load_webhooks(settings.project / WEBHOOKS_FILE)
    if name in wrong:
        raise wrong[name]
    webhook = webhook_of(name, entry_named(name, entries), os.environ)
    body = file.read_bytes()
    headers = {"Content-Type": "application/json", **_headers(header or [])}
    headers |= signed_headers(webhook.verification, body, time.time(), delivery or str(uuid.uuid4()))
    url = f"{settings.url}/hooks/{name}"
    try:
        answer = httpx2.post(url, content=body, headers=headers, timeout=settings.kafka_timeout_s * 2)
    except httpx2.HTTPError as error:
        raise unreachable(settings.url, error) from None
    lines = (
        answer.json() if "ndjson" not in answer.headers.get("content-type", "") else {"answer": answer.text}
    )
    show_one({"status": answer.status_code, **lines}, output)
    if answer.status_code >= 300:
        raise typer.Exit(1)
    note(f"Look at it: {settings.url}/topics/{webhook.shape.topic}")


def _headers(given: list[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise CallerError(f'"{each}" is not a header', hint='write it as "NAME: VALUE"', code="HUB-1326")
        found[name.strip()] = value.strip()
    return found
