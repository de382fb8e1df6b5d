"""[edge] ``hub topic describe``: one topic with its settings, sizes, schemas and readers."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.topic.tree_file import FileOption, load_tree, objectives_of
from hub.config import Settings

if TYPE_CHECKING:
    from hub.topics.browse.describe import DescribedTopic
    from hub.topics.tree.tree import TopicSpec


_ALWAYS_SHOWN = ("cleanup.policy", "min.insync.replicas", "retention.bytes", "retention.ms")


def describe(
    topic: str,
    file: FileOption = None,
    wait: Annotated[float, typer.Option(min=0.5, max=60, help="Longest wait, in seconds")] = 5.0,
    everything: Annotated[bool, typer.Option("--all", help="Also settings that are Kafka's default")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Show one topic: partitions, replicas, sizes, settings with their origin, owner, SLO, schemas, readers.

    Facts that do not arrive in time are marked as missing.
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
        note(f"Not available: {each}")


def _spec_if_any(
    settings: Settings, file: Path | None, topic: str
) -> tuple[TopicSpec | None, tuple[str, ...]]:
    """Return the tree's declaration of the topic. A missing tree gives None and a note; an unreadable one
    raises ConfigError.
    """
    path = file or settings.project / "topics.yaml"
    if file is None and not path.exists():
        return None, (f"owner, SLO and doc: no tree at {path}",)
    topic_spec = load_tree(settings, file).find(topic)
    return topic_spec, () if topic_spec is not None else (
        f"owner, SLO and doc: {path} does not name the topic",
    )


def _show_facts(facts: DescribedTopic, everything: bool) -> None:
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
    return ", ".join(f"{name} {text}" for name, text in objectives_of(spec).items())
