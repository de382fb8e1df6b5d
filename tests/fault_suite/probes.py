"""Probes: one thread for each service sends a small request repeatedly. The successes give the recovery time
after a fault.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import httpx2
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from patience import patient

from fault_suite.model import PROBES
from fault_suite.world import World

SERVICES = ("registry", "reads", "gateway", "materializer", "mirror")


class Probe:
    """Calls ``ask`` in a thread; keeps when each success began and ended (time.monotonic seconds)."""

    service = ""
    pause_s = 0.2

    def __init__(self, world: World) -> None:
        self.world = world
        self.successes: list[tuple[float, float]] = []
        self.failure = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"probe.{self.service}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                if self.ask():
                    self.successes.append((began, time.monotonic()))
            except Exception as error:  # noqa: BLE001 (whatever it is, it is told when nothing works again)
                self.failure = f"{type(error).__name__}: {error}"[:300]
            self._stop.wait(self.pause_s)

    def ask(self) -> bool:
        raise NotImplementedError

    def recovered_s(self, since: float) -> float | None:
        """Seconds from ``since`` to the end of the first success that began after it;
        None: there is none yet."""
        found = next(((began, ended) for began, ended in self.successes if began >= since), None)
        return None if found is None else found[1] - since


class RegistryProbe(Probe):
    """A schema is registered in one subject, then in another one at the other node, and read by its id at the
    node that did not register it."""

    service = "registry"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.numbers = itertools.count()
        self.client = httpx2.Client(timeout=patient(3.0))
        self.ids: dict[int, str] = {}
        """Id → the schema's text that was acknowledged under it."""
        self.id_of: dict[str, int] = {}

    def ask(self) -> bool:
        number = next(self.numbers)
        urls = list(self.world.urls.values())
        at, other = urls if number % 2 else reversed(urls)
        field = {"name": f"f{number // 2 % 50}", "type": "int", "default": 0}
        text = json.dumps({"type": "record", "name": "S", "fields": [field]})
        path = f"/subjects/faults-{number % 20}/versions"
        answer = self.client.post(f"{at}{path}", json={"schema": text})
        if answer.status_code != 200:
            self.failure = f"{answer.status_code} {answer.text[:200]}"
            return False
        schema_id = int(answer.json()["id"])
        known = self.ids.setdefault(schema_id, text)
        if json.loads(known) != json.loads(text):
            self.world.journal.accuse(f"registry: id {schema_id} stands for two schemas: {known} and {text}")
        first_id = self.id_of.setdefault(text, schema_id)
        if first_id != schema_id:
            self.world.journal.accuse(f"registry: a schema has the ids {first_id} and {schema_id}: {text}")
        back = self.client.get(f"{other}/schemas/ids/{schema_id}")
        if back.status_code == 404:
            self.world.journal.accuse(
                f"registry: {other} does not know id {schema_id} that {at} had "
                f"acknowledged: {back.text[:200]}"
            )
        return back.status_code == 200


class ReadProbe(Probe):
    """A row by key, whatever its age: reads are never down while a server runs."""

    service = "reads"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.client = httpx2.Client(timeout=patient(3.0))

    def ask(self) -> bool:
        answer = self.client.get(f"{self.world.settings.url}/views/city_totals/Oslo")
        self.failure = f"{answer.status_code} {answer.text[:200]}"
        return answer.status_code in (200, 404) and "HUB-1402" not in answer.text


class GatewayProbe(Probe):
    """A record is taken over HTTP."""

    service = "gateway"
    pause_s = 0.4

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.client = httpx2.Client(timeout=patient(5.0))
        self.numbers = itertools.count()

    def ask(self) -> bool:
        answer = self.client.post(
            f"{self.world.settings.url}/v3/clusters/-/topics/{PROBES}/records",
            json={"value": {"data": {"id": "gateway", "n": next(self.numbers)}}},
        )
        self.failure = f"{answer.status_code} {answer.text[:200]}"
        return answer.status_code == 200


class _Produced(Probe):
    """Base of probes that append a record directly to the broker and wait for its effect."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.producer = Producer({"bootstrap.servers": world.home.bootstrap, "linger.ms": 0})
        self.numbers = itertools.count(1)

    def append(self, number: int) -> tuple[int, int] | None:
        """(partition, offset) of the record, None when Kafka did not take it within 5 s."""
        told: list[tuple[int, int]] = []

        def heard(error: Any, message: Any) -> None:
            if error is None:
                told.append((message.partition(), message.offset()))

        value = self.world.codec.encode(PROBES, {"id": self.service, "n": number})
        self.producer.produce(PROBES, value, self.service.encode(), on_delivery=heard)
        self.producer.flush(5.0)
        return told[0] if told else None

    def ask(self) -> bool:
        number = next(self.numbers)
        place = self.append(number)
        if place is None:
            self.failure = "Kafka did not take the event within 5 s"
            return False
        deadline = time.monotonic() + patient(30.0)
        while time.monotonic() < deadline and not self._stop.is_set():
            try:
                if self.arrived(number, place):
                    return True
            except (httpx2.HTTPError, KafkaException) as error:
                self.failure = f"{type(error).__name__}: {error}"
                self.lost()
            self._stop.wait(0.1)
        return False

    def arrived(self, number: int, place: tuple[int, int]) -> bool:
        """Check once, for at most some seconds, for the effect of a record."""
        raise NotImplementedError

    def lost(self) -> None:
        """Called after an error of a connection."""


class MaterializerProbe(_Produced):
    """An event's row is served."""

    service = "materializer"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.client = httpx2.Client(timeout=12.0)

    def arrived(self, number: int, place: tuple[int, int]) -> bool:
        token = f"{PROBES}:{place[0]}:{place[1] + 1}"
        answer = self.client.get(
            f"{self.world.settings.url}/views/last_probe/{self.service}",
            params={"after": token, "timeout_ms": "2000"},
        )
        self.failure = f"{answer.status_code} {answer.text[:200]}"
        if answer.status_code == 200 and answer.json()["n"] < number:
            self.world.journal.accuse(f"token {token}: last_probe has {answer.json()['n']}, not {number}")
        return answer.status_code == 200


class MirrorProbe(_Produced):
    """A record is in the copy in the other region."""

    service = "mirror"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.consumer: Consumer | None = None
        self.newest = 0
        """The highest number that was read from the copy."""

    def arrived(self, number: int, place: tuple[int, int]) -> bool:
        if self.consumer is None:
            self.consumer = Consumer(
                {
                    "bootstrap.servers": self.world.away.bootstrap,
                    "group.id": "faults-probe",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    # one fault writes a batch that unpacks to 100 MB
                    "receive.message.max.bytes": 400_000_000,
                }
            )
            _, high = self.consumer.get_watermark_offsets(TopicPartition(PROBES, place[0]), timeout=5.0)
            self.consumer.assign([TopicPartition(PROBES, place[0], max(0, high - 200))])
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            message = self.consumer.poll(0.1)
            if message is None or message.error() is not None or message.key() != self.service.encode():
                continue
            value = message.value()
            assert value is not None
            self.newest = max(self.newest, int(self.world.codec.decode(value)["n"]))
            if self.newest >= number:
                return True
        self.failure = f"the copy has record {self.newest} of {number}"
        return False

    def lost(self) -> None:
        if self.consumer is not None:
            self.consumer.close()
        self.consumer = None


PROBES_OF: Mapping[str, type[Probe]] = {
    each.service: each for each in (RegistryProbe, ReadProbe, GatewayProbe, MaterializerProbe, MirrorProbe)
}
