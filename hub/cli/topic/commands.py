"""[edge] ``hub topic``: its commands in their order, and the short ones:
draw the tree, list topics, publish an event."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.topic.apply import apply, plan
from hub.cli.topic.conformance import conformance
from hub.cli.topic.describe import describe
from hub.cli.topic.drift import drift
from hub.cli.topic.import_tree import import_topics
from hub.cli.topic.repairing.generations import consume, generations
from hub.cli.topic.repairing.repair import repair
from hub.cli.topic.tree_file import FileOption, connect, load_tree, objectives_of
from hub.errors import CallerError

if TYPE_CHECKING:
    from hub.topics.tree.tree import TopicTree


app = typer.Typer(
    help="Topics: the tree, its plan, applying it, and what differs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Example: hub topic plan && hub topic apply",
)


def tree(file: FileOption = None, output: OutputOption = Output.table) -> None:
    """Draw the tree with every topic's effective settings and which node set them. Needs no Kafka.

    Example: hub topic tree -f examples/flights/topics.yaml
    """
    from hub.topics.tree.tree import collisions

    loaded = load_tree(load_settings(), file)
    for group in collisions(topic.name for topic in loaded.topics):
        note(
            f"! {' and '.join(group)} are one name in Kafka's metrics (_ for .): a broker "
            "takes one of them only"
        )
    if output is Output.json:
        show([_as_json(topic) for topic in loaded.topics], output)
        return
    draw(loaded)


def list_topics(output: OutputOption = Output.table) -> None:
    """List the topics of the cluster: partitions and the number of records that were ever appended.

    Example: hub topic ls -o json
    """
    cluster, _ = connect(load_settings())
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
    """Publish one event, encoded with the topic's latest schema. Prints the position that a read can wait
    for.

    A time may be a text such as "2026-01-01T09:00:00Z", as in the HTTP gateway.

    Example: hub topic publish crm.customers -k C-00001 -j '{"event_id": "e1", ...}'
    """
    from hub.cli.mirror.write_guard import write_refusals
    from hub.schema_registry.encryption.serving import use_remote_keys
    from hub.topics.gateway.producer import Publisher
    from hub.topics.tree.erasable import seal_by_tree

    try:
        value = orjson.loads(event)
    except orjson.JSONDecodeError as error:
        raise CallerError(f"--json: {error}", hint="quote it for the shell with single quotes") from None
    if value is not None and not isinstance(value, dict):
        raise CallerError("--json: an event is a JSON object, or null for a tombstone")
    settings = load_settings()
    cluster, registry = connect(settings)
    if (refused := write_refusals(settings, cluster)(topic)) is not None:
        raise refused
    use_remote_keys(settings)
    seal_by_tree(settings.project, settings.erase_kek)
    publisher = Publisher(cluster, registry, json_events=True)
    position = publisher.publish(topic, key, value, timestamp_ms)
    ((where, after),) = list(position)
    show_one(
        {"position": str(position), "topic": topic, "partition": where.partition, "offset": after - 1}, output
    )
    note("A read that is given the position waits until it includes this event:")
    url = f"{settings.url}/views/VIEW/{quote(key, safe='')}?after={position}"
    note(f"  curl '{url}'")  # a key that is quoted for a URL has no quotes for the shell


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
        "erasable_by": topic.erasable.by if topic.erasable else None,
        "erasable_fields": sorted(topic.erasable.names) if topic.erasable else [],
        "legal_hold": topic.legal_hold,
        "slo": asdict(topic.slo),
        "set_by": dict(topic.set_by),
    }


def draw(loaded: TopicTree) -> None:
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
        facts = {
            "owner": topic.owner,
            "partitions": topic.partitions,
            "compatibility": topic.compatibility,
            **{f"slo.{name}": text for name, text in objectives_of(topic).items()},
            "tags": ", ".join(topic.tags) or None,
            **{f"config.{key}": value for key, value in topic.config.items()},
        }
        for key, value in facts.items():
            if value not in (None, ""):
                by = topic.set_by.get(key, "(default)")
                origin = "" if by == topic.name else f"   [dim]from {by}[/dim]"
                nodes[topic.name].add(f"{key.removeprefix('config.')} = {escape(str(value))}{origin}")
        if topic.doc:
            nodes[topic.name].label = f"{labels[-1]}   [dim]{escape(topic.doc)}[/dim]"
    Console(emoji=False).print(root)


# In this order in `hub topic --help`.
app.command()(tree)
app.command()(plan)
app.command()(apply)
app.command()(drift)
app.command()(describe)
app.command("import")(import_topics)
app.command("ls")(list_topics)
app.command()(publish)
app.command()(conformance)
app.command()(repair)
app.command()(generations)
app.command()(consume)
