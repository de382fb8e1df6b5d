"""[edge] Context of the commands of mirrors: their options, the mirrors file and its clusters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import note
from hub.errors import CallerError, NotFound, PeerError

if TYPE_CHECKING:
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.clusters.control_state import ControlState
    from hub.replication.config.mirrors import MirrorsFile
    from hub.replication.ownership.failover import Control
    from hub.replication.ownership.links import Link

EXIT_REFUSED, EXIT_CHANGES = 1, 2


current_file: ContextVar[MirrorsFile | None] = ContextVar(
    "current_file", default=None
)  # the file that this call is about


FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The mirrors. Default: mirrors.yaml of the project")
]


NameArgument = Annotated[str, typer.Argument(metavar="MIRROR", help="Its name in mirrors.yaml")]


NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="MIRROR", help="Only these. Default: all of the file")
]


WaitOption = Annotated[float, typer.Option(min=1, help="Longest wait for one step, in seconds")]


TypedNameOption = Annotated[
    str | None, typer.Option("--name", metavar="MIRROR", help="Confirm with the name instead of typing it")
]


TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="PATTERN", help="Only the topics of this pattern (repeatable)"),
]


DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show steps and report, as hub mirror drill does; change nothing")
]


@dataclass
class World:
    """The file and its clusters, as one call of a command has them."""

    path: Path
    file: MirrorsFile
    clusters: dict[str, ClusterHandle]

    def control(self) -> Control:
        """Return the joined owners and operations of all clusters that answer."""
        from hub.replication.clusters.control_state import joined

        return joined(board.control for board in self.boards().values())

    def boards(self) -> dict[str, ControlState]:
        """Return the control states of the clusters that answer."""
        from hub.replication.clusters.readers import read_control_state

        control_states: dict[str, ControlState] = {}
        for name, reached in self.clusters.items():
            try:
                control_states[name] = read_control_state(reached, status=False)
            except PeerError as error:
                note(f"! cluster {name} does not answer: {error.message}")
        return control_states

    def link(self, name: str, *, back: bool = False) -> Link:
        """Return a mirror of the file; with ``back``, its implicit way back."""
        from hub.replication.ownership.links import declared_link, links

        if back and (found := links(self.file).get(name)) is not None:
            return found
        return declared_link(self.file, name, str(self.path))

    def seen_by(self, link: Link) -> World:
        """Return the clusters as a link sees them."""
        from hub.replication.clusters.renaming.link_view import seen_by

        return replace(self, clusters=seen_by(link, self.clusters))

    def chosen(self, names: Sequence[str] | None, *, target: bool = False) -> list[Link]:
        """Return the named mirrors, or all of the file whose ends this process may connect to; with
        ``target`` only the target counts. A note names those that are left out. Raises PeerError (HUB-3623)
        for a named one.
        """
        found = []
        for link in [self.link(name, back=True) for name in (names or self.file.mirrors)]:
            ends = (link.target,) if target else (link.target, link.source)
            closed = [end for end in ends if self.clusters[end].closed]
            if closed and not names:
                note(f"! {link.name}: left out, {closed[0]} accepts connections only from inside")
                continue
            for end in closed:
                self.clusters[end].check_open()
            found.append(link)
        return found


def open_file(file: Path | None) -> tuple[Path, MirrorsFile]:
    """Return the path and content of the mirrors file. Raises NotFound, ConfigError."""
    from hub.replication.config.load_mirrors import load

    path = file or load_settings().project / "mirrors.yaml"
    if not path.exists():
        raise NotFound(
            f'file "{path}" does not exist', hint="write one (docs/reference/mirrors.md), or name it: -f FILE"
        )
    return path, load(path)


def open_world(file: Path | None) -> World:
    from hub.replication.clusters.clusters import own_environ, reach_all
    from hub.replication.ownership.links import checked

    path, loaded = open_file(file)
    current_file.set(loaded)
    settings = load_settings()
    environ = own_environ(settings)
    return World(path, checked(loaded), reach_all(loaded, environ, path.parent, settings.kafka_timeout_s))


def confirm_name(name: str, typed: str | None, what: str) -> None:
    """Ask the user to type the name, because the next step cannot be undone."""
    if typed is None:
        if not sys.stdin.isatty():
            raise CallerError(f"this would {what}: say the name again with --name {name}", code="HUB-1606")
        typed = typer.prompt(f"This would {what}. Type the mirror's name to continue", err=True)
    if typed != name:
        raise CallerError(f'"{typed}" is not "{name}": nothing was done', code="HUB-1606")
