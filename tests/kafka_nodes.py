"""Kafkas of tests' own: started, ready, and stopped at the end.

Kafka's own tool formats the folder of the first of them in each process. The next ones get what it wrote
there, with ids of their own, and so start one JVM instead of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from patience import patient
from ports import free_pair

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.embedded.kafka_node import new_cluster_id
from hub.kafka.protocol.record_batch import batches_in
from hub.record import TopicPartition

Kind = TypeVar("Kind", bound=KafkaNode)

_written: bytes | None = None
"""The features of a new cluster, as the tool of this Kafka writes them; nothing in it is of one cluster."""


@contextmanager
def running_node(made: Kind) -> Iterator[Kind]:
    """A test may hurt it, and start it again."""
    global _written
    data = made.folder / "data"
    of_this_kafka = type(made).jars is KafkaNode.jars
    if of_this_kafka and _written is not None and not data.exists():
        data.mkdir(parents=True)
        (data / "bootstrap.checkpoint").write_bytes(_written)
        ids = f"cluster.id={new_cluster_id()}\ndirectory.id={new_cluster_id()}\n"
        (data / "meta.properties").write_text(f"version=1\nnode.id=1\n{ids}")
    made.start()
    try:
        made.wait_ready(patient(60.0))
        if of_this_kafka and _written is None:
            _written = (data / "bootstrap.checkpoint").read_bytes()
        yield made
    finally:
        made.stop()


@contextmanager
def own_node(home: Path, kind: type[Kind] = KafkaNode) -> Iterator[Kind]:  # type: ignore[assignment]
    """On free ports."""
    port = free_pair()
    with running_node(kind(Settings(home=home, kafka_port=port, bootstrap=f"127.0.0.1:{port}"))) as made:
        yield made


@contextmanager
def killed(node: KafkaNode) -> Iterator[None]:
    """Kill a broker like a power failure, except for changes to its files meanwhile. Its partitions then
    have a new leader epoch."""
    assert node.process is not None
    node.process.kill()
    node.process.wait(10)
    yield
    node.start()
    node.wait_ready()


def log_of(node: KafkaNode, tp: TopicPartition) -> Path:
    (segment,) = (node.folder / "data" / f"{tp.topic}-{tp.partition}").glob("*.log")
    return segment


def write_log(segment: Path, batches: Sequence[bytes]) -> None:
    """Replace the content of its partition; Kafka derives the rest again."""
    segment.write_bytes(b"".join(batches))
    for derived in ("*.index", "*.timeindex", "leader-epoch-checkpoint"):
        for path in segment.parent.glob(derived):
            path.unlink()


def batches_of(segment: Path) -> list[bytes]:
    return [bytes(batch.view) for batch in batches_in(bytearray(segment.read_bytes()))]


@contextmanager
def often_cleaned(bootstrap: str) -> Iterator[None]:
    """Run compaction continuously, not every 15 s."""
    _alter(
        bootstrap, ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    )
    try:
        yield
    finally:
        _alter(
            bootstrap,
            ConfigEntry("log.cleaner.backoff.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        )


def _alter(bootstrap: str, entry: ConfigEntry) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([broker]).values():
        changed.result(60)
