"""[core] The plan: declared connectors and what Connect has → steps, refusals and cautions; drift is the same
plan.

Connectors that the file does not name are kept, and only deleted by name. Values that may be secrets are not
shown, and a state is only changed where the file says one: pausing is otherwise left to operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hub.connectors.connectors_file import State, is_secret_key

HIDDEN = "(hidden)"
_LONGEST = 60
_OF_CONNECT: Mapping[str, State] = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "stopped"}


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared connector, ready for Connect. ``state`` None: operators decide."""

    config: Mapping[str, str]
    state: State | None = None


@dataclass(frozen=True, slots=True)
class ActualConnector:
    """A connector as Connect has it. ``state`` is Connect's word; ``tasks``: (id, state, trace)."""

    name: str
    config: Mapping[str, str]
    state: str
    worker: str = ""
    tasks: tuple[tuple[int, str, str], ...] = ()
    trace: str = ""

    @property
    def target(self) -> State:
        """The state that somebody asked for; a connector that failed was to run."""
        return _OF_CONNECT.get(self.state, "running")


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting before and after; None: not set. Values are as they may be shown."""

    key: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.key}: {self.after}"
        return f"{self.key}: {self.before} → {'not set' if self.after is None else self.after}"


@dataclass(frozen=True, slots=True)
class CreateConnector:
    name: str
    config: Mapping[str, str] = field(repr=False)
    state: State = "running"

    def __str__(self) -> str:
        how = "" if self.state == "running" else f", {self.state}"
        return f"+ connector {self.name}: {self.config['connector.class']}, {len(self.config)} settings{how}"


@dataclass(frozen=True, slots=True)
class ChangeConnector:
    name: str
    changes: tuple[SettingChange, ...]
    config: Mapping[str, str] = field(repr=False)

    def __str__(self) -> str:
        return f"~ connector {self.name}: " + "; ".join(map(str, self.changes))


@dataclass(frozen=True, slots=True)
class SetState:
    name: str
    before: State
    after: State

    def __str__(self) -> str:
        return f"~ connector {self.name}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    name: str

    def __str__(self) -> str:
        return f"- connector {self.name}: deleted; its topics stay, and its offsets too"


ConnectorStep = CreateConnector | ChangeConnector | SetState | DeleteConnector


@dataclass(frozen=True, slots=True)
class ConnectorRefusal:
    """An impossible step, its place in the file, and the way out."""

    connector: str
    message: str
    where: str = ""
    key: str = ""
    hint: str = ""

    def __str__(self) -> str:
        at = f"{self.where}: " if self.where else ""
        hint = f"\n  Hint: {self.hint}" if self.hint else ""
        return f'✗ {at}connector "{self.connector}": {self.message}{hint}'


@dataclass(frozen=True, slots=True)
class ConnectorPlan:
    """Steps in their order. ``kept``: connectors of the cluster that the file does not name."""

    steps: tuple[ConnectorStep, ...] = ()
    refusals: tuple[ConnectorRefusal, ...] = ()
    cautions: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConnectorDrift:
    """One difference between the file and Connect; ``way`` resolves it."""

    connector: str
    setting: str
    file: str | None
    cluster: str | None
    way: str


def plan(
    declared: Mapping[str, Declared],
    actual: Mapping[str, ActualConnector],
    refusals: Sequence[ConnectorRefusal] = (),
    cautions: Sequence[str] = (),
    destroy: Collection[str] = (),
) -> ConnectorPlan:
    """Return the plan. ``destroy``: names to delete, of connectors that the file does not name."""
    steps: list[ConnectorStep] = []
    refused = list(refusals)
    for name, wanted in sorted(declared.items()):
        current = actual.get(name)
        if current is None:
            steps.append(CreateConnector(name, wanted.config, wanted.state or "running"))
            continue
        if changes := changes_of(current.config, wanted.config):
            steps.append(ChangeConnector(name, changes, wanted.config))
        if wanted.state is not None and wanted.state != current.target:
            steps.append(SetState(name, current.target, wanted.state))
    for name in sorted(destroy):
        if name in declared:
            refused.append(ConnectorRefusal(name, "is in the file", hint="remove it there first"))
        elif name not in actual:
            refused.append(ConnectorRefusal(name, "does not exist", hint="hub connector ls lists all"))
        else:
            steps.append(DeleteConnector(name))
    kept = tuple(sorted(actual.keys() - declared.keys() - set(destroy)))
    return ConnectorPlan(tuple(steps), tuple(refused), tuple(cautions), kept)


def changes_of(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[SettingChange, ...]:
    """Return the differences of two configs, by key. Connect adds ``name`` by itself."""
    keys = sorted((before.keys() | after.keys()) - {"name"})
    return tuple(
        SettingChange(key, shown(key, before.get(key)), shown(key, after.get(key)))
        for key in keys
        if before.get(key) != after.get(key)
    )


def shown(key: str, value: str | None) -> str | None:
    """Return a value as it may be shown: secrets only where they are references, long texts cut.

    >>> shown("database.password", "s3cret"), shown("database.password", "${env:PW}"), shown("a", None)
    ('(hidden)', '"${env:PW}"', None)
    """
    if value is None:
        return None
    if is_secret_key(key) and "${" not in value:
        return HIDDEN
    return f'"{value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"}"'


def drift(made: ConnectorPlan) -> tuple[ConnectorDrift, ...]:
    """Return the differences that the plan would remove, and connectors that only the cluster has."""
    drifts: list[ConnectorDrift] = []
    apply = "hub connector apply"
    for step in made.steps:
        if isinstance(step, CreateConnector):
            drifts.append(ConnectorDrift(step.name, "(connector)", "declared", None, apply))
        elif isinstance(step, ChangeConnector):
            drifts += [
                ConnectorDrift(step.name, each.key, each.after, each.before, apply) for each in step.changes
            ]
        elif isinstance(step, SetState):
            drifts.append(ConnectorDrift(step.name, "(state)", step.after, step.before, apply))
    for name in made.kept:
        way = f"declare it, or hub connector apply --destroy {name}"
        drifts.append(ConnectorDrift(name, "(connector)", None, "not in the file", way))
    return tuple(drifts)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text of Connect without the values of secrets.

    >>> redacted("login failed for s3cret", ["s3cret"])
    'login failed for (hidden)'
    """
    for value in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(value, HIDDEN) if len(value) >= 4 else text
    return text
