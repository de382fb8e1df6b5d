"""[shell] Read what Connect has, let it validate what is declared, and carry a plan out step by step.

Nothing is carried out while something is refused. Every step is idempotent: the next apply completes one that
was interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, assert_never

from hub.config import Settings
from hub.connectors.connectors_file import Connectors, State
from hub.connectors.plan import (
    ActualConnector,
    ChangeConnector,
    ConnectorPlan,
    ConnectorRefusal,
    ConnectorStep,
    CreateConnector,
    Declared,
    DeleteConnector,
    SetState,
    plan,
)
from hub.connectors.rendering import RenderContext, covers, render
from hub.connectors.validation import missing_plugins, refusals_of, unknown_settings
from hub.supervisor import environment_of_process
from hub.topics.tree.tree import TopicTree, inherited, load


class ConnectPort(Protocol):
    """Calls to Connect that plans need; ``connect_client.ConnectClient`` makes them."""

    def connectors(self) -> Mapping[str, ActualConnector]: ...

    def plugins(self) -> Collection[Mapping[str, str]]: ...

    def validate(self, class_name: str, config: Mapping[str, str]) -> Any: ...

    def create(self, name: str, config: Mapping[str, str], state: State) -> None: ...

    def change(self, name: str, config: Mapping[str, str]) -> None: ...

    def set_state(self, name: str, state: State) -> None: ...

    def delete(self, name: str) -> None: ...


@dataclass(frozen=True)
class Inputs:
    """Inputs of a plan besides Connect's state. ``environment``: variables of the worker; None: not known."""

    file: Connectors
    context: RenderContext
    environment: Mapping[str, str] | None = None
    own_environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def secrets(self) -> list[str]:
        """Return the values of secrets as far as they are known here, to keep them out of messages."""
        known = {**(self.environment or {}), **self.own_environment}
        return [known[name] for name in self.file.variables if known.get(name)]

    def config(self, name: str) -> dict[str, str]:
        return render(name, self.file.by_name[name], self.context)


def inputs_of(settings: Settings, file: Connectors) -> Inputs:
    """Return the inputs of a project. Raises ConfigError for a topics.yaml that cannot be used."""
    path = settings.project.expanduser() / "topics.yaml"
    factor = settings.replication_factor
    topics = load(path, factor).topics if path.exists() else TopicTree(()).topics
    patterns = {pattern for spec in file.by_name.values() for pattern in spec.topics}
    above = {each: inherited(path if path.exists() else None, each, factor) for each in patterns}
    context = RenderContext(topics, settings.registry_url or settings.url, factor, above)
    return Inputs(file, context, worker_environment(settings))


def worker_environment(settings: Settings) -> Mapping[str, str] | None:
    """Return the variables of the embedded worker that runs;
    None if another one is asked, or none runs here."""
    return environment_of_process(settings.home, "connect") if settings.runs_connect else None


def make_plan(inputs: Inputs, connect: ConnectPort, destroy: Collection[str] = ()) -> ConnectorPlan:
    """Return the plan, validated by Connect. Raises as ``ConnectPort`` does."""
    file = inputs.file
    refused, cautions = check(inputs, connect, file.by_name)
    declared = {name: Declared(inputs.config(name), spec.state) for name, spec in file.by_name.items()}
    cautions += [
        f'connector "{name}" ({spec.owner or "no owner"}): no topic of topics.yaml fits '
        f"{', '.join(spec.topics)}; it makes "
        f"topics with the settings of the node above"
        for name, spec in file.by_name.items()
        if spec.direction == "source"
        and not any(covers(spec.topics, each.name) for each in inputs.context.topics)
    ]
    return plan(declared, connect.connectors(), refused, cautions, destroy)


def check(
    inputs: Inputs, connect: ConnectPort, names: Collection[str]
) -> tuple[list[ConnectorRefusal], list[str]]:
    """Return what Connect refuses of these connectors, each with its place in the file, and cautions."""
    file, refused, cautions = inputs.file, [], []
    installed = {str(each.get("class")) for each in connect.plugins()} if names else set()
    for name in sorted(names):
        spec = file.by_name[name]
        refusals = [*_missing_variables(inputs, name), *missing_plugins(file, name, installed)]
        if not refusals:
            answer = connect.validate(spec.java_class, {"name": name, **inputs.config(name)})
            refusals = list(refusals_of(file, name, answer, inputs.secrets))
            cautions += [str(each).removeprefix("✗ ") for each in unknown_settings(file, name, answer)]
        refused += refusals
    return refused, cautions


def _missing_variables(inputs: Inputs, name: str) -> list[ConnectorRefusal]:
    """Return the variables that the running worker does not have."""
    spec, environment = inputs.file.by_name[name], inputs.environment
    if environment is None:
        return []
    found = []
    for variable in sorted(each for each in spec.variables if not environment.get(each)):
        key = next(key for key, value in spec.config.items() if f"${{{variable}}}" in str(value))
        message = f"the worker has no variable {variable}"
        hint = (
            f"set {variable}=… where the hub is started, and start it again (hub down; hub up); "
            "or name a file below "
            "`secrets`"
        )
        found.append(ConnectorRefusal(name, message, inputs.file.place(name, "config", key), key, hint))
    return found


def carry_out(
    made: ConnectorPlan, connect: ConnectPort, say: Callable[[ConnectorStep], None] = lambda _step: None
) -> None:
    """Carry out every step; ``say`` hears of each that is done. Raises as ``ConnectPort`` does."""
    for step in made.steps:
        _do(step, connect)
        say(step)


def _do(step: ConnectorStep, connect: ConnectPort) -> None:
    match step:
        case CreateConnector():
            connect.create(step.name, step.config, step.state)
        case ChangeConnector():
            connect.change(step.name, step.config)
        case SetState():
            connect.set_state(step.name, step.after)
        case DeleteConnector():
            connect.delete(step.name)
        case _:
            assert_never(step)
