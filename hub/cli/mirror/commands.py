"""[edge] ``hub mirror``: topic trees in other clusters; planned, watched, verified, and handed over.

Plans and status work without a worker; ``hub mirror run`` is one (``hub up`` starts it where there is a mirrors.yaml).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.watch_option import IntervalOption, WatchOption, looked
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError, nearest
from hub.observability.web.pages.monitor.mirrors import left_behind_lines

if TYPE_CHECKING:
    from hub.replication.clusters.apply_plan import LinkPlan
    from hub.replication.clusters.clusters import ClusterHandle
    from hub.replication.clusters.control_state import ControlState
    from hub.replication.config.mirrors import MirrorsFile
    from hub.replication.ownership.failover import Control, Kind
    from hub.replication.ownership.links import Link
    from hub.replication.ownership.loss_report import LossReport
    from hub.replication.status.source_ends import SourceEndsReader
    from hub.replication.verification.differences import DifferingRecord
    from hub.replication.verification.verify import ComparedPartition, PartitionVerdict

EXIT_REFUSED, EXIT_CHANGES = 1, 2

_read: ContextVar[MirrorsFile | None] = ContextVar("_read", default=None)  # the file that this call is about


class _NamesClusters(TyperGroup):
    """A cluster that does not answer is called as the file calls it, not by its address alone."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PeerError as error:
            raise _named(error, _read.get()) from error


def _named(error: PeerError, file: MirrorsFile | None) -> PeerError:
    for name, cluster in file.clusters.items() if file is not None else ():
        if f'"{cluster.bootstrap}"' in error.message:
            return PeerError(
                f'cluster "{name}": {error.message}',
                hint=error.hint
                if error.code == "HUB-3016"
                else f"is it up, and is {cluster.bootstrap} its address? When a source is gone: hub mirror failover",
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

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The mirrors. Default: mirrors.yaml of the project")
]
NameArgument = Annotated[str, typer.Argument(metavar="MIRROR", help="Its name in mirrors.yaml")]
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="MIRROR", help="Only these. Default: all of the file")
]
WaitOption = Annotated[float, typer.Option(min=1, help="Longest wait for one step, in seconds")]
TypedNameOption = Annotated[
    str | None, typer.Option("--name", metavar="MIRROR", help="The name again, instead of typing it")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show steps and report, as hub mirror drill does; change nothing")
]


@dataclass
class _World:
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
        from hub.replication.clusters.clusters import read_control_state

        found: dict[str, ControlState] = {}
        for name, reached in self.clusters.items():
            try:
                found[name] = read_control_state(reached, status=False)
            except PeerError as error:
                note(f"! cluster {name} does not answer: {error.message}")
        return found

    def link(self, name: str, *, back: bool = False) -> Link:
        """Return a mirror of the file; with ``back``, its implicit way back."""
        from hub.replication.ownership.links import links

        found = links(self.file)
        if name in found and name not in self.file.mirrors:
            if back:
                return found[name]
            raise CallerError(
                f'"{name}" is the way back of mirror "{found[name].declared}", and goes where that goes',
                hint=f"say {found[name].declared}; hub mirror status and verify take the way back, too",
            )
        if name not in self.file.mirrors:
            near = nearest(name, self.file.mirrors)
            raise NotFound(
                f'there is no mirror "{name}" in {self.path}',
                hint=f'did you mean "{near}"?'
                if near
                else f"known: {', '.join(self.file.mirrors) or 'none'}",
            )
        return found[name]

    def chosen(self, names: Sequence[str] | None) -> list[Link]:
        return [self.link(name, back=True) for name in (names or self.file.mirrors)]


def _file(file: Path | None) -> tuple[Path, MirrorsFile]:
    """Return the path and content of the mirrors file. Raises NotFound, ConfigError."""
    from hub.replication.config.mirrors import load

    path = file or load_settings().project / "mirrors.yaml"
    if not path.exists():
        raise NotFound(
            f'file "{path}" does not exist', hint="write one (docs/reference/mirrors.md), or name it: -f FILE"
        )
    return path, load(path)


def _world(file: Path | None) -> _World:
    from hub.replication.clusters.clusters import own_environ, reach_all
    from hub.replication.ownership.links import checked

    path, loaded = _file(file)
    _read.set(loaded)
    settings = load_settings()
    environ = own_environ(settings)
    return _World(path, checked(loaded), reach_all(loaded, environ, path.parent, settings.kafka_timeout_s))


@app.command("ls")
def list_mirrors(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """The mirrors of the file, and what the rule of each is. Needs no Kafka.

    Exit code 1: two of them would send a record round in a circle, or write one topic twice.

    Example: hub mirror ls -f examples/mirrors/mirrors.yaml
    """
    from hub.replication.config.topology import check

    path, loaded = _file(file)
    rows = [
        {
            "mirror": name,
            "source": mirror.source,
            "target": mirror.target,
            "topics": ", ".join(mirror.topics) + "".join(f", not {each}" for each in mirror.exclude),
            "owner": loaded.rule(name),
            "on_gap": mirror.on_gap,
            "on_recreate": mirror.on_recreate,
            "paused": mirror.paused,
        }
        for name, mirror in loaded.mirrors.items()
    ]
    show(rows, output, ("mirror", "source", "target", "topics", "owner", "on_gap", "on_recreate", "paused"))
    refusals = check(loaded)
    for refusal in refusals:
        note(str(refusal))
    if not rows:
        note(f"{path} declares no mirror.")
    if refusals:
        raise typer.Exit(EXIT_REFUSED)


# ---- plan and apply


@app.command()
def plan(names: NamesArgument = None, file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Show what `apply` would change at the targets.

    Schemas, topics, settings, rules; and what is refused, with the way out.

    Exit code 0: nothing to do. 2: there are changes. 1: a topic is refused (or it failed); the others can go on.

    Example: hub mirror plan nyc-lon -o json
    """
    world = _world(file)
    plans = _plans(world, names)
    _show_plans(plans, output)
    if any(each.made.refusals for each in plans):
        raise typer.Exit(EXIT_REFUSED)
    if any(each.changes for each in plans):
        raise typer.Exit(EXIT_CHANGES)


@app.command()
def apply(
    names: NamesArgument = None,
    file: FileOption = None,
    from_now: Annotated[
        bool,
        typer.Option(
            "--from-now",
            help="Rules (only, mask, schema_ids) that were changed hold from here on; what is mirrored stays as it is",
        ),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Make the targets ready: schemas, topics, settings, rules.

    Workers do the same all the time for what comes later.

    A refused topic has no steps and is not mirrored; the others are done. Exit code 1 when one is refused or fails.

    Example: hub mirror apply
    """
    from hub.replication.clusters.apply_plan import carry_out, make_own, record_rights
    from hub.replication.planning.plan import Remember

    world = _world(file)
    done = _rules_from_now(world, names) if from_now else []
    failed: dict[str, HubError] = {}
    plans = _plans(world, names)
    for each in plans:
        for caution in each.made.cautions:
            note(str(caution))
        total = len(each.changes)
        make_own(each.own, world.clusters)
        mine = [f"+ topic {step.topic} at {where}" for where, step in each.own]
        for number, line in enumerate(mine, 1):
            note(f"[{number}/{total}] {line}")

        def say(step: Any, mine: list[str] = mine, total: int = total) -> None:
            if not isinstance(step, Remember):
                mine.append(str(step))
                note(f"[{len(mine)}/{total}] {step}")

        source, target = world.clusters[each.link.source], world.clusters[each.link.target]
        record_rights(each, target)
        failed |= carry_out(each.made.steps, source, target, say)
        done += mine
    refusals = [refusal for each in plans for refusal in each.made.refusals]
    if output is Output.json:
        refused = [{"topic": r.topic, "reason": r.reason, "hint": r.hint} for r in refusals]
        show_one(
            {"done": done, "failed": {t: e.message for t, e in failed.items()}, "refused": refused}, output
        )
    for refusal in refusals:
        note(str(refusal))
    for topic, error in failed.items():
        note(f'✗ topic "{topic}": {error}')
    note(f"{len(done)} changed." if done else "Nothing to change.")
    if refusals or failed:
        raise typer.Exit(EXIT_REFUSED)


def _rules_from_now(world: _World, names: Sequence[str] | None) -> list[str]:
    """Apply the rules of the file from each partition's current position on, and return one line per topic.
    Workers that stopped because of changed rules retry at once.
    """
    from hub.replication.clusters.apply_plan import rules_from_now
    from hub.replication.clusters.control_state import retry_record
    from hub.replication.config.mirrors import mask_secrets
    from hub.replication.ownership.links import named

    done = []
    for chosen in world.chosen(names):
        alone = world.file.model_copy(update={"mirrors": {chosen.name: chosen.mirror}})
        secrets = mask_secrets(alone, os.environ)
        for link in named(world.file, chosen.name).values():
            begun = rules_from_now(link, world.clusters[link.target], secrets)
            for topic in sorted({tp.topic for tp in begun}):
                at = {tp.partition: first for tp, (first, _) in sorted(begun.items()) if tp.topic == topic}
                rules = next(rules for tp, (_, rules) in begun.items() if tp.topic == topic)
                where = ", ".join(f"{partition}: {first}" for partition, first in at.items())
                done.append(f"~ topic {topic}  from now on {rules} (by partition from offset {where})")
                note(done[-1])
            if begun:
                _append(world.clusters[link.target], [retry_record(link.name, int(time.time() * 1000))])
    return done


def _plans(world: _World, names: Sequence[str] | None) -> list[LinkPlan]:
    from hub.replication.clusters.apply_plan import planned
    from hub.replication.clusters.clusters import read_control_state, read_progress
    from hub.replication.clusters.control_state import joined

    boards = {name: read_control_state(reached, status=False) for name, reached in world.clusters.items()}
    control = joined(board.control for board in boards.values())
    plans = []
    for link in world.chosen(names):
        target, source = world.clusters[link.target], world.clusters[link.source]
        plans.append(
            planned(
                world.file,
                link,
                world.clusters,
                control,
                boards[link.target],
                partial(read_progress, target, maps=False),
                read_progress(source, maps=False) if control.operations else None,
                _mask_keys(link),
            )
        )
    return plans


def _show_plans(plans: Sequence[LinkPlan], output: Output) -> None:
    changes = sum(len(each.changes) for each in plans)
    refused = sum(len(each.made.refusals) for each in plans)
    if output is Output.json:
        show(
            [
                {
                    "mirror": each.link.name,
                    "topics": list(each.topics),
                    "steps": list(each.changes),
                    "cautions": [asdict(caution) for caution in each.made.cautions],
                    "refusals": [
                        {"topic": r.topic, "reason": r.reason, "hint": r.hint} for r in each.made.refusals
                    ],
                    "rules": each.shapes,
                }
                for each in plans
            ],
            output,
        )
        return
    for each in plans:
        print(
            f"mirror {each.link.name}: {len(each.topics)} topics from {each.link.source} to {each.link.target}"
        )
        for line in (*each.changes, *each.made.cautions, *each.made.refusals):
            print(f"  {line}".replace("\n", "\n  "))
        for topic, rules in each.shapes.items():
            print(f"  * topic {topic}  {rules}")
        if not each.topics:
            note(
                f"! {each.link.name}: {each.link.source} has no topic that fits, or the mirror's user may not Describe any"
            )
    note(f"{changes} to change, {refused} refused.")


# ---- the worker


@app.command()
def run(file: FileOption = None) -> None:
    """A worker: mirrors until it is stopped. Start as many as you like, anywhere; they share the work.

    `hub up` starts one where the project has a mirrors.yaml.

    Example: hub mirror run -f mirrors.yaml
    """
    from hub.kafka.contact.notes import note_for_ever
    from hub.replication.clusters.clusters import own_environ
    from hub.replication.worker.worker import run as work
    from hub.runtime import install_stop_signals, log_to_stderr

    log_to_stderr()
    path, _ = _file(file)
    settings = load_settings()
    note_for_ever(settings.home, f"mirror-{os.getpid()}")
    environ = own_environ(settings)
    work(path.absolute(), environ, install_stop_signals(), settings.kafka_timeout_s)


# ---- status


@app.command()
def status(
    names: NamesArgument = None,
    file: FileOption = None,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
    interval: IntervalOption = 2.0,
) -> None:
    """How mirrors go: partitions, lag, gaps, groups.

    Out of what stands in their targets, so it needs no worker; what a failover would cost each group, and what the last
    one left behind.

    With a name: every partition and group of it. Exit code 0: all goes well. 1: something stands still that should not, or
    nobody reports it. Lag is by the source's ends of now, where it answers.

    Example: hub mirror status nyc-lon --watch
    """
    from hub.replication.status.source_ends import SourceEndsReader

    world = _world(file)

    asker = SourceEndsReader()

    def look() -> list[dict[str, Any]]:
        found = [_status(world, link, asker) for link in world.chosen(names)]
        backs = (_way_back(world, each, asker) for each in found if each.get("acting"))
        return [*found, *(back for back in backs if back)]

    found = looked(look, lambda found: _show_status(found, bool(names), output), watch, output, interval)
    raise typer.Exit(0 if all(each["ok"] for each in found) else 1)


def _status(world: _World, link: Link, asker: SourceEndsReader) -> dict[str, Any]:
    from hub.replication.clusters.clusters import read_control_state, read_progress
    from hub.replication.operations.left_at_source import losses_now
    from hub.replication.status.mirror_status import places_of, summary_of, with_losses

    reached = world.clusters[link.target]
    try:
        board, progress = read_control_state(reached), read_progress(reached, maps=False)
    except PeerError as error:
        return {
            "mirror": link.name,
            "state": "unknown",
            "reason": error.message,
            "ok": False,
            "partitions": [],
            "groups": [],
            "gaps": [],
        }
    places, known = places_of(link, board, progress), progress.of(link.name)
    asked = asker.ask(world.clusters[link.source], places, places - known.keys())
    found = summary_of(world.file, link, board, progress, int(time.time() * 1000), asked)
    return with_losses(found, losses_now(world.file, link, world.clusters, board, progress))


def _way_back(world: _World, forward: Mapping[str, Any], asker: SourceEndsReader) -> dict[str, Any] | None:
    """Return the status of a mirror's way back while its target acts for its source; None if there is nothing
    to report.
    """
    from hub.replication.ownership.links import BACK, links

    link = links(world.file).get(str(forward["mirror"]) + BACK)
    if link is None or forward["acting"].get(forward["source"]) != forward["target"]:
        return None
    found = _status(world, link, asker)
    return found if found["partitions"] else None


_MIRROR_COLUMNS = (
    "mirror",
    "state",
    "workers",
    "topics",
    "partitions",
    "lag_records",
    "lag_bytes",
    "lag_s",
    "records_per_s",
    "bytes_per_s",
    "gaps",
    "groups",
    "different",
    "last_commit_s",
)
_PARTITION_COLUMNS = (
    "topic",
    "partition",
    "state",
    "engine",
    "source_next",
    "source_end",
    "target_next",
    "lag_records",
    "lag_bytes",
    "lag_s",
    "records_per_s",
    "bytes_per_s",
    "last_commit_s",
    "seen_s",
)
_GROUP_COLUMNS = (
    "group",
    "topic",
    "partition",
    "state",
    "source_offset",
    "position",
    "rpo_records",
    "rpo_s",
    "redelivered",
    "reason",
)


def _show_status(found: Sequence[Mapping[str, Any]], closely: bool, output: Output) -> None:
    if output is Output.json:
        show(found, output)
        return
    rows = []
    for each in found:
        groups, gaps = each["groups"], each["gaps"]
        rows.append({**each, "partitions": len(each["partitions"]), "groups": len(groups), "gaps": len(gaps)})
    show(rows, output, _MIRROR_COLUMNS)
    for each in found:
        if each.get("reason"):
            note(f"{each['mirror']}: {each['reason']}")
        for one in each.get("operations", ()):
            note(
                f"! {each['mirror']}: a {one['kind']} of what {one['home']} owns is under way, next: {one['next']}."
                f" Go on: hub mirror resume {each['mirror']} (or --abort)"
            )
        for home, acting in each.get("acting", {}).items():
            if home in (each["source"], each["target"]) and each["state"] != "handed over":
                note(f"{each['mirror']}: {acting} acts for {home}")
        for caution in each.get("cautions", ()):
            note(f"! {each['mirror']}, {caution}")
        for topic, why in each.get("trouble", {}).items():
            note(f'✗ {each["mirror"]}, topic "{topic}": {why}')
        for row in each["partitions"]:
            if row["reason"] and row["state"] != "unknown" and each["state"] != "handed over":
                note(f"! {each['mirror']}, {row['topic']} partition {row['partition']}: {row['reason']}")
        for gap in each["gaps"]:
            until = "its end" if gap["end"] < 0 else str(gap["end"])
            note(
                f"! {each['mirror']}, {gap['topic']} partition {gap['partition']}: offsets {gap['first']} up to"
                f" {until} are not in the target ({gap['reason']})"
            )
        for line in left_behind_lines(each):
            note(f"! {each['mirror']}, {line}")
        for beat in each.get("heartbeats", ()) if closely else ():
            shards = ", ".join(map(str, beat["shards"])) or "none"
            note(f"{each['mirror']}: worker {beat['worker']} beat {beat['ago_s']} s ago, shards {shards}")
        if closely and each.get("verified_s") is not None:
            note(
                f"{each['mirror']}: {each['verified_records']} records compared, {each['unverified_records']} offsets not"
                f" yet, {each['different']} partitions differ; last {each['verified_s']} s ago"
            )
        for row in each["partitions"] if closely else ():
            if len(row["rules"]) > 1:
                parts = "; ".join(
                    f"{one['first']} to {one['end'] - 1}: {one['rules']}" for one in row["rules"]
                )
                note(
                    f"{each['mirror']}, {row['topic']} partition {row['partition']}: mirrored under several rules: {parts}"
                )
        rules = {row["topic"]: row["engine_why"] for row in each["partitions"] if row["engine_why"]}
        for topic, why in rules.items() if closely else ():
            note(f"{each['mirror']}, {topic}: its records are written anew: {why}")
        if closely:
            show(each["partitions"], output, _PARTITION_COLUMNS)
            if each["groups"]:
                show([row for group in each["groups"] for row in group["places"]], output, _GROUP_COLUMNS)


# ---- verify


@app.command()
def verify(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only this topic (may stand several times)")
    ] = None,
    newest: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the newest N offsets of each partition")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=100_000, help="List so many differences at most")
    ] = 100,
    output: OutputOption = Output.table,
) -> None:
    """Read both sides and compare them. Changes nothing but what `hub mirror status` tells of it.

    Digests of ranges are compared, then the records of the ranges that differ. Every difference is listed, up to --limit: records
    that differ, records that are missing at the target, and records that somebody else wrote into the copy.

    Compared is what was mirrored by now and both sides still have. Exit code 0: equal. 1: different, or not comparable.

    Example: hub mirror verify nyc-lon --topic nyc.chat --newest 100000 --limit 500
    """
    from hub.cli.terminal.progress import counted
    from hub.replication.verification.comparable import compared
    from hub.replication.verification.verify import Verifier, summary

    world = _world(file)
    link = world.link(name, back=True)
    every = compared(world.file, link, world.clusters, world.control(), topic or ())
    if not every:
        raise NotFound(
            f'mirror "{name}": nothing is mirrored yet' + (" of these topics" if topic else ""),
            hint="hub mirror status shows whether a worker runs",
        )
    total = sum(
        min(each.checkpoint.source_next - each.checkpoint.source_start, newest or sys.maxsize)
        for each in every
    )
    # Those of former rules too.
    keys = {key for each in every for one in each.ruled if one.rules.shape for key in one.rules.shape.secrets}
    verdicts: list[PartitionVerdict] = []
    with counted(f"verify {name}") as advance:
        done = 0

        def more(count: int) -> None:
            nonlocal done
            done += count
            advance(done, max(total, done))

        verifier = Verifier(world.clusters[link.source], world.clusters[link.target], more, _keys(keys))
        try:
            for partition in every:
                room = limit - sum(len(verdict.listed) for verdict in verdicts)
                verdicts.append(verifier.verify(partition, newest, max(1, room)))
        finally:
            verifier.close()
    found = summary(verdicts)
    if newest is None:
        _tell_verified(world.clusters[link.target], name, zip(every, verdicts, strict=True))
    rows = [
        {
            "topic": each.place.topic,
            "partition": each.place.partition,
            "from": each.first,
            "to": each.end,
            "records": each.records,
            "digest": str(each.digest),
            "equal": each.equal,
            "differs_at": each.differs_at,
            "why": each.why,
            "rules": each.rules,
        }
        for each in verdicts
    ]
    listed = [_difference(verdict, one) for verdict in verdicts for one in verdict.listed][:limit]
    unlisted = sum(len(each.listed) + each.more for each in verdicts) - len(listed)
    if output is Output.json:
        told = {"differences": listed, "more_differences": unlisted}
        show_one({"mirror": name, **found, "partitions": rows, **told}, output)
    else:
        show(rows, output)
        if listed:
            show(listed, output, _DIFFERENCE_COLUMNS)
    for topic_, rules in {each.place.topic: each.rules for each in verdicts if each.rules}.items():
        note(f"{topic_}: compared with what its rules make of the source: {rules}")
    for each in verdicts:
        if each.differs_at is not None:
            note(
                f"✗ {each.place.topic} partition {each.place.partition} differs first at source offset"
                f" {each.differs_at}: {each.why}"
            )
    if unlisted:
        note(f"{unlisted} more differences: list them with --limit {len(listed) + unlisted}, or --topic")
    note(f"{found['equal']} equal, {found['different']} different, {found['not_compared']} not compared.")
    if found["different"] or found["not_compared"]:
        raise typer.Exit(1)


_DIFFERENCE_COLUMNS = ("topic", "partition", "source_offset", "target_offset", "why")


def _difference(verdict: PartitionVerdict, each: DifferingRecord) -> dict[str, Any]:
    """Return a difference as a table row; an offset is None where that side has no such record."""
    return {
        "topic": verdict.place.topic,
        "partition": verdict.place.partition,
        "source_offset": each.source,
        "target_offset": each.target,
        "why": each.why,
    }


def _tell_verified(
    target: ClusterHandle, name: str, verdicts: Iterable[tuple[ComparedPartition, PartitionVerdict]]
) -> None:
    """Store the verdicts where `hub mirror status` reads them. A user without write access gets a note
    instead.
    """
    from hub.replication.verification.continuous_check import of_everything

    now_ms = int(time.time() * 1000)
    said = [
        of_everything(name, each.checkpoint, verdict, now_ms)
        for each, verdict in verdicts
        if verdict.compared
    ]
    try:
        _append(target, [each.record() for each in said])
    except HubError as error:
        note(f"! not told in hub mirror status: {error.message}")


def _mask_keys(link: Link) -> dict[str, str]:
    """Return the keys of the mirror's hashes that are in the environment, by their references."""
    return _keys(rule.key for rule in link.mirror.mask if rule.key is not None)


def _keys(references: Iterable[str]) -> dict[str, str]:
    return {key: os.environ[key[2:-1]] for key in set(references) if os.environ.get(key[2:-1])}


# ---- from MirrorMaker 2


@app.command("import")
def import_copies(
    name: NameArgument,
    from_mm2: Annotated[
        bool,
        typer.Option(
            "--from-mm2", help="The copies at the target are MirrorMaker 2's, which is stopped for good"
        ),
    ] = False,
    file: FileOption = None,
    source_alias: Annotated[
        str | None,
        typer.Option(metavar="ALIAS", help="What MirrorMaker calls the source. Default: as the file does"),
    ] = None,
    offset_syncs_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Default: mm2-offset-syncs.<alias>.internal of either side"),
    ] = None,
    checkpoints_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Default: <source alias>.checkpoints.internal at the target"),
    ] = None,
    newest: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Compare only from the last offset sync before the newest N offsets on"
        ),
    ] = None,
    quiet: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="MirrorMaker must have written nothing for so long"),
    ] = 15.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, change nothing")
    ] = False,
    typed: TypedNameOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Go on where MirrorMaker 2 stopped, in the copies it made. Once, for a migration.

    Both sides are read and compared record by record: where the mirror goes on is proven, or that topic is refused
    with the way out. Stop MirrorMaker first. What has a checkpoint of this mirror is left alone.

    Exit code 0: all is taken over (or could be). 1: a topic is refused; the others were done.

    Example: hub mirror import nyc-lon --from-mm2 --dry-run
    """
    from hub.cli.mirror.import_mm2 import take_over

    if not from_mm2:
        raise CallerError("import: say whose copies these are", hint=f"hub mirror import {name} --from-mm2")
    world = _world(file)
    done = take_over(
        world.file,
        world.link(name),
        world.clusters,
        world.control(),
        lambda what: _confirm(name, typed, what),
        source_alias=source_alias,
        syncs=offset_syncs_topic,
        checkpoints=checkpoints_topic,
        newest=newest,
        quiet_s=quiet,
        dry_run=dry_run,
        output=output,
    )
    if not done:
        raise typer.Exit(EXIT_REFUSED)


# ---- a person's wishes


@app.command()
def pause(name: NameArgument, file: FileOption = None) -> None:
    """Let a mirror stand still.

    Workers obey within a second or two, at the end of a transaction.

    Example: hub mirror pause nyc-lon
    """
    world = _world(file)
    _wish(world, world.link(name), paused=True)
    note(f"{name} is paused. Go on: hub mirror resume {name}")


@app.command()
def resume(
    name: NameArgument,
    file: FileOption = None,
    abort: Annotated[
        bool,
        typer.Option(
            "--abort", help="Undo a change of hands that is under way, while ownership is as it was"
        ),
    ] = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Let what is paused, stopped or cut short go on.

    A paused mirror, partitions that stopped, and a change of hands that was not finished.

    Example: hub mirror resume nyc-lon
    """
    world = _world(file)
    link = world.link(name)
    operator = _operator(world, wait)
    running = operator.control().running(link.source)
    if running is None and operator.remind(link.source):
        note(
            f"A cluster that was down knows now who acts for {link.source}, and that no change is under way."
        )
    if abort:
        if running is None:
            raise Conflict(f"no change of hands of {link.source} is under way", hint="hub mirror status")
        operator.abort(running)
        note(f'{running.kind} "{running.id}" is undone.')
        return
    _wish(world, link, paused=False)
    if running is not None:
        _finish(operator, running, output)
    else:
        note(f"{name} goes on.")


def _wish(world: _World, link: Link, *, paused: bool) -> None:
    """Into the target's control topic, where the mirror's workers read it; its way back obeys it too."""
    import getpass
    import socket

    from hub.replication.clusters.control_state import pause_record, retry_record

    now_ms = int(time.time() * 1000)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    records = [pause_record(link.name, by, now_ms, paused=paused)]
    if not paused:
        records.append(retry_record(link.name, now_ms))
    _append(world.clusters[link.target], records)


def _append(reached: ClusterHandle, records: Sequence[Any]) -> None:
    from hub.replication.clusters.apply_plan import make_own
    from hub.replication.clusters.clusters import own_topics

    make_own([(reached.name, step) for step in own_topics(reached)], {reached.name: reached})
    writer = reached.kafka.writer()
    try:
        writer.append(list(records))
    finally:
        writer.close()


@app.command()
def drop(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Forget only this topic (may stand several times)"),
    ] = None,
    delete_copies: Annotated[
        bool,
        typer.Option("--delete-copies", help="Delete the topics at the target too, with all their events"),
    ] = False,
    typed: TypedNameOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Forget a mirror: its checkpoints, maps and gaps.

    The copies at the target stay, unless told otherwise.

    A topic that is in the file afterwards is mirrored anew, from the source's start, once its copy is gone: delete it
    here (--delete-copies), or later by hand. Pause the mirror first.

    Example: hub mirror drop nyc-lon --topic nyc.chat --delete-copies --name nyc-lon
    """
    from hub.replication.clusters.clusters import read_control_state, read_progress
    from hub.replication.operations.operator import forget_both

    world = _world(file)
    link = world.link(name)
    target = world.clusters[link.target]
    board = read_control_state(target)
    if name not in board.paused and not link.mirror.paused:
        raise Conflict(
            f'mirror "{name}" is not paused', hint=f"first: hub mirror pause {name}", code="HUB-1967"
        )
    acting = world.control().owner(link.source).acting
    if acting != link.source:
        raise Conflict(
            f"{acting} acts for {link.source}: its way back needs what would be forgotten",
            hint=f"give it back first (hub mirror failback {name}); when it shall stay so, take the mirror out of the file",
            code="HUB-1969",
        )
    known = {tp.topic for tp in read_progress(target, maps=False).of(name)}
    meant = sorted(known & set(topic) if topic else known)
    _confirm(
        name,
        typed,
        f"forget {len(meant)} topics of it at {link.target}" + (", and delete them" if delete_copies else ""),
    )
    count = forget_both(world.file, link, world.clusters, topic or ())
    if delete_copies:
        for each in meant:
            try:
                target.kafka.delete_topic(each)
            except NotFound:
                note(f"{each} was not there any more")
    if output is Output.json:
        show_one(
            {"mirror": name, "topics": meant, "partitions": count, "deleted": bool(delete_copies)}, output
        )
    note(f"Forgotten: {count} partitions of {len(meant)} topics.")


def _confirm(name: str, typed: str | None, what: str) -> None:
    """Ask the user to type the name, because the next step cannot be undone."""
    if typed is None:
        if not sys.stdin.isatty():
            raise CallerError(f"this would {what}: say the name again with --name {name}", code="HUB-1606")
        typed = typer.prompt(f"This would {what}. Type the mirror's name to go on", err=True)
    if typed != name:
        raise CallerError(f'"{typed}" is not "{name}": nothing was done', code="HUB-1606")


# ---- switchover and failover


@app.command()
def drill(
    name: NameArgument,
    file: FileOption = None,
    kind: Annotated[
        str, typer.Option(help="What is rehearsed: failover, switchover, failback or promote")
    ] = "failover",
    output: OutputOption = Output.table,
) -> None:
    """Rehearse a change of hands. Changes nothing.

    Its steps, what it would lose, and what each group would read again.

    Example: hub mirror drill nyc-lon --kind switchover -o json
    """
    kinds: dict[str, Kind] = {each: each for each in ("failover", "switchover", "failback", "promote")}
    if kind not in kinds:
        raise CallerError(f'"{kind}" is no change of hands', hint=f"one of: {', '.join(kinds)}")
    world = _world(file)
    _rehearse(world, world.link(name), kinds[kind], output)


def _rehearse(world: _World, link: Link, kind: Kind, output: Output) -> None:
    """Print the steps and the report of a failover, switchover, failback or promotion; change nothing."""
    from hub.replication.ownership.failover import begin

    operator, now_ms = _operator(world, 30.0), int(time.time() * 1000)
    control = operator.control()
    old = control.owner(link.source).acting
    new = link.source if kind == "failback" else link.target
    operation = begin(
        control,
        kind,
        id="drill",
        mirror=link.name,
        home=link.source,
        new=new,
        now_ms=now_ms,
        old_is_up=operator.is_up(old),
    )
    operator.check_way(link.source, old, new)
    steps = [{"step": each.name, "does": each.does, "at": ", ".join(each.at)} for each in operation.steps]
    report = operator.report(link.source, old, new)
    stuck = operator.not_mirrored(link.source, old, new)
    masked = operator.masked(link.source, old, new)
    rights = [line for change in operator.rights(operation) for line in change.lines()]
    if output is Output.json:
        said = {"kind": kind, "old": old, "new": new, "steps": steps, **_as_json(report, now_ms)}
        show_one({**said, "not_mirrored": stuck, "masked": masked, "rights": rights}, output)
        return
    show(steps, output)
    for line in rights:
        note(line)
    _show_report(report, old, now_ms)
    _print_masked(masked, link)
    for topic, why in stuck.items():
        note(f'✗ topic "{topic}" is not mirrored: {why}')
    if stuck and kind != "failover":
        note(f"A {kind} would be refused for that.")
    note("Nothing was changed.")


@app.command()
def switchover(
    name: NameArgument,
    file: FileOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """Both sides are up: the target takes over.

    What the source owns goes to the target; nothing is lost, nothing read twice.

    Stop the writers at the source, and the groups there, before or when it says so: it waits until all is quiet.

    Example: hub mirror switchover nyc-lon
    """
    _change(name, file, "switchover", wait, output, dry_run=dry_run)


@app.command()
def failover(
    name: NameArgument,
    file: FileOption = None,
    typed: TypedNameOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """The source is gone: the target takes over now.

    What was not mirrored is counted, and stays behind. While the source does not answer, the number is unknown: shown are
    a lower bound and when the source was last heard. Once it is back, `hub mirror left-behind` shows the records.

    Example: hub mirror failover nyc-lon --dry-run
    """
    _change(name, file, "failover", wait, output, typed=typed, confirm=True, dry_run=dry_run)


@app.command()
def failback(
    name: NameArgument,
    file: FileOption = None,
    tail: Annotated[
        str,
        typer.Option(
            help="Records that the source had and nobody mirrored: replay (carry them over), or discard"
        ),
    ] = "replay",
    dry_run: DryRunOption = False,
    wait: WaitOption = 300.0,
    output: OutputOption = Output.table,
) -> None:
    """The source is back: give it back what it owns.

    What was born at the target goes home first, then the source takes over again.

    Example: hub mirror failback nyc-lon --tail replay
    """
    if tail not in ("replay", "discard"):
        raise CallerError(f'--tail: "{tail}" is not known', hint="one of: replay, discard")
    _change(name, file, "failback", wait, output, tail=tail, dry_run=dry_run)


@app.command()
def promote(
    name: NameArgument,
    file: FileOption = None,
    typed: TypedNameOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = 120.0,
    output: OutputOption = Output.table,
) -> None:
    """As switchover, and for good: the mirror is forgotten.

    Take it out of the file then.

    Example: hub mirror promote nyc-lon --name nyc-lon
    """
    _change(name, file, "promote", wait, output, typed=typed, confirm=True, dry_run=dry_run)


@app.command("left-behind")
def left_behind(
    name: NameArgument,
    file: FileOption = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Only this topic (may stand several times)")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, metavar="N", help="The first N records")
    ] = 100,
    output: OutputOption = Output.table,
) -> None:
    """Show the records that only the old source has since a failover.

    The source must answer again. They are counted exactly, and the first are shown with offset, key and value.

    Exit code 0: shown, or there are none. 1: the source does not answer, so it is unknown.

    Example: hub mirror left-behind nyc-lon --limit 1000 -o json
    """
    from hub.replication.clusters.clusters import read_control_state, read_progress
    from hub.replication.operations.left_at_source import losses_now, records

    world = _world(file)
    link = world.link(name)
    source, target = world.clusters[link.source], world.clusters[link.target]
    losses = losses_now(
        world.file,
        link,
        world.clusters,
        read_control_state(target, status=False),
        read_progress(target, maps=False),
    )
    if losses is None:
        raise PeerError(
            f"what stayed at {link.source} is unknown: it does not answer",
            hint=f"start it again; nothing of it is lost by that ({link.target} acts for it)",
            code="HUB-3617",
        )
    chosen = [each for each in losses if not topic or each.place.topic in topic]
    rows = [
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
        }
        for record in records(source, chosen, limit)
    ]
    show(rows, output, ("topic", "partition", "offset", "timestamp_ms", "key", "value"))
    total = sum(each.count for each in chosen)
    if not total:
        note(f"{link.source} has nothing that {link.target} lacks since a failover.")
        return
    note(
        f"Only {link.source} has these {total:,} offsets; {len(rows):,} records are shown.\n"
        f"To carry them over behind what was written at {link.target} since: hub mirror failback {name} --tail replay\n"
        f"To declare them lost: hub mirror failback {name} --tail discard"
    )


def _text(content: bytes | None) -> str | None:
    """Decode bytes as UTF-8, or show them as hexadecimal digits."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def _operator(world: _World, wait: float) -> Any:
    from hub.replication.operations.operator import Operator

    return Operator(world.file, world.clusters, wait, note)


def _change(
    name: str,
    file: Path | None,
    kind: Any,
    wait: float,
    output: Output,
    *,
    tail: Any = "replay",
    typed: str | None = None,
    confirm: bool = False,
    dry_run: bool = False,
) -> None:
    import uuid

    world = _world(file)
    link = world.link(name)
    if dry_run:
        _rehearse(world, link, kind, output)
        return
    operator = _operator(world, wait)
    new = link.source if kind == "failback" else link.target
    operation = operator.begin(kind, name, link.source, new, id=uuid.uuid4().hex[:8], tail=tail)
    _print_masked(operator.masked(link.source, operation.old, new), link)
    for change in operator.rights(operation):
        for line in change.lines():
            note(line)
    if confirm:
        report = operator.report(link.source, operation.old, operation.new)
        note(report.words(operation.old, int(time.time() * 1000)))
        _confirm(name, typed, f"hand over what {link.source} owns to {new}")
    _finish(operator, operation, output)


def _print_masked(topics: Sequence[str], link: Link) -> None:
    for topic in topics:
        note(
            f"! {topic}: its copy at {link.target} is masked: what is born of it there is never carried to"
            f" {link.source}, where it would overwrite originals"
        )


def _finish(operator: Any, operation: Any, output: Output) -> None:

    before: LossReport = operator.report(operation.home, operation.old, operation.new)
    now_ms = int(time.time() * 1000)
    try:
        done = operator.carry_on(operation)
    except (HubError, KeyboardInterrupt):
        note(f"{operation.kind} is not over. Go on: hub mirror resume {operation.mirror} (or --abort)")
        raise
    loss = before if operation.kind == "failover" else None
    if output is Output.json:
        said = {"kind": done.kind, "id": done.id, "epoch": done.epoch, "old": done.old, "new": done.new}
        show_one({**said, "steps": list(done.done), **(_as_json(loss, now_ms) if loss else {})}, output)
    elif loss is not None:
        _show_report(loss, done.old, now_ms)
    note(f"{done.new} acts for {done.home} now (epoch {done.epoch}).")
    if loss is not None and (loss.lost_at_least or not loss.is_exact):
        note(
            f"Once {done.old} is back: hub mirror left-behind {done.mirror} shows the records that only it has, and hub mirror"
            f" failback {done.mirror} carries them over (--tail replay) or declares them lost (--tail discard)."
        )


def _as_json(report: LossReport, now_ms: int) -> dict[str, Any]:
    """Return the report for `-o json`. An unknown number is null; its bounds and the age of the source's last
    answer are given too.
    """
    heard = report.heard_at_ms
    return {
        "exact": report.is_exact,
        "lost": report.lost,
        "lost_at_least": report.lost_at_least,
        "redelivered": report.redelivered,
        "redelivered_at_least": report.redelivered_at_least,
        "redelivered_at_most": report.redelivered_at_most,
        "source_heard_at_ms": heard,
        "source_heard_s": None if heard is None else round(max(0, now_ms - heard) / 1000, 1),
        "losses": [
            {
                "topic": each.place.topic,
                "partition": each.place.partition,
                "first": each.first,
                "end": each.end,
                "count": each.count,
                "known": each.known,
                "heard_at_ms": each.heard_at_ms,
            }
            for each in report.losses
            if each.count or not each.known
        ],
        "groups": [
            {
                "group": each.group,
                "topic": each.place.topic,
                "partition": each.place.partition,
                "state": each.state,
                "reason": each.reason,
                "position": each.position,
                "known": each.known,
                "redelivered": each.redelivered,
                "redelivered_at_most": each.redelivered if each.known else each.redelivered_at_most,
                "unread_lost": each.unread_lost,
                "read_only_here": each.read_only_here,
            }
            for each in report.effects
        ],
    }


def _show_report(report: LossReport, source: str, now_ms: int) -> None:
    body = _as_json(report, now_ms)
    for part in ("losses", "groups"):
        if body[part]:
            show(body[part])
    note(report.words(source, now_ms))
