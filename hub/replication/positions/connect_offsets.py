"""[core] Records of Kafka Connect's offsets topic (offset.storage.topic), translated for the other region.

::

    key    ["connector", {"topic": "orders", "partition": 0, …}]     or [null, …] of other tools
    value  {"offset": 42}

Only source connectors write here. A connector that reads Kafka (a replicator, MirrorMaker) has positions of
topics, which are translated. Positions of databases and files hold in both regions and are copied. Sink
connectors have consumer groups instead (connect-NAME), which mirrors carry.

Source: ``OffsetStorageWriter`` of Kafka Connect; ``MirrorUtils.wrapPartition`` of MirrorMaker 2, whose value
is the last record that was read, not the next one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from hub.record import Record, TopicPartition
from hub.replication.positions.translation import MapsOfMirror, TranslatedPosition

Outcome = Literal["translated", "copied", "refused"]


@dataclass(frozen=True, slots=True)
class ConnectOffset:
    """One key of the offsets topic. ``value`` None: it is not written. ``number``: the topic's partition,
    which Connect's own producer chose by the key.
    """

    connector: str
    key: bytes
    number: int
    outcome: Outcome
    value: bytes | None
    position: TranslatedPosition | None = None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        position = self.position
        return {
            "connector": self.connector,
            "outcome": self.outcome,
            "topic": None if position is None else position.place.topic,
            "partition": None if position is None else position.place.partition,
            "offset": None if position is None else position.offset,
            "translated": None if position is None else position.translated,
            "why": self.why,
        }


def newest(records: Iterable[Record]) -> dict[bytes, tuple[int, bytes]]:
    """Return partition and newest value by key; keys that end with a tombstone are gone."""
    found: dict[bytes, tuple[int, bytes]] = {}
    for record in records:
        if record.key is None:
            continue
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.partition, record.value
    return found


def plan_offsets(
    values: Mapping[bytes, tuple[int, bytes]], source: str, maps: MapsOfMirror, *, back: bool = False
) -> list[ConnectOffset]:
    """Return the outcome of each key. ``source``: the cluster that the positions are of; those of another
    cluster (MirrorMaker names it) are copied.
    """
    return [
        _planned(key, number, value, source, maps, back) for key, (number, value) in sorted(values.items())
    ]


def _planned(
    key: bytes, number: int, value: bytes, source: str, maps: MapsOfMirror, back: bool
) -> ConnectOffset:
    try:
        connector, of = orjson.loads(key)
        body = orjson.loads(value)
    except (ValueError, TypeError):
        why = "its key or value is not JSON of Kafka Connect"
        return ConnectOffset("", key, number, "refused", None, why=why)
    name = connector if isinstance(connector, str) else ""
    place, offset = _position(of, body)
    if place is None or of.get("cluster", source) != source:
        why = "not a position of this cluster: copied as it is"
        return ConnectOffset(name, key, number, "copied", value, why=why)
    # MirrorMaker's value is the offset of the last record; with a cluster it is MirrorMaker's.
    last = 1 if "cluster" in of else 0
    translated_position = maps.translate(place, offset + last, back=back)
    if (
        not translated_position.is_exact
        or translated_position.translated is None
        or translated_position.translated < last
    ):
        return ConnectOffset(
            name,
            key,
            number,
            "refused",
            None,
            translated_position,
            translated_position.why or "nothing is before it there",
        )
    moved = orjson.dumps({**body, "offset": translated_position.translated - last})
    return ConnectOffset(name, key, number, "translated", moved, translated_position, translated_position.why)


def _position(of: Any, body: Any) -> tuple[TopicPartition | None, int]:
    if not isinstance(of, dict) or not isinstance(body, dict):
        return None, 0
    topic, partition, offset = of.get("topic"), of.get("partition"), body.get("offset")
    if not isinstance(topic, str) or type(partition) is not int or type(offset) is not int:
        return None, 0
    return (TopicPartition(topic, partition), offset) if partition >= 0 and offset >= 0 else (None, 0)


def digest_of(planned: Iterable[ConnectOffset]) -> str:
    """Return a short digest of a plan: of every key, its outcome and its new value."""
    rows = [[each.key.hex(), each.outcome, (each.value or b"").hex()] for each in planned]
    return hashlib.sha256(orjson.dumps(rows)).hexdigest()[:16]
