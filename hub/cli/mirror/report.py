"""[edge] ``hub mirror report verify``: check the signed report of a failback."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError

_EXIT_CHANGED, _EXIT_UNKNOWN = 1, 2

app = typer.Typer(
    help="Reports of failbacks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub mirror report verify divergence/report.json",
)


@app.callback()
def _reports() -> None:
    """Reports of failbacks: records that a failover left at the old source."""


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(help="report.json, in the folder with its files")],
    trust: Annotated[
        list[str] | None,
        typer.Option("--trust", metavar="KEY", help="Public key of another home; may stand several times."),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Check the signature of a report and the digests of its files.

    Exit code 0: all is as it was signed. 1: something was changed. 2: it is signed by a key that is not
    trusted.

    Example: hub mirror report verify divergence/report.json
    """
    from hub.access_log.chain import LogSigner
    from hub.home_key import read_key
    from hub.replication.operations.divergence.tail_export import differences, signature_holds

    try:
        proof = orjson.loads(file.read_bytes())
        report = proof["report"]
        changed = (
            [*differences(file.parent, report)] if signature_holds(proof) else ["the report was changed"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CallerError(f'file "{file}" is not a report of a mirror: {error}') from None
    key = read_key(load_settings().home)
    trusted = {*(trust or ()), *([] if key is None else [LogSigner(key).public])}
    known = proof["key"] in trusted
    if output is Output.json:
        show_one({**report, "key": proof["key"], "trusted": known, "changed": changed}, output)
    else:
        show(report["files"])
        show_one(
            {name: report[name] for name in ("mirror", "operation", "decision", "by", "made", "records")}
        )
    for each in changed:
        note(f"✗ {each}")
    if not changed and not known:
        note(f"Signed by {proof['key']}, which is not trusted here. If it is the right one: --trust KEY")
    if changed:
        raise typer.Exit(_EXIT_CHANGED)
    if not known:
        raise typer.Exit(_EXIT_UNKNOWN)
