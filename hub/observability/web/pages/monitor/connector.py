"""[core] Page of one connector: its tasks with their traces, its topics, lag and settings; and the plan of an
action.

An action is shown before it is done: ``?do=pause`` has its steps, and the form that carries them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hub.errors import NotFound
from hub.observability.lag.consumers import LagRow

ACTIONS: Final[Mapping[str, str]] = {
    "pause": "Pause",
    "resume": "Resume",
    "restart": "Restart",
    "restart-failed": "Restart what failed",
}
_EFFECTS: Mapping[str, str] = {
    "pause": "It reads and writes nothing until it is resumed. A replication slot keeps the "
    "database's WAL meanwhile.",
    "resume": "It goes on where it was.",
    "restart": "It stops for a moment and goes on where it was.",
    "restart-failed": "What failed begins again where it was; the rest is not touched.",
}


@dataclass(frozen=True, slots=True)
class ConnectorTask:
    """A task; ``trace`` is the whole trace of one that failed."""

    id: int
    state: str
    worker: str
    trace: str


@dataclass(frozen=True, slots=True)
class ConnectorDetail:
    """A connector as Connect has it. ``settings``: (key, value), secrets hidden.
    ``owner``: of connectors.yaml."""

    name: str
    class_name: str
    state: str
    worker: str
    trace: str
    tasks: tuple[ConnectorTask, ...]
    settings: tuple[tuple[str, str], ...]
    topics: tuple[str, ...]
    owner: str = ""
    doc: str = ""
    declared: bool = False


@dataclass(frozen=True, slots=True)
class ConnectorAction:
    """An action with its steps; without steps there is nothing to do."""

    name: str
    label: str
    steps: tuple[str, ...]
    effect: str


@dataclass(frozen=True, slots=True)
class ConnectorPage:
    """Values of the page. ``lag``: of a sink's consumer group, by topic."""

    detail: ConnectorDetail
    lag: tuple[LagRow, ...]
    actions: tuple[tuple[str, str], ...]
    action: ConnectorAction | None


def connector_page(
    detail: ConnectorDetail, rows: Sequence[LagRow], action: str = "", may_operate: bool = True
) -> ConnectorPage:
    """Return the page. ``rows``: every measured reader. Raises NotFound for an unknown action."""
    group = f"connect-{detail.name}"
    actions = tuple((name, label) for name, label in ACTIONS.items() if planned(name, detail).steps)
    return ConnectorPage(
        detail,
        tuple(row for row in rows if row.kind == "group" and row.name == group),
        actions if may_operate else (),
        planned(action, detail) if action else None,
    )


def planned(action: str, detail: ConnectorDetail) -> ConnectorAction:
    """Return the steps of an action. Raises NotFound."""
    if action not in ACTIONS:
        raise NotFound(f'there is no action "{action[:30]}"', hint=f"one of: {', '.join(ACTIONS)}")
    parts = [("connector", detail.state), *((f"task {task.id}", task.state) for task in detail.tasks)]
    if action == "pause":
        steps = [f"{part}: {state} → PAUSED" for part, state in parts if state not in ("PAUSED", "STOPPED")]
    elif action == "resume":
        resting = detail.state in ("PAUSED", "STOPPED")
        steps = [f"{part}: {state} → RUNNING" for part, state in parts] if resting else []
    elif action == "restart":
        resting = detail.state in ("PAUSED", "STOPPED")
        steps = [] if resting else [f"{part} is restarted ({state})" for part, state in parts]
    else:
        steps = [f"{part} is restarted ({state})" for part, state in parts if state == "FAILED"]
    return ConnectorAction(action, ACTIONS[action], tuple(steps), _EFFECTS[action])
