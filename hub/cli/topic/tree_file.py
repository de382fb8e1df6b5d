"""[edge] Shared parts of the commands of ``hub topic``: the tree's file, the clients, options, exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.config import Settings
from hub.errors import CallerError

if TYPE_CHECKING:
    from hub.kafka import KafkaCluster
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.topics.tree.tree import TopicSpec, TopicTree


EXIT_REFUSED, EXIT_CHANGES = 1, 2
FEW = 10  # lines of a list that is only a remark
FileOption = Annotated[
    Path | None, typer.Option("--file", "-f", help="The tree. Default: topics.yaml of the project")
]


def objectives_of(spec: TopicSpec) -> dict[str, str]:
    """Return the objectives of a topic as texts, by name."""
    from hub.topics.tree.tree_file import LATENCY_SHARE

    slo = spec.slo
    targets = {"latency": slo.latency_ms, "freshness": slo.freshness_ms, "lag": slo.lag_ms}
    found = {name: f"{ms / 1000:g} s" for name, ms in targets.items() if ms is not None}
    if slo.latency_ms is not None and slo.latency_share != LATENCY_SHARE:
        found["latency"] += f" for {slo.latency_share * 100:g}%"
    if slo.completeness is not None:
        found["completeness"] = f"{slo.completeness * 100:g}%"
    return found


def write_file(path: Path, text: str) -> None:
    """Write the whole file; keep the old one when the disk is full or the folder is not writable."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CallerError(f'file "{path}" cannot be written: {error.strerror}') from None


def load_tree(settings: Settings, file: Path | None) -> TopicTree:
    from hub.topics.tree.tree import load

    return load(file or settings.project / "topics.yaml", settings.replication_factor)


def connect(settings: Settings) -> tuple[KafkaCluster, RegistryClient]:
    from hub.kafka import own_cluster
    from hub.schema_registry.client.registry_client import RegistryClient

    return own_cluster(settings), RegistryClient(settings.registry)
