"""Check the dead-letter queues: each view must send every record that no schema can read, and no other
record.

``check_dead_letters`` decides from records; ``asked`` reads the queues. A view that was killed or built again
repeats its dead-letter records, so they are compared as sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline import records_of

from fault_suite.model import ORDERS, PEOPLE, Codec
from fault_suite.world import World
from hub.kafka import KafkaCluster
from hub.record import Record
from hub.schema_registry.codecs.wire_format import Undecodable
from hub.topics.dead_letters.model import DLQ_SUFFIX
from hub.topics.dead_letters.record_format import dead_letter_of

READ_BY: Mapping[str, tuple[str, ...]] = {
    ORDERS: ("customer_totals", "distinct_orders", "city_totals", "recent_customers"),
    PEOPLE: ("customer_totals",),
}
"""The views that read a topic."""
Spot = tuple[int, int]
"""Partition and offset of a record in its topic."""


def check_dead_letters(
    codec: Codec, records: Mapping[str, Sequence[Record]], queues: Mapping[str, Sequence[Record]]
) -> list[str]:
    """Return the differences, at most 5 for each topic. ``records``: the records of each topic of
    ``READ_BY``; ``queues``: the dead-letter records of each topic, by the name of the topic."""
    wrong: list[str] = []
    for topic, views in READ_BY.items():
        values = {(each.partition, each.offset): each.value for each in records[topic]}
        expected = {spot for spot, value in values.items() if not _is_readable(codec, value)}
        found = _sent(queues.get(topic, ()))
        of_topic = [
            *(_difference(topic, view, expected, found.get(view, {}), values) for view in views),
            [f"{topic}: a dead-letter record names no place" for _ in found.get("", {})],
        ]
        wrong += [each for some in of_topic for each in some][:5]
    return wrong


def _is_readable(codec: Codec, value: bytes | None) -> bool:
    if value is None:
        return True  # a tombstone
    try:
        codec.decode(value)
    except Undecodable:
        return False
    return True


def _sent(queue: Sequence[Record]) -> dict[str, dict[Spot, bytes | None]]:
    """Return the value of each dead-letter record, by view and place of the event;
    view "": the place is missing."""
    found: dict[str, dict[Spot, bytes | None]] = {}
    for record in queue:
        letter = dead_letter_of(record)
        if letter.of is None:
            found.setdefault("", {})[record.partition, record.offset] = record.value
        else:
            spot = letter.of.partition, letter.of.offset
            found.setdefault(letter.by.partition("@")[0], {})[spot] = letter.value
    return found


def _difference(
    topic: str,
    view: str,
    expected: set[Spot],
    found: Mapping[Spot, bytes | None],
    values: Mapping[Spot, bytes | None],
) -> list[str]:
    where = f"{topic}{DLQ_SUFFIX}"
    return [
        *(f"{where} lacks {spot} of {view}" for spot in sorted(expected - found.keys())),
        *(f"{where} has {spot} of {view}, which can be read" for spot in sorted(found.keys() - expected)),
        *(
            f"{where} has other bytes at {spot} of {view}"
            for spot in sorted(found.keys() & expected)
            if found[spot] != values[spot]
        ),
    ]


def asked(world: World) -> dict[str, list[Record]]:
    """Read each dead-letter queue that exists, past the links."""
    cluster = KafkaCluster(world.home.bootstrap, 15.0)
    there = cluster.topics()
    return {
        topic: records_of(cluster, f"{topic}{DLQ_SUFFIX}")
        for topic in READ_BY
        if f"{topic}{DLQ_SUFFIX}" in there
    }
