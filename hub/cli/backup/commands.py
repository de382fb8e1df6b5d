"""[edge] ``hub backup``: its commands in their order."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from hub.cli.backup.look import ls, prune, verify
from hub.cli.backup.run import run


class BackupGroup(TyperGroup):
    """``hub backup`` without the name of a command is ``hub backup run``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args[:1] and (args[0] in self.commands or args[0] in ("--help", "-h"))
        return super().parse_args(ctx, args if named else ["run", *args])


app = typer.Typer(
    cls=BackupGroup,
    help="Backups of topics, schemas and groups: save what is new, list runs, verify, prune. "
    "`run` may be left out.",
    rich_markup_mode=None,
    epilog="Example: hub backup run --to /backup/hub && hub backup verify --from /backup/hub",
)
app.command("run")(run)
app.command("ls")(ls)
app.command("verify")(verify)
app.command("prune")(prune)
