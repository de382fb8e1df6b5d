"""[edge] ``hub topic``: the topic tree in git: show, plan, apply, detect drift; and produce single events."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.terminal.interrupt import pause
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.watch_option import IntervalOption, WatchOption
from hub.cli.topic.conformance import conformance
from hub.config import Settings
from hub.errors import CallerError, ConfigError, Conflict, HubError, HubFault, NotFound

if TYPE_CHECKING:
    from hub.kafka import KafkaCluster
    from hub.log import TopicDescription
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.topics.browse.describe import TopicFacts
    from hub.topics.tree.drift import SettingDrift
    from hub.topics.tree.plan import Step, TreePlan
    from hub.topics.tree.saved_plan import Facts
    from hub.topics.tree.tree import TopicSpec, TopicTree

EXIT_REFUSED, EXIT_CHANGES = 1, 2
_MANY = 20  # steps from which a bar replaces lines
_FEW = 10  # lines of a list that is only a remark
_ALWAYS_SHOWN = ("cleanup.policy", "min.insync.replicas", "retention.bytes", "retention.ms")

app = typer.Typer(
    help="Topics: the tree, its plan, applying it, and what differs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub topic plan && hub topic apply",
)

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The tree. Default: topics.yaml of the project")
]

DestroyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy",
        metavar="NAME",
        help="Delete this topic and all its events. Only one that the tree does not name; may stand several times",
    ),
]
DurabilityOption = Annotated[
    bool,
    typer.Option(
        "--allow-lower-durability", help="Allow settings by which the log keeps less, or less safely"
    ),
]


@app.command()
def tree(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Draw the tree with every topic's effective settings and which node set them. Needs no Kafka.

    Example: hub topic tree -f examples/flights/topics.yaml
    """
    from hub.topics.tree.tree import collisions

    loaded = _load(load_settings(), file)
    for group in collisions(topic.name for topic in loaded.topics):
        note(
            f"! {' and '.join(group)} are one name in Kafka's metrics (_ for .): a broker takes one of them only"
        )
    if output is Output.json:
        show([_as_json(topic) for topic in loaded.topics], output)
        return
    _draw(loaded)


@app.command()
def plan(
    file: FileOption = None,
    destroy: DestroyOption = None,
    allow_lower_durability: DurabilityOption = False,
    save: Annotated[
        Path | None, typer.Option(help="Write the plan into this file, for: hub topic apply FILE")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show what `apply` would change: topics, settings, schemas; and what is refused, with the way out.

    Exit code 0: nothing to do. 2: there are changes. 1: something is refused (or failed).
    Example: hub topic plan --save next.json && hub topic apply next.json
    """
    made, facts, _, _ = _plan(load_settings(), file, destroy, allow_lower_durability)
    _show_plan(made, output)
    if made.refusals:
        if save is not None:
            note(f"{save} is not written: a plan with a refusal is not carried out.")
        raise typer.Exit(EXIT_REFUSED)
    if save is not None:
        from hub.topics.tree.saved_plan import SavedPlan, write

        _write(save, write(SavedPlan(made.steps, facts)))
        note(f"Saved. Carry out exactly this: hub topic apply {save}")
    if made.steps:
        raise typer.Exit(EXIT_CHANGES)


@app.command()
def apply(
    saved: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="A plan of `hub topic plan --save`")
    ] = None,
    file: FileOption = None,
    destroy: DestroyOption = None,
    allow_lower_durability: DurabilityOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Make the cluster and the registry like the tree. Nothing is done while something is refused.

    It stops at the first failure and says what is done and what is left; the next apply goes on there. Topics that the
    tree does not name are kept, but for those named by --destroy. A saved plan is carried out as it was shown, or
    refused when the cluster has changed since. While another apply is under way on this cluster, this one is refused.
    Example: hub topic apply --destroy shop.orders-old
    """
    from hub.topics.tree.apply_lock import one_apply

    settings = load_settings()
    if saved is not None and (file is not None or destroy or allow_lower_durability):
        raise CallerError(
            "a saved plan is carried out as it is: -f, --destroy and --allow-lower-durability belong to"
            " `hub topic plan --save`"
        )
    locked, _ = _connect(settings)
    factor = settings.replication_factor
    with one_apply(locked, "hub topic apply", replication_factor=factor, say=note) as hold:
        if saved is None:
            made, _, cluster, registry = _plan(settings, file, destroy, allow_lower_durability)
        else:
            made, cluster, registry = _saved_plan(settings, saved)
        for caution in made.cautions:
            note(str(caution))
        if output is Output.table:
            _print_kept(made)
        _carry_out(made, cluster, registry, output, hold.check)


def _carry_out(
    made: TreePlan, cluster: KafkaCluster, registry: RegistryClient, output: Output, check: Callable[[], None]
) -> None:
    """Carry a plan out. ``check`` is called between steps, and raises when another apply took over."""
    from hub.topics.tree.apply_plan import apply as carry_out

    done: list[Step] = []
    total = len(made.steps)
    stopped: HubError | KeyboardInterrupt | None = None
    with _steps_bar(total) as advance:

        def say(step: Step) -> None:
            done.append(step)
            if advance is None:
                note(f"[{len(done)}/{total}] {step}")
            else:
                advance(len(done))
            check()

        try:
            check()
            carry_out(made, cluster, registry, say)
        except (HubError, KeyboardInterrupt) as error:
            stopped = error
    carried = {id(step) for step in done}
    left = [step for step in made.steps if id(step) not in carried]
    if output is Output.json:
        show_one({"done": [str(step) for step in done], "left": [str(step) for step in left]}, output)
    if stopped is not None:
        _note_left(len(done), left)
        raise stopped
    note(f"{len(done)} changed." if done else "Nothing to change.")


def _note_left(done: int, left: Sequence[Step]) -> None:
    note(f"Stopped. Done: {done} (they stand). Left: {len(left)}; the first of them:")
    for step in left[:_FEW]:
        note(f"  {step}")
    note("The next `hub topic apply` goes on there.")


@contextmanager
def _steps_bar(total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error for many steps at a terminal; None where lines are better."""
    if total < _MANY or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("apply", total=total)
        yield lambda done: bar.update(task, completed=done)


@app.command()
def drift(
    file: FileOption = None,
    watch: WatchOption = False,
    interval: IntervalOption = 30.0,
    under: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Topics of this pattern alone: shop.** or nyc.*.departures"),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """What differs between the tree and the cluster, line by line, and who is right.

    "tree": apply makes the cluster so. "cluster": Kafka cannot do what the tree says, so the tree has to change.
    "decide": a person has to say. Exit code 0: no difference. 2: there are some. 1: it could not be told.
    Example: hub topic drift --watch --interval 60      hub topic drift --under "shop.**"
    """
    settings = load_settings()
    if under is not None:
        _check_pattern(under)
    if not watch:
        found = _differences(settings, file, under)
        _show_drift(found, output)
        raise typer.Exit(EXIT_CHANGES if found else 0)
    while True:
        try:
            found = _differences(settings, file, under)
        except HubError as error:
            if not error.retriable:
                raise
            note(f"{error.message}; looking again in {interval:g} s")
        else:
            if output is Output.table and sys.stdout.isatty():
                sys.stdout.write("\x1b[2J\x1b[H")
            _show_drift(found, output)
        pause(interval)


def _check_pattern(pattern: str) -> None:
    """Check a pattern of topic names. Raises ConfigError."""
    from hub.schema_registry.policy.label_patterns import checked

    try:
        checked(pattern)
    except ValueError as error:
        raise ConfigError(f"--under: {error}", hint='write "shop.**" or nyc.*.departures') from None


def _differences(settings: Settings, file: Path | None, under: str | None) -> tuple[SettingDrift, ...]:
    from hub.schema_registry.policy.label_patterns import fits, labels_of
    from hub.topics.tree.apply_plan import compare
    from hub.topics.tree.drift import drift

    found = drift(compare(_load(settings, file), *_connect(settings)).plan)
    return tuple(each for each in found if under is None or fits(labels_of(under), labels_of(each.topic)))


def _show_drift(found: Sequence[SettingDrift], output: Output) -> None:
    rows = [asdict(line) for line in found]
    if rows or output is Output.json:
        show(rows, output, ("topic", "setting", "tree", "cluster", "set_by", "right", "way"))
    note(f"{len(rows)} differences." if rows else "The cluster is as the tree says.")


@app.command()
def describe(
    topic: str,
    file: FileOption = None,
    wait: Annotated[float, typer.Option(min=0.5, max=60, help="Longest wait, in seconds")] = 5.0,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that are Kafka's default")] = False,
    output: OutputOption = Output.table,
) -> None:
    """One topic: partitions, replicas, sizes, settings and where each is from, owner, SLO, schemas, readers.

    What does not come within the wait is left out, and said so.
    Example: hub topic describe shop.orders --all
    """
    from hub.kafka import own_cluster
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.topics.browse.describe import as_json
    from hub.topics.browse.describe import describe as ask

    settings = load_settings()
    spec, no_tree = _spec_if_any(settings, file, topic)
    cluster = own_cluster(settings, wait)
    facts = ask(topic, spec, cluster, RegistryClient(settings.registry, wait), wait)
    facts = replace(facts, missing=(*no_tree, *facts.missing))
    if output is Output.json:
        show_one(as_json(facts), output)
    else:
        _show_facts(facts, everything)
    for each in facts.missing:
        note(f"Not told: {each}")


def _spec_if_any(
    settings: Settings, file: Path | None, topic: str
) -> tuple[TopicSpec | None, tuple[str, ...]]:
    """Return the tree's declaration of the topic. A missing tree gives None and a note; an unreadable one
    raises ConfigError.
    """
    path = file or settings.project / "topics.yaml"
    if file is None and not path.exists():
        return None, (f"owner, SLO and doc: no tree at {path}",)
    found = _load(settings, file).find(topic)
    return found, () if found is not None else (f"owner, SLO and doc: {path} does not name the topic",)


def _show_facts(facts: TopicFacts, everything: bool) -> None:
    spec = facts.spec
    about: dict[str, object] = {"topic": facts.name}
    if spec is not None:
        about |= {"owner": spec.owner, "doc": spec.doc, "tags": ", ".join(spec.tags), "slo": _slo(spec)}
    show_one({key: value for key, value in about.items() if value})
    partitions = []
    for each in facts.partitions:
        at, sizes = each.replicas, each.bytes_by_broker
        known = each.begin is not None and each.end is not None
        partitions.append(
            {
                "partition": at.partition,
                "leader": "none" if at.leader is None else at.leader,
                "replicas": ",".join(map(str, at.replicas)),
                "in_sync": ",".join(map(str, at.in_sync)) + (" (!)" if each.under_replicated else ""),
                "begin": each.begin,
                "end": each.end,
                "records": (each.end or 0) - (each.begin or 0) if known else None,
                "bytes": None if sizes is None else sizes.get(-1 if at.leader is None else at.leader),
            }
        )
    show(partitions)
    settings = [
        {"setting": each.key, "value": each.value, "from": each.origin}
        for each in facts.settings
        if everything or each.origin != "default" or each.key in _ALWAYS_SHOWN
    ]
    for rows in (settings, [asdict(each) for each in facts.schemas], [asdict(each) for each in facts.groups]):
        if rows:
            show(rows)


def _slo(spec: TopicSpec) -> str:
    return ", ".join(f"{name} {text}" for name, text in _promised(spec).items())


def _promised(spec: TopicSpec) -> dict[str, str]:
    """Return the objectives of a topic as texts, by name."""
    from hub.topics.tree.tree import LATENCY_SHARE

    slo = spec.slo
    said = {"latency": slo.latency_ms, "freshness": slo.freshness_ms, "lag": slo.lag_ms}
    found = {name: f"{ms / 1000:g} s" for name, ms in said.items() if ms is not None}
    if slo.latency_ms is not None and slo.latency_share != LATENCY_SHARE:
        found["latency"] += f" for {slo.latency_share * 100:g}%"
    if slo.completeness is not None:
        found["completeness"] = f"{slo.completeness * 100:g}%"
    return found


@app.command("import")
def import_topics(
    file: FileOption = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Write the cluster's topics as a tree, what siblings have in common stated once at their parent.

    A plan right after it has nothing to do. `-f -` prints the tree. Owners, docs, SLOs and schemas are for you to add:
    a cluster does not know them.
    Example: hub topic import -f topics.yaml
    """
    from hub.topics.tree.apply_plan import read_topics
    from hub.topics.tree.import_tree import imported
    from hub.yaml import written

    settings = load_settings()
    path = file or settings.project / "topics.yaml"
    to_stdout = str(path) == "-"
    if path.exists() and not force and not to_stdout:
        raise Conflict(
            f'file "{path}" exists already', hint="another file with -f, or write over it with --force"
        )
    found = read_topics(_connect(settings)[0])
    made = imported(found.values())
    text = f"# The topics of {settings.bootstrap}, by hub topic import. Add owner, doc, slo and schema.\n"
    text += written(dict(made.body))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "topics.yaml"
        copy.write_text(text, encoding="utf-8")
        _check_import(_load(settings, copy), found)
    if to_stdout:
        sys.stdout.write(text)
    else:
        _write(path, text)
        if output is Output.json:
            left = dict(made.left_out)
            show_one({"file": str(path), "topics": list(made.topics), "left_out": left}, output)
        note(f"{len(made.topics)} topics are in {path}. See: hub topic tree -f {path}")
    for name, why in made.left_out.items():
        note(f"Left out: {name} ({why})")


def _check_import(loaded: TopicTree, found: Mapping[str, TopicDescription]) -> None:
    """The promise of an import, kept before a file is touched."""
    from hub.topics.tree.plan import Actual
    from hub.topics.tree.plan import plan as make

    made = make(loaded, Actual(found), {}, None)
    if made.steps or made.refusals:
        first = str([*made.steps, *made.refusals][0])
        raise HubFault(f"import: its own tree would change the cluster: {first}", hint="please report this")


def _write(path: Path, text: str) -> None:
    """Write the whole file; keep the old one when the disk is full or the folder is not writable."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CallerError(f'file "{path}" cannot be written: {error.strerror}') from None


@app.command("ls")
def list_topics(output: OutputOption = Output.table) -> None:
    """List the topics of the cluster: partitions and the number of records that were ever appended.

    Example: hub topic ls -o json
    """
    cluster, _ = _connect(load_settings())
    found = cluster.topics()
    ends = dict.fromkeys(found, 0)
    for tp, offset in cluster.end_offsets(list(found)):
        ends[tp.topic] += offset
    rows = [
        {
            "topic": name,
            "partitions": topic.partitions,
            "replicas": topic.replication_factor,
            "end_offsets": ends[name],
        }
        for name, topic in sorted(found.items())
    ]
    show(rows, output, ("topic", "partitions", "replicas", "end_offsets"))


@app.command()
def publish(
    topic: str,
    key: Annotated[
        str, typer.Option("--key", "-k", help="The event's key: events of one key keep their order")
    ],
    event: Annotated[str, typer.Option("--json", "-j", help="The event as JSON; null is a tombstone")],
    timestamp_ms: Annotated[
        int | None, typer.Option(help="When it happened, milliseconds since 1970. Default: now")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Publish one event, encoded with the topic's latest schema. Prints the position that a read can wait for.

    Example: hub topic publish crm.customers -k C-00001 -j '{"event_id": "e1", ...}'
    """
    from hub.cli.mirror.write_guard import write_refusals
    from hub.topics.gateway.producer import Publisher

    try:
        value = orjson.loads(event)
    except orjson.JSONDecodeError as error:
        raise CallerError(f"--json: {error}", hint="quote it for the shell with single quotes") from None
    if value is not None and not isinstance(value, dict):
        raise CallerError("--json: an event is a JSON object, or null for a tombstone")
    settings = load_settings()
    cluster, registry = _connect(settings)
    if (refused := write_refusals(settings, cluster)(topic)) is not None:
        raise refused
    publisher = Publisher(cluster, registry)
    position = publisher.publish(topic, key, value, timestamp_ms)
    ((where, after),) = list(position)
    show_one(
        {"position": str(position), "topic": topic, "partition": where.partition, "offset": after - 1}, output
    )
    note("A read that is given the position waits until it includes this event:")
    url = f"{settings.url}/views/VIEW/{quote(key, safe='')}?after={position}"
    note(f"  curl '{url}'")  # a key that is quoted for a URL has no quotes for the shell


def _load(settings: Settings, file: Path | None) -> TopicTree:
    from hub.topics.tree.tree import load

    return load(file or settings.project / "topics.yaml", settings.replication_factor)


def _connect(settings: Settings) -> tuple[KafkaCluster, RegistryClient]:
    from hub.kafka import own_cluster
    from hub.schema_registry.client.registry_client import RegistryClient

    return own_cluster(settings), RegistryClient(settings.registry)


def _plan(
    settings: Settings, file: Path | None, destroy: Sequence[str] | None, allow_lower_durability: bool
) -> tuple[TreePlan, Facts, KafkaCluster, RegistryClient]:
    """Return the rehearsed plan, the digests of its inputs, and its clients."""
    from hub.topics.tree.apply_plan import compare, rehearsed
    from hub.topics.tree.plan import Allowed

    loaded = _load(settings, file)
    cluster, registry = _connect(settings)
    allowed = Allowed(frozenset(destroy or ()), allow_lower_durability)
    compared = compare(loaded, cluster, registry, allowed)
    return rehearsed(compared.plan, cluster), compared.facts, cluster, registry


def _saved_plan(settings: Settings, file: Path) -> tuple[TreePlan, KafkaCluster, RegistryClient]:
    """Return the plan in the file. Raises Conflict when its inputs have changed."""
    from hub.topics.tree.apply_plan import check_unchanged
    from hub.topics.tree.plan import TreePlan
    from hub.topics.tree.saved_plan import read

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f'file "{file}" does not exist', hint="make it: hub topic plan --save FILE") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f'file "{file}" cannot be read: {error}') from None
    saved = read(text, str(file))
    cluster, registry = _connect(settings)
    check_unchanged(saved, cluster, registry)
    return TreePlan(saved.steps), cluster, registry


def _show_plan(made: TreePlan, output: Output) -> None:
    if output is Output.json:
        from hub.topics.tree.saved_plan import as_json

        show_one(as_json(made), output)
        return
    for line in (*made.steps, *made.cautions, *made.refusals):
        print(line)
    _print_kept(made)
    note(f"{len(made.steps)} to change, {len(made.refusals)} refused.")


def _print_kept(made: TreePlan) -> None:
    from hub.topics.tree.saved_plan import destroy_command

    if not made.kept:
        return
    note("Not in the tree: kept (the command would destroy it, with all its events)")
    for name in made.kept[:_FEW]:
        note(f"  {name}   {destroy_command(name)}")
    if len(made.kept) > _FEW:
        note(f"  and {len(made.kept) - _FEW} more: hub topic plan -o json")


def _as_json(topic: Any) -> dict[str, object]:
    return {
        "topic": topic.name,
        "owner": topic.owner,
        "doc": topic.doc,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "config": dict(topic.config),
        "compatibility": topic.compatibility,
        "schema": str(topic.schema) if topic.schema else None,
        "key": topic.key,
        "tags": list(topic.tags),
        "slo": asdict(topic.slo),
        "set_by": dict(topic.set_by),
    }


def _draw(loaded: TopicTree) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.tree import Tree

    root = Tree("topics", guide_style="dim")
    nodes: dict[str, Any] = {"": root}
    for topic in loaded.topics:
        labels = topic.name.split(".")
        for depth in range(1, len(labels) + 1):
            path = ".".join(labels[:depth])
            if path not in nodes:
                nodes[path] = nodes[".".join(labels[: depth - 1])].add(labels[depth - 1])
        said = {
            "owner": topic.owner,
            "partitions": topic.partitions,
            "compatibility": topic.compatibility,
            **{f"slo.{name}": text for name, text in _promised(topic).items()},
            "tags": ", ".join(topic.tags) or None,
            **{f"config.{key}": value for key, value in topic.config.items()},
        }
        for key, value in said.items():
            if value not in (None, ""):
                by = topic.set_by.get(key, "(default)")
                origin = "" if by == topic.name else f"   [dim]from {by}[/dim]"
                nodes[topic.name].add(f"{key.removeprefix('config.')} = {escape(str(value))}{origin}")
        if topic.doc:
            nodes[topic.name].label = f"{labels[-1]}   [dim]{escape(topic.doc)}[/dim]"
    Console(emoji=False).print(root)


app.command()(conformance)
