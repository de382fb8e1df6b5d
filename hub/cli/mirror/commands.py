"""[edge] ``hub mirror``: topic trees in other clusters; planned, watched, verified, and handed over.

Plans and status work without a worker; ``hub mirror run`` is one (``hub up`` starts it where there is a
mirrors.yaml).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from hub.cli.mirror import report
from hub.cli.mirror.context import current_file
from hub.cli.mirror.control import drop, pause, resume
from hub.cli.mirror.failover import drill, failback, failover, left_behind, promote, switchover
from hub.cli.mirror.import_mm2 import import_copies
from hub.cli.mirror.planning import apply, list_mirrors, plan
from hub.cli.mirror.rehearsal import rehearse
from hub.cli.mirror.status import run, status
from hub.cli.mirror.translate import translate
from hub.cli.mirror.verification import verify
from hub.errors import PeerError

if TYPE_CHECKING:
    from hub.replication.config.mirrors import MirrorsFile

_CLOSED = "HUB-3623"  # clusters/closed_cluster.py, which takes Kafka's client to import


class _NamesClusters(TyperGroup):
    """A cluster that does not answer is called as the file calls it, not by its address alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        self._asked = shlex.join(["hub", "mirror", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PeerError as error:
            if error.code == _CLOSED:
                error.hint = f"{error.hint}: {self._asked}"
                raise
            raise _named(error, current_file.get()) from error


def _named(error: PeerError, file: MirrorsFile | None) -> PeerError:
    for name, cluster in file.clusters.items() if file is not None else ():
        if f'"{cluster.bootstrap}"' in error.message:
            return PeerError(
                f'cluster "{name}": {error.message}',
                hint=error.hint
                if error.code == "HUB-3016"
                else f"is it up, and is {cluster.bootstrap} its address? When a source is "
                "gone: hub mirror failover",
                code=error.code,
            )
    return error


app = typer.Typer(
    help="Mirrors: topic trees in other clusters, exactly once, with exact offsets both ways.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=_NamesClusters,
    epilog=(
        "Example: hub mirror plan && hub mirror apply && hub mirror run   "
        "Then: hub mirror status nyc-lon; hub mirror verify nyc-lon; hub mirror drill nyc-lon"
    ),
)

# In the order of `--help`.
COMMANDS: dict[str, Callable[..., None]] = {
    "ls": list_mirrors,
    "plan": plan,
    "apply": apply,
    "run": run,
    "status": status,
    "verify": verify,
    "translate": translate,
    "import": import_copies,
    "pause": pause,
    "resume": resume,
    "drop": drop,
    "drill": drill,
    "rehearse": rehearse,
    "switchover": switchover,
    "failover": failover,
    "failback": failback,
    "promote": promote,
    "left-behind": left_behind,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.add_typer(report.app, name="report")
