"""[edge] ``hub topic repair``: a new generation of a topic with repaired events; its plan, steps and undo."""

from __future__ import annotations

import getpass
import hashlib
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.audited import planned
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.topic.python_script import script_function
from hub.cli.topic.repairing.repair_rows import plan_rows, report_row, show_plan
from hub.errors import CallerError, Conflict
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.config import Settings
    from hub.kafka import KafkaCluster
    from hub.repairs.beginning import ChangeOrigin
    from hub.repairs.journal import RepairJournal
    from hub.repairs.model import GenerationChange
    from hub.repairs.outcomes import EventChange, EventRepair
    from hub.repairs.plan import RepairPlan
    from hub.repairs.selection import RepairRange
    from hub.schema_registry.client.registry_client import RegistryClient

_ONE = "one of --script, --drop, --set"
ScriptOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:FUNCTION", help="FUNCTION(event, record) returns the event, a list, or None"
    ),
]
DropOption = Annotated[
    str | None, typer.Option(metavar="CONDITION", help="Drop the events that meet this SQL condition")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=SQL", help="Set a field to a SQL expression (repeatable)"),
]
WhereOption = Annotated[
    str | None, typer.Option(metavar="CONDITION", help="With --set: only events that meet this condition")
]
FromOption = Annotated[
    str, typer.Option("--from", metavar="PLACE", help="Begin here: an offset, a time, or how long ago (15m)")
]
ToOption = Annotated[str, typer.Option("--to", metavar="PLACE", help="End before this place")]
PlanOption = Annotated[bool, typer.Option("--plan", help="Show the plan; change nothing")]
UndoOption = Annotated[bool, typer.Option("--undo", help="Bring back the generation before the current one")]
ContinueOption = Annotated[bool, typer.Option("--continue", help="Continue an interrupted change")]
AbortOption = Annotated[
    bool, typer.Option("--abort", help="End a change that has not made the topic again yet")
]
LeaveOption = Annotated[
    bool, typer.Option("--leave-active", help="Leave the positions of groups that have members")
]


@dataclass(frozen=True, slots=True)
class RequestedRepair:
    """Options of a repair. ``since`` and ``until``: texts of the range, "" for the whole topic."""

    topic: str
    script: str | None
    drop: str | None
    sets: tuple[str, ...]
    where: str | None
    since: str
    until: str

    @property
    def is_given(self) -> bool:
        return self.script is not None or self.drop is not None or bool(self.sets)

    def check(self) -> None:
        """Raise CallerError unless exactly one repair is requested."""
        if sum((self.script is not None, self.drop is not None, bool(self.sets))) != 1:
            raise CallerError(f'topic "{self.topic}": the repair is {_ONE}', hint="hub topic repair --help")
        if self.where is not None and not self.sets:
            raise CallerError("--where selects the events of --set", hint="a condition that drops is --drop")

    @property
    def command(self) -> str:
        """Return the equal command."""
        parts = ["hub", "topic", "repair", self.topic]
        options = [("--script", self.script), ("--drop", self.drop), *(("--set", each) for each in self.sets)]
        options += [("--where", self.where), ("--from", self.since), ("--to", self.until)]
        for name, value in options:
            parts += [name, value] if value else []
        return shlex.join(parts)

    def script_place(self) -> tuple[Path, str]:
        """Return the file and the function of ``--script``. Raises CallerError."""
        file, sign, name = (self.script or "").rpartition(":")
        if not sign or not file or not name.isidentifier():
            raise CallerError(
                f'--script "{self.script}" is not FILE.py:FUNCTION',
                hint="such as fix.py:repair, with def repair(event, record)",
            )
        return Path(file), name

    def digest_parts(self) -> list[str]:
        """Return what a plan's digest depends on: the options and the content of the script."""
        if self.script is None:
            return [self.command]
        file, _ = self.script_place()
        try:
            content = file.read_bytes()
        except OSError as error:
            raise CallerError(f'script "{file}" cannot be read: {error.strerror}', code="HUB-1114") from None
        return [self.command, hashlib.sha256(content).hexdigest()]


def repair(
    topic: str,
    script: ScriptOption = None,
    drop: DropOption = None,
    set_: SetOption = None,
    where: WhereOption = None,
    since: FromOption = "",
    until: ToOption = "",
    plan_only: PlanOption = False,
    undo: UndoOption = False,
    resume: ContinueOption = False,
    abort: AbortOption = False,
    leave_active: LeaveOption = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Repair events: a new generation of the topic, from a script or SQL. Shows the plan first. The
    generation before stays readable (hub topic generations), and --undo brings it back.

    The topic is deleted and created again under its name: stop its producers and consumers for that moment.
    Events outside of --from and --to stay as they are. The same command continues a repair that was killed.

    Examples: hub topic repair shop.orders --drop "cents < 0" --plan
    hub topic repair shop.orders --set "cents=cents * 100" --where "currency = 'EUR'" --from 2026-01-31T12:00
    hub topic repair shop.orders --script fix.py:repair --yes
    """
    wanted = RequestedRepair(topic, script, drop, tuple(set_ or ()), where, since, until)
    if sum((undo, resume, abort)) > 1 or ((undo or abort) and wanted.is_given):
        raise CallerError(f"--undo, --continue, --abort and {_ONE} exclude each other")
    session = _Session.open(load_settings(), topic, leave_active, output)
    if abort:
        session.abort(yes)
    elif undo:
        session.undo(plan_only, yes)
    elif resume:
        session.resume(wanted)
    else:
        wanted.check()
        session.repair(wanted, plan_only, yes)


@dataclass
class _Session:
    """One call of the command."""

    settings: Settings
    cluster: KafkaCluster
    registry: RegistryClient
    topic: str
    leave_active: bool
    output: Output

    @classmethod
    def open(cls, settings: Settings, topic: str, leave_active: bool, output: Output) -> _Session:
        from hub.cli.mirror.write_guard import write_refusals
        from hub.cli.topic.tree_file import connect

        cluster, registry = connect(settings)
        if (refused := write_refusals(settings, cluster)(topic)) is not None:
            raise refused
        return cls(settings, cluster, registry, topic, leave_active, output)

    def repair(self, wanted: RequestedRepair, plan_only: bool, yes: bool) -> None:
        """Plan a repair, and carry it out; or continue the same one."""
        from hub.repairs.beginning import begin_repair
        from hub.repairs.journal import read_state
        from hub.repairs.plan import plan_repair, require_possible

        state = read_state(self.cluster, self.topic)
        if state.change is not None and not plan_only:
            self.resume(wanted)
            return
        chosen, events = self._prepared(wanted, None)
        plan = plan_repair(self.cluster, self.topic, events.outcomes, wanted.digest_parts())
        self._show(plan)
        if plan_only:
            return
        require_possible(plan)
        if not plan.changes:
            note("There is nothing to do.")
            return
        self._confirm(f"Make topic {self.topic} again with {plan.changes:,} repaired events?", yes)
        origin = self._origin(wanted.command, plan.digest)
        self._carry_out(lambda journal: begin_repair(journal, chosen, origin), wanted)

    def undo(self, plan_only: bool, yes: bool) -> None:
        """Bring the generation before back."""
        from hub.repairs.beginning import begin_undo, undo_digest, undone_generation
        from hub.repairs.journal import read_state
        from hub.repairs.plan import described_topic

        state = read_state(self.cluster, self.topic)
        base = undone_generation(state, described_topic(self.cluster, self.topic))
        digest = undo_digest(state, base)
        note(f"Generation {base.number} comes back, and events that came after generation {state.current}.")
        note(f"Plan {digest}")
        if plan_only:
            return
        self._confirm(f"Make topic {self.topic} again with generation {base.number}?", yes)
        origin = self._origin(f"hub topic repair {self.topic} --undo", digest)
        self._carry_out(lambda journal: begin_undo(journal, origin), None)

    def resume(self, wanted: RequestedRepair) -> None:
        """Continue the change that is under way."""
        self._carry_out(lambda _journal: None, wanted)

    def abort(self, yes: bool) -> None:
        """End the change that is under way."""
        from hub.repairs.journal import open_journal, require_change
        from hub.repairs.switching import abort
        from hub.topics.tree.apply_lock import one_apply

        factor = self.settings.replication_factor
        self._confirm(f"End the repair of topic {self.topic}?", yes)
        with (
            one_apply(self.cluster, "hub topic repair", replication_factor=factor, say=note),
            open_journal(self.cluster, self.topic, factor) as journal,
        ):
            require_change(journal.state)
            planned([f"abort the repair of topic {self.topic}"])
            abort(self.cluster, journal)
        note(f"The repair of topic {self.topic} is ended. Its events are those of before.")

    def _carry_out(self, begin: Callable[[RepairJournal], None], wanted: RequestedRepair | None) -> None:
        from hub.repairs.journal import open_journal, require_change
        from hub.repairs.switching import Switch
        from hub.topics.tree.apply_lock import one_apply

        factor = self.settings.replication_factor
        with (
            one_apply(self.cluster, "hub topic repair", replication_factor=factor, say=note) as held,
            open_journal(self.cluster, self.topic, factor) as journal,
        ):
            begin(journal)
            require_change(journal.state)
            change = journal.state.change
            assert change is not None
            planned(
                [f"topic {self.topic}: generation {change.target}", change.command, f"plan {change.plan}"]
            )
            switch = Switch(self.cluster, journal, leave_active=self.leave_active, check=held.check, say=note)
            if change.base is None and change.step in ("copy", "hold"):
                switch.outcomes = self._continued(wanted, change).outcomes
            report = switch.run()
        show_one(report_row(self.topic, report), self.output)

    def _continued(self, wanted: RequestedRepair | None, change: GenerationChange) -> EventRepair:
        """Return the repair of a change that still needs it. Raises Conflict for another repair."""
        from hub.topics.tree.confirmed_plans import plan_digest

        hint = f"give the same repair again: {change.command}"
        if wanted is None or not wanted.is_given:
            raise CallerError(f'topic "{self.topic}": its events are not all repaired yet', hint=hint)
        wanted.check()
        if plan_digest([self.topic, change.topic_id, *wanted.digest_parts()]) != change.plan:
            raise Conflict(
                f'topic "{self.topic}": another repair is under way',
                hint=f"{hint}; or end it: --abort",
                code="HUB-1942",
            )
        return self._prepared(wanted, change)[1]

    def _prepared(
        self, wanted: RequestedRepair, change: GenerationChange | None
    ) -> tuple[RepairRange, EventRepair]:
        """Return the range and the repair. ``change``: the one that is continued, with its range."""
        from hub.repairs.outcomes import EventRepair
        from hub.repairs.plan import described_topic
        from hub.repairs.selection import RepairRange, range_of
        from hub.schema_registry.encryption.serving import use_remote_keys
        from hub.topics.tree.erasable import seal_by_tree
        from hub.topics.tree.tree import LiveTree

        described_topic(self.cluster, self.topic)
        use_remote_keys(self.settings)
        seal_by_tree(self.settings.project, self.settings.erase_kek)
        spec = LiveTree(self.settings.project / "topics.yaml").find(self.topic)
        if change is None:
            chosen = range_of(self.cluster, self.topic, wanted.since, wanted.until, epoch_ms())
        else:
            chosen = RepairRange.of_change(self.topic, change)
        key = None if spec is None else spec.key
        return chosen, EventRepair(self.topic, self.registry, self._event_change(wanted), key, chosen.selects)

    def _event_change(self, wanted: RequestedRepair) -> EventChange:
        if wanted.script is not None:
            from hub.repairs.changes import ScriptChange

            file, name = wanted.script_place()
            return ScriptChange(script_function(file, name), str(file))
        from hub.materializers.queries.topic_rows import TopicTables
        from hub.repairs.sql_changes import SqlChange, sql_assignment

        tables = TopicTables(self.cluster, self.registry)
        sets = [sql_assignment(each) for each in wanted.sets]
        return SqlChange(self.topic, tables, wanted.drop or wanted.where, sets)

    def _show(self, plan: RepairPlan) -> None:
        from hub.topics.dead_letters.encoder import RepairedEventEncoder

        rows = plan_rows(plan, RepairedEventEncoder(self.registry).source)
        show_plan(plan, rows, self.output)

    def _origin(self, command: str, digest: str) -> ChangeOrigin:
        from hub.repairs.beginning import ChangeOrigin

        return ChangeOrigin(command, _user(), epoch_ms(), digest)

    def _confirm(self, question: str, yes: bool) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise CallerError(
                f'topic "{self.topic}" would be made again: confirm with --yes', code="HUB-1606"
            )
        typer.confirm(question, abort=True, err=True)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
