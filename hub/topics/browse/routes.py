"""[edge] FastAPI: list and describe topics, and publish one event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from hub.caller import sees_topic
from hub.errors import HubError, NotFound, PeerError, did_you_mean
from hub.kafka import KafkaCluster
from hub.log import TopicDescription
from hub.record import Positions
from hub.schema_registry.client.port import SchemaRegistry
from hub.topics.gateway.admission import spend_event
from hub.topics.gateway.producer import Publisher
from hub.topics.tree.tree import LiveTree, TopicSpec

# Each request holds one of the server's 40 threads while Kafka is slow or unavailable; views must stay
# readable.
_MOST_AT_ONCE = 16


class EventBody(BaseModel, extra="forbid"):
    """One event: its key as text, its value as JSON (null: a tombstone), its time."""

    key: str = Field(min_length=1, max_length=1_000)
    value: dict[str, Any] | None
    timestamp_ms: int | None = None


def _rows(topics: Mapping[str, TopicDescription], ends: Positions) -> dict[str, dict[str, Any]]:
    """Return rows of the list by topic, sorted, with the sum of end offsets."""
    sums: dict[str, int] = dict.fromkeys(topics, 0)
    for tp, offset in ends:
        sums[tp.topic] += offset
    return {
        name: {
            "topic": name,
            "partitions": topic.partitions,
            "replication_factor": topic.replication_factor,
            "end_offsets": sums[name],
        }
        for name, topic in sorted(topics.items())
    }


def _specs(tree: LiveTree | None) -> tuple[Mapping[str, TopicSpec], dict[str, str]]:
    """Return the tree's topics by name, and its error as part of an answer."""
    if tree is None or not tree.path.exists():
        return {}, {}
    known = tree.topics()
    return known, {} if tree.error is None else {"tree_error": tree.error.message}


def _topic_body(cluster: KafkaCluster, topic: str) -> dict[str, Any]:
    """Return a topic's settings and partitions. Raises NotFound with a similar name."""
    found = cluster.topics()
    if topic not in found:
        raise NotFound(
            f'topic "{topic}" does not exist', hint=did_you_mean(topic, filter(sees_topic, found), None)
        )
    begin, end = cluster.beginning_offsets([topic]), cluster.end_offsets([topic])
    partitions = [
        {"partition": tp.partition, "begin": begin.get(tp), "end": offset} for tp, offset in sorted(end)
    ]
    return {"topic": topic, "config": cluster.topic_config([topic])[topic], "partitions": partitions}


def create_router(
    cluster: KafkaCluster,
    registry: SchemaRegistry,
    tree_file: Path | None = None,
    refuses: Callable[[str], HubError | None] = lambda _topic: None,
) -> APIRouter:
    """Build the topic routes for one cluster.

    With ``tree_file`` (topics.yaml, reloaded on change) topics include owner, doc and tags. An invalid file
    keeps the previous tree, and answers carry ``tree_error``. ``refuses`` returns the reason why a topic
    takes no event here, None if it does.
    """
    router = APIRouter(tags=["topics"])
    publisher = Publisher(cluster, registry, schema_age_s=0.0, json_events=True)
    publishing = threading.BoundedSemaphore(_MOST_AT_ONCE)
    specs = partial(_specs, None if tree_file is None else LiveTree(tree_file))

    @router.get("/topics")
    def topics() -> Response:
        """List every topic: partitions, replicas, sum of end offsets, and its declarations in the tree."""
        found = {name: topic for name, topic in cluster.topics().items() if sees_topic(name)}
        declared, file_error = specs()
        rows = _rows(found, cluster.end_offsets(list(found)))
        listed = [{**row, **_described(declared.get(name), file_error)} for name, row in rows.items()]
        return _json({"topics": listed, "tree": nested(list(rows)), **file_error})

    @router.get("/topics/{topic}")
    def topic(topic: str) -> Response:
        """One topic with its settings and where each partition begins and ends."""
        found = _topic_body(cluster, topic)
        declared, file_error = specs()
        return _json({**found, **_described(declared.get(topic), file_error), **file_error})

    @router.post("/topics/{topic}/records")
    def publish(topic: str, body: EventBody) -> Response:
        """Publish one event. The answer's ``position`` makes a read include it: ``?after=<position>``."""
        if not publishing.acquire(blocking=False):
            raise PeerError(f"{_MOST_AT_ONCE} events are being published already", hint="try again")
        try:
            if (refused := refuses(topic)) is not None:
                raise refused
            spend_event(topic, body.value)
            position = publisher.publish(topic, body.key, body.value, body.timestamp_ms)
        finally:
            publishing.release()
        ((where, offset),) = list(position)
        answer = {"position": str(position), "partition": where.partition, "offset": offset - 1}
        return _json(answer, {"Hub-Position": str(position)})

    return router


def _described(spec: TopicSpec | None, file_error: Mapping[str, str]) -> dict[str, object]:
    """Return the tree's fields of a topic. ``managed`` is false if the tree does not name it, null while the
    file is invalid.
    """
    if spec is None:
        return {"managed": None if file_error else False}
    return {"managed": True, "owner": spec.owner, "doc": spec.doc, "tags": list(spec.tags)}


def nested(names: Iterable[str]) -> dict[str, Any]:
    """Arrange names as a tree of labels: ``{label: {"topic": name, "topics": {...}}}``, each key only where
    it applies.

    >>> nested(["crm.customers", "crm"])
    {'crm': {'topics': {'customers': {'topic': 'crm.customers'}}, 'topic': 'crm'}}
    """
    root: dict[str, Any] = {}
    for name in names:
        node: dict[str, Any] = {"topics": root}
        for label in name.split("."):
            node = node.setdefault("topics", {}).setdefault(label, {})
        node["topic"] = name
    return root


def _json(body: object, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), 200, headers, "application/json")
