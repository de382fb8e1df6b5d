"""[edge] ``hub topic``: the tree in git, what it would change, carrying it out, and one event in by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.output import Output, OutputOption, note, show, show_one
from hub.config import Settings
from hub.errors import CallerError, HubError, NotFound, nearest

if TYPE_CHECKING:
    from hub.kafka import KafkaCluster
    from hub.schema_registry.client import RegistryClient
    from hub.topics.plan import Plan
    from hub.topics.tree import TopicTree

EXIT_CHANGES = 3

app = typer.Typer(
    help="Topics: the tree, its plan, applying it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub topic plan && hub topic apply",
)

FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The tree. Default: topics.yaml of the project")
]

PruneOption = Annotated[
    bool, typer.Option("--prune", help="Delete topics that no file names, where the tree says `prune: true`")
]
DurabilityOption = Annotated[
    bool,
    typer.Option(
        "--allow-lower-durability", help="Allow settings by which the log keeps less, or less safely"
    ),
]


@app.command()
def tree(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Draw the tree with every topic's effective settings and which node set them. Needs no Kafka."""
    loaded = _load(load_settings(), file)
    if output is Output.json:
        show([_as_json(topic) for topic in loaded.topics], output)
        return
    _draw(loaded)


@app.command()
def plan(
    file: FileOption = None,
    output: OutputOption = Output.table,
    prune: PruneOption = False,
    allow_lower_durability: DurabilityOption = False,
    detailed_exitcode: Annotated[
        bool, typer.Option(help="Exit 3 when there is something to change, 4 when something is refused")
    ] = False,
) -> None:
    """Show what `apply` would change: topics, settings, schemas; and what is refused, with the way out.

    Example: hub topic plan --detailed-exitcode   (for CI)
    """
    made = _plan(load_settings(), file, prune, allow_lower_durability)[0]
    _show_plan(made, output)
    if made.refusals:
        raise typer.Exit(4 if detailed_exitcode else 1)
    if made.steps and detailed_exitcode:
        raise typer.Exit(EXIT_CHANGES)


@app.command()
def apply(
    file: FileOption = None,
    prune: PruneOption = False,
    allow_lower_durability: DurabilityOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Make the cluster and the registry like the tree. Nothing is done while something is refused.

    What was cut off is finished by the next apply. Without --prune nothing is deleted.
    """
    from hub.topics.apply import apply as carry_out

    made, cluster, registry = _plan(load_settings(), file, prune, allow_lower_durability)
    done: list[str] = []

    def say(step: object) -> None:
        done.append(str(step))
        note(f"[{len(done)}/{len(made.steps)}] {step}")

    _note_unmanaged(made)
    try:
        carry_out(made, cluster, registry, say)
    except HubError:
        if done:
            note(f"{len(done)} of {len(made.steps)} are done; apply again for the rest.")
        raise
    if output is Output.json:
        show_one({"done": done}, output)
    note(f"{len(done)} changed." if done else "Nothing to change.")


@app.command("ls")
def list_topics(output: OutputOption = Output.table) -> None:
    """The topics of the cluster: partitions and how many records were ever appended."""
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


@app.command("show")
def show_topic(topic: str, output: OutputOption = Output.table) -> None:
    """One topic: its settings, and where each partition begins and ends."""
    cluster, _ = _connect(load_settings())
    found = cluster.topics()
    if topic not in found:
        guess = nearest(topic, found)
        raise NotFound(
            f'topic "{topic}" does not exist', hint=f'did you mean "{guess}"?' if guess else "hub topic ls"
        )
    begin = cluster.beginning_offsets([topic])
    offsets = {str(tp.partition): [begin.get(tp), end] for tp, end in sorted(cluster.end_offsets([topic]))}
    show_one(
        {"topic": topic, "config": dict(cluster.topic_config([topic])[topic]), "offsets": offsets}, output
    )


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
    from hub.topics.producer import Publisher

    try:
        value = orjson.loads(event)
    except orjson.JSONDecodeError as error:
        raise CallerError(f"--json: {error}", hint="quote it for the shell with single quotes") from None
    if value is not None and not isinstance(value, dict):
        raise CallerError("--json: an event is a JSON object, or null for a tombstone")
    settings = load_settings()
    publisher = Publisher(*_connect(settings))
    position = publisher.publish(topic, key, value, timestamp_ms)
    ((where, after),) = list(position)
    show_one(
        {"position": str(position), "topic": topic, "partition": where.partition, "offset": after - 1}, output
    )
    note("A read that is given the position waits until it includes this event:")
    note(f"  curl 'http://{settings.http_host}:{settings.http_port}/views/VIEW/{key}?after={position}'")


def _load(settings: Settings, file: Path | None) -> TopicTree:
    from hub.topics.tree import load

    return load(file or settings.project / "topics.yaml", settings.replication_factor)


def _connect(settings: Settings) -> tuple[KafkaCluster, RegistryClient]:
    from hub.kafka import KafkaCluster
    from hub.schema_registry.client import RegistryClient

    return KafkaCluster(settings.bootstrap, settings.kafka_timeout_s), RegistryClient(settings.registry)


def _plan(
    settings: Settings, file: Path | None, prune: bool, allow_lower_durability: bool
) -> tuple[Plan, KafkaCluster, RegistryClient]:
    from hub.topics.apply import make_plan
    from hub.topics.plan import Allowed

    loaded = _load(settings, file)
    cluster, registry = _connect(settings)
    allowed = Allowed(prune=prune, lower_durability=allow_lower_durability)
    return make_plan(loaded, cluster, registry, allowed), cluster, registry


def _show_plan(made: Plan, output: Output) -> None:
    if output is Output.json:
        show_one(
            {
                "steps": [{"step": type(step).__name__, "text": str(step)} for step in made.steps],
                "refusals": [
                    {"topic": each.topic, "reason": each.reason, "hint": each.hint} for each in made.refusals
                ],
                "unmanaged": list(made.unmanaged),
                "prunable": list(made.prunable),
            },
            output,
        )
        return
    for step in made.steps:
        print(step)
    for refusal in made.refusals:
        print(refusal)
    _note_unmanaged(made)
    note(f"{len(made.steps)} to change, {len(made.refusals)} refused.")


def _note_unmanaged(made: Plan) -> None:
    from hub.topics.plan import DeleteTopic

    deleted = {step.name for step in made.steps if isinstance(step, DeleteTopic)}
    left = [name for name in made.unmanaged if name not in deleted]
    if left:
        note(f"In the cluster but not in the tree, left alone: {', '.join(left)}")
    if made.prunable and not deleted:
        note(f"--prune would delete: {', '.join(made.prunable)}")


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
        "tags": list(topic.tags),
        "set_by": dict(topic.set_by),
    }


def _draw(loaded: TopicTree) -> None:
    from rich.console import Console
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
            **{f"config.{key}": value for key, value in topic.config.items()},
        }
        for key, value in said.items():
            if value not in (None, ""):
                by = topic.set_by.get(key, "(default)")
                origin = "" if by == topic.name else f"   [dim]from {by}[/dim]"
                nodes[topic.name].add(f"{key.removeprefix('config.')} = {value}{origin}")
        if topic.doc:
            nodes[topic.name].label = f"{labels[-1]}   [dim]{topic.doc}[/dim]"
    Console().print(root)
