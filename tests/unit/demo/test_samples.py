"""The sample events: repeatable, with every disturbance a real feed has, valid under their schemas;
the oracle's laws."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fastavro
import pytest

from hub.demo import customers, flights
from hub.demo.feeder import last_numbers
from hub.errors import PeerError
from hub.log import MemoryCluster, MemoryReader
from hub.record import NewRecord

EXAMPLES = Path(__file__).parents[3] / "examples"
EVENTS = list(customers.generate(3, 120, 9_000))


class Slow(MemoryCluster):
    """Its readers are given nothing."""

    timeout_s = 0.05

    def reader(self) -> MemoryReader:
        made = MemoryReader(self)
        made.poll = lambda limit, timeout_s: ()  # type: ignore[method-assign]
        return made


def test_what_cannot_be_read_in_time_is_not_taken_for_missing() -> None:
    """All of it would be appended once more."""
    cluster = Slow()
    cluster.create_topic("t", partitions=1, config={}, replication_factor=1)
    cluster.writer().append([NewRecord("t", b"k", b"v", (("hub.demo", b"0:1"),))])
    with pytest.raises(PeerError, match="are not read in"):
        last_numbers(cluster, ["t"])  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_stream_and_another_seed_another() -> None:
    assert list(customers.generate(3, 120, 9_000)) == EVENTS
    assert list(customers.generate(4, 120, 9_000)) != EVENTS


def test_a_longer_stream_begins_with_the_shorter_one() -> None:
    assert list(customers.generate(3, 120, 9_500))[:9_000] == EVENTS


def test_the_clock_changes_times_and_nothing_else() -> None:
    stream = customers.Stream(3, 120)
    for _ in range(500):
        next(iter(stream))
    live = stream.at(lambda: 42)
    for event in EVENTS[500:900]:
        again = next(live)
        assert (again.topic, again.key, again.value is None) == (event.topic, event.key, event.value is None)


def test_every_disturbance_is_in_the_stream() -> None:
    ids = Counter(event.value["event_id"] for event in EVENTS if event.value)
    assert max(ids.values()) > 1, "duplicates"
    deleted = [event.key for event in EVENTS if event.value and event.value.get("deleted")]
    tombstones = [event.key for event in EVENTS if event.value is None]
    assert deleted and tombstones
    last = {
        key: index
        for index, event in enumerate(EVENTS)
        for key in [event.key]
        if event.topic == customers.CUSTOMERS
    }
    assert any(EVENTS[last[key]].value and not EVENTS[last[key]].value["deleted"] for key in deleted), (
        "came back"
    )  # type: ignore[index]
    times: dict[tuple[str, str], int] = {}
    late = 0
    for event in EVENTS:
        late += event.timestamp_ms < times.get((event.topic, event.key), 0)
        times[event.topic, event.key] = event.timestamp_ms
    assert late > 20


@pytest.mark.parametrize("topic", customers.TOPICS)
def test_every_event_fits_its_schema(topic: str) -> None:
    schema = fastavro.parse_schema(
        json.loads((EXAMPLES / "customer-360" / "schemas" / f"{topic}.avsc").read_text())
    )
    values = [event.value for event in EVENTS if event.topic == topic and event.value]
    assert values
    for value in values:
        assert fastavro.validate(value, schema)


def test_delivering_everything_twice_changes_no_row() -> None:
    assert customers.fold([*EVENTS, *(event for event in EVENTS if event.value)]) == customers.fold(EVENTS)


def test_the_data_package_has_every_flight() -> None:
    folder = flights.data_folder()
    found = list(flights.departures(folder))
    assert len(found) == flights.FLIGHTS
    first = found[0].value
    assert first is not None
    # UA 1545 left Newark on New Year's Day, scheduled 05:15 in New York: 10:15 UTC.
    assert (first["flight"], first["scheduled_at"]) == (1545, 1_357_035_300_000)
    assert sum(event.value["tailnum"] is None for event in found if event.value) == 2_512
    ids = {event.value["flight_id"] for event in found if event.value}
    assert len(ids) == flights.FLIGHTS
