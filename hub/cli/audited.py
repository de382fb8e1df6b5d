"""[edge] Commands that change something, in the access log.

``LOGGED`` names them once; ``with_log`` wraps them when they are loaded. The record with which a change
begins is in Kafka before the change, or the command ends with HUB-3094. Options of a command are logged by
name, without their values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import typer

from hub.access_log.actions import LoggedAction, Outcome
from hub.cli.context import load_settings
from hub.cli.terminal.output import note
from hub.errors import HubError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.access_log.entry import Entry
    from hub.access_log.writer import AccessLog
    from hub.config import Settings


@dataclass(frozen=True, slots=True)
class LoggedCommand:
    """A command that changes something. ``kind``: of its object, which the parameter ``named`` names.
    ``plans``: it calls ``planned`` before its first step, so that the first record has the plan.
    ``only_with``: the option without which it changes nothing."""

    action: LoggedAction
    kind: str = "hub"
    named: str = ""
    plans: bool = False
    only_with: str = ""


def _on(action: LoggedAction, kind: str, *commands: str, named: str = "name") -> dict[str, LoggedCommand]:
    return {each: LoggedCommand(action, kind, named) for each in commands}


def _planned(action: LoggedAction, *commands: str) -> dict[str, LoggedCommand]:
    return {each: LoggedCommand(action, plans=True) for each in commands}


# Commands that the server carries out are logged there.
LOGGED: Final[Mapping[str, LoggedCommand]] = {
    **_planned(LoggedAction.topic_change, "topic apply"),
    **_planned(LoggedAction.schema_change, "schema apply"),
    **_planned(LoggedAction.connector_change, "connector apply"),
    **_planned(LoggedAction.access_change, "access apply"),
    "topic repair": LoggedCommand(LoggedAction.topic_change, "topic", "topic", plans=True),
    "group reset": LoggedCommand(LoggedAction.group_change, "group", "group", plans=True),
    **_on(LoggedAction.mirror_change, "mirror", "mirror apply", named="names"),
    **_on(
        LoggedAction.mirror_change,
        "mirror",
        *("mirror import", "mirror pause", "mirror resume", "mirror drop", "mirror drill"),
        *("mirror switchover", "mirror failover", "mirror failback", "mirror promote", "mirror translate"),
    ),
    "mirror rehearse": LoggedCommand(LoggedAction.mirror_change, "mirror", "name", only_with="now"),
    **_on(LoggedAction.schema_change, "subject", "schema register", "schema delete", named="subject"),
    **_on(LoggedAction.schema_change, "subject", "schema level", named="subject"),
    **_on(LoggedAction.schema_change, "hub", "schema restore", "schema rebuild", named=""),
    **_on(LoggedAction.records_write, "topic", "topic publish", named="topic"),
    **_on(
        LoggedAction.connector_change,
        "connector",
        *("connector pause", "connector resume", "connector restart", "connector offsets reset"),
    ),
    **_on(LoggedAction.connector_change, "plugin", "connector add-plugin", named="coordinate"),
    **_on(LoggedAction.connector_change, "topic", "connector truncated", named="topic"),
    **_on(LoggedAction.dead_letter_change, "topic", "dlq repair", "dlq replay", "dlq dismiss", named="topic"),
    **_on(LoggedAction.view_change, "view", "view replay-late", named="view"),
    **_on(
        LoggedAction.outbox_change, "outbox", "outbox init", "outbox retry", "outbox forget", named="table"
    ),
    **_on(LoggedAction.sink_change, "sink", "sink pause", "sink resume", "sink test"),
    **_on(LoggedAction.lake_change, "topic", "lake maintain", named="patterns"),
    **_on(LoggedAction.backup, "topic", "backup run", named="patterns"),
    **_on(LoggedAction.backup, "hub", "backup prune", named=""),
    **_on(LoggedAction.restore, "topic", "restore", named="patterns"),
}
# Options with which a command changes nothing.
_LOOKS: Final = ("dry_run", "sql")


@dataclass
class _CommandLog:
    """The log of the running command. ``started``: its first record, once Kafka has it."""

    log: AccessLog
    entry: Entry
    started: Entry | None = None

    def begin(self, **detail: Any) -> None:
        """Log that the change begins. Raises NotLogged."""
        from concurrent.futures import TimeoutError as Late
        from dataclasses import replace

        from hub.access_log.writer import NotLogged

        entry = replace(self.entry, at_ms=epoch_ms(), detail={**self.entry.detail, **detail})
        try:
            self.log.change(entry).result(self.log.timeout_s + 1)
        except Late:
            raise NotLogged("Kafka does not answer") from None
        self.started = entry

    def end(self, result: Outcome, **detail: Any) -> None:
        """Log the result of a change that began, or why one did not begin. Never raises."""
        if self.started is None and result is Outcome.ok:
            self.log.stop()
            return  # nothing to change
        self.log.result((self.started or self.entry).then(result, epoch_ms(), **detail))
        self.log.stop()
        if self.log.state().waiting:
            note(f"The result of this command is not in the access log: {self.log.state().trouble}")


_CURRENT: ContextVar[_CommandLog | None] = ContextVar("command_log", default=None)


def planned(steps: Sequence[object]) -> None:
    """Log the steps of a plan before the first of them is carried out. Raises NotLogged (HUB-3094)."""
    current = _CURRENT.get()
    if current is not None and steps:
        current.begin(plan=[str(each) for each in steps], steps=len(steps))


def with_log(path: str, command: Any) -> None:
    """Let a command, or all commands below it, write the access log. ``path``: its words, such as
    ``topic apply``."""
    for name, inner in getattr(command, "commands", {}).items():
        with_log(f"{path} {name}", inner)
    spec = LOGGED.get(path)
    if spec is not None and command.callback is not None:
        command.callback = _logged(path, spec, command.callback)


def _logged(path: str, spec: LoggedCommand, callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def run(*args: Any, **given: Any) -> Any:
        settings = load_settings()
        looks = any(given.get(each) for each in _LOOKS) or (spec.only_with and not given.get(spec.only_with))
        if not settings.writes_access_log or looks:
            return callback(*args, **given)
        with _log_of(settings, path, spec, given):
            return callback(*args, **given)

    return run


@contextmanager
def _log_of(settings: Settings, path: str, spec: LoggedCommand, given: Mapping[str, Any]) -> Iterator[None]:
    from hub.access_log.entry import Entry, Who, new_id
    from hub.cli.http import account

    named = given.get(spec.named)
    name = ", ".join(map(str, named)) if isinstance(named, list | tuple) else str(named or "")
    options = sorted(each for each, value in given.items() if value and each not in (spec.named, "output"))
    user, _, machine = account().partition("@")
    who = Who(user, "cli", machine)
    detail = {"command": f"hub {path}", "options": options}
    entry = Entry(spec.action, Outcome.started, who, epoch_ms(), spec.kind, name, new_id(), detail)
    current = _CommandLog(open_log(settings), entry)
    before = _CURRENT.set(current)
    try:
        if not spec.plans:
            current.begin()
        yield
    except typer.Exit as ended:
        current.end(Outcome.failed if ended.exit_code else Outcome.ok, exit_code=ended.exit_code)
        raise
    except BaseException as error:
        code = error.code if isinstance(error, HubError) else type(error).__name__
        current.end(Outcome.failed, error=code)
        raise
    else:
        current.end(Outcome.ok)
    finally:
        _CURRENT.reset(before)


def open_log(settings: Settings) -> AccessLog:
    """Start the log of this process. Raises ConfigError."""
    from hub.access_log.chain import LogSigner
    from hub.access_log.writer import AccessLog
    from hub.home_key import make_key
    from hub.kafka import own_cluster

    log = AccessLog(
        own_cluster(settings),
        LogSigner(make_key(settings.home)),
        "cli",
        settings.replication_factor,
        settings.access_log_days,
        settings.kafka_timeout_s,
    )
    log.start()
    return log
