"""Writers of a trial. Each is a thread that keeps writing through every fault and records
the acknowledgements."""

from __future__ import annotations

import base64
import itertools
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from fault_suite.journal import Event, Journal
from fault_suite.model import CITIES, CUSTOMERS, OLD_CUSTOMERS, OLD_MS, ORDERS, PEOPLE, VISITORS, Codec

_DELIVERY_MS = 600_000
_ANSWER_S = 20.0
_PAUSE_S = 0.3


@dataclass
class Source:
    """Generates events by seed; ids and ``seq`` are unique over all writers of a trial."""

    seed: int
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    schema_id: int | None = None
    """Id of the orders' schema that is written; None: the first one. A fault changes it."""

    def order(self, chance: random.Random) -> Event:
        number = next(self.numbers)
        return {
            "id": f"o{number}",
            "customer": f"v{number}" if chance.random() < VISITORS else f"c{chance.randrange(CUSTOMERS)}",
            "city": chance.choice(CITIES),
            "cents": chance.randrange(1, 10_000),
            "seq": number,
            "channel": "app",
        }

    def person(self, chance: random.Random) -> Event:
        number = next(self.numbers)
        customer = f"c{chance.randrange(CUSTOMERS)}"
        return {"id": f"p{number}", "customer": customer, "name": f"{customer} the {number}th"}


class Writer:
    """A thread that calls ``write`` about ``per_s`` times a second until ``stop``;
    ``limit`` events at most."""

    def __init__(self, name: str, journal: Journal, source: Source, codec: Codec, per_s: float) -> None:
        self.name, self.journal, self.source, self.codec, self.per_s = name, journal, source, codec, per_s
        self.chance = random.Random(f"{source.seed}/{name}")
        self.limit: Callable[[], bool] = lambda: False
        """Returns True if enough was written: the writer then pauses."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop after the current write is acknowledged or abandoned."""
        self._stop.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.journal.accuse(
                f"writer {self.name} did not end within {timeout_s:.0f} s: a wait without a bound"
            )

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def _run(self) -> None:
        due = time.monotonic()
        while not self.stopping:
            if self.limit():
                self._stop.wait(0.1)
                continue
            due = max(due + 1.0 / self.per_s, time.monotonic() - 2.0)  # catch up after a fault
            try:
                self.write()
            except Exception as error:  # noqa: BLE001 (the trial fails by it)
                self.journal.accuse(f"writer {self.name}: {type(error).__name__}: {error}")
                return
            self._stop.wait(max(0.0, due - time.monotonic()))
        self.close()

    def write(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Whatever is under way is waited for."""


class KafkaWriter(Writer):
    """Writes orders, and sometimes people, with an idempotent producer that never gives up a record."""

    def __init__(
        self, name: str, journal: Journal, source: Source, codec: Codec, per_s: float, bootstrap: str
    ) -> None:
        super().__init__(name, journal, source, codec, per_s)
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": _DELIVERY_MS,
                "linger.ms": 5,
                "compression.type": self.chance.choice(("none", "lz4", "zstd")),
                "socket.timeout.ms": 10_000,
            }
        )

    def write(self) -> None:
        if self.chance.random() < 0.1:
            event = self.source.person(self.chance)
            gone = self.chance.random() < 0.15
            value = None if gone else self.codec.encode(PEOPLE, event)
            self._produce(PEOPLE, event, value)
        else:
            event = self.source.order(self.chance)
            self._produce(ORDERS, event, self.codec.encode(ORDERS, event, self.source.schema_id))

    def _produce(self, topic: str, event: Event, value: bytes | None) -> None:
        self.journal.send(event)

        def heard(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.journal.meet(f"{self.name}: {error.name()}")
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            self.journal.acknowledge(event["id"], topic, partition, offset)

        while True:
            try:
                self.producer.produce(
                    topic,
                    value,
                    event["customer"].encode(),
                    timestamp=self._timestamp_ms(topic, event),
                    headers=[("id", event["id"].encode())],
                    on_delivery=heard,
                )
                break
            except BufferError:
                self.producer.poll(0.2)
        self.producer.poll(0)

    def _timestamp_ms(self, topic: str, event: Event) -> int:
        """The record's time, 0 for now: most orders of some customers are older than
        a view keeps its rows."""
        if topic == ORDERS and event["customer"] in OLD_CUSTOMERS and self.chance.random() < 0.98:
            return int(time.time() * 1000) - OLD_MS
        return 0

    def close(self) -> None:
        left = self.producer.flush(120.0)
        if left:
            self.journal.accuse(
                f"writer {self.name}: {left} events were neither acknowledged nor refused in 120 s"
            )


class SloppyWriter(KafkaWriter):
    """Write each order again if no answer arrives within a second, without idempotence: the log has some
    orders twice.
    """

    def __init__(
        self, name: str, journal: Journal, source: Source, codec: Codec, per_s: float, bootstrap: str
    ) -> None:
        super().__init__(name, journal, source, codec, per_s, bootstrap)
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": False,
                "message.timeout.ms": 1_500,
                "linger.ms": 0,
            }
        )

    def write(self) -> None:
        event = self.source.order(self.chance)
        self.journal.send(event, repeatable=True)
        value = self.codec.encode(ORDERS, event, self.source.schema_id)
        while not self.stopping:
            told: list[bool] = []

            def heard(error: KafkaError | None, message: Message, told: list[bool] = told) -> None:
                told.append(error is None)
                if error is None:
                    partition, offset = message.partition(), message.offset()
                    assert partition is not None and offset is not None
                    self.journal.acknowledge(event["id"], ORDERS, partition, offset)

            headers: list[tuple[str, bytes | str | None]] = [("id", event["id"].encode())]
            self.producer.produce(
                ORDERS, value, event["customer"].encode(), headers=headers, on_delivery=heard
            )
            self.producer.flush(3.0)
            if told == [True] and self.chance.random() < 0.95:
                return  # else, now and then, as one that lost the answer
            if told != [True]:
                self._stop.wait(_PAUSE_S)


class TransactionalWriter(KafkaWriter):
    """Orders in transactions, some of which are rolled back.
    A producer that failed is replaced, which fences it."""

    def __init__(
        self, name: str, journal: Journal, source: Source, codec: Codec, per_s: float, bootstrap: str
    ) -> None:
        super().__init__(name, journal, source, codec, per_s, bootstrap)
        self.bootstrap = bootstrap
        self.transactional: Producer | None = None

    def _made(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"faults.{self.name}",
                "transaction.timeout.ms": 30_000,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(30)
        return producer

    def write(self) -> None:
        places: dict[str, tuple[int, int]] = {}
        events = [self.source.order(self.chance) for _ in range(self.chance.randint(1, 20))]
        rolled_back = self.chance.random() < 0.3
        for event in events:
            self.journal.send(event)
            if rolled_back:
                self.journal.roll_back(event["id"])
        try:
            producer = self.transactional or self._made()
            self.transactional = producer
            producer.begin_transaction()
            for event in events:

                def heard(error: KafkaError | None, message: Message, event_id: str = event["id"]) -> None:
                    partition, offset = message.partition(), message.offset()
                    if error is None and partition is not None and offset is not None:
                        places[event_id] = partition, offset

                value = self.codec.encode(ORDERS, event, self.source.schema_id)
                headers: list[tuple[str, bytes | str | None]] = [("id", event["id"].encode())]
                producer.produce(
                    ORDERS, value, event["customer"].encode(), headers=headers, on_delivery=heard
                )
            producer.flush(30)
            if rolled_back:
                producer.abort_transaction(30)
                return
            producer.commit_transaction(30)
        except KafkaException as error:
            self.journal.meet(f"{self.name}: {error.args[0].name()}")
            self.transactional = None
            self._stop.wait(_PAUSE_S)
            return
        for event_id, (partition, offset) in places.items():
            self.journal.acknowledge(event_id, ORDERS, partition, offset)

    def close(self) -> None:
        self.transactional = None


class HttpWriter(Writer):
    """Orders through the gateway; a request without an answer is sent again under its Idempotency-Key."""

    def __init__(
        self, name: str, journal: Journal, source: Source, codec: Codec, per_s: float, url: str
    ) -> None:
        super().__init__(name, journal, source, codec, per_s)
        self.url = url
        self.client = httpx2.Client(timeout=_ANSWER_S)

    def write(self) -> None:
        event = self.source.order(self.chance)
        event.pop("channel")
        self.journal.send(event)
        identity = base64.b64encode(event["id"].encode()).decode()
        body: dict[str, Any] = {
            "key": {"type": "STRING", "data": event["customer"]},
            "value": {"data": event, "schema_id": self.codec.ids[ORDERS]},
            "headers": [{"name": "id", "value": identity}],
        }
        while not self.stopping:
            try:
                answer = self.client.post(
                    f"{self.url}/v3/clusters/-/topics/{ORDERS}/records",
                    json=body,
                    headers={"Idempotency-Key": event["id"]},
                )
            except httpx2.HTTPError as error:
                self.journal.meet(f"{self.name}: {type(error).__name__}")
                self._stop.wait(_PAUSE_S)
                continue
            if answer.status_code == 200:
                said = answer.json()
                self.journal.acknowledge(event["id"], ORDERS, said["partition_id"], said["offset"])
                return
            if answer.status_code not in (429, 500, 502, 503, 504):
                self.journal.accuse(f"gateway: {answer.status_code} {answer.text[:300]}")
                return
            if answer.status_code == 500:
                self.journal.accuse(f"gateway: 500 {answer.text[:300]}")
            self.journal.meet(f"{self.name}: {answer.status_code}")
            self._stop.wait(_PAUSE_S)

    def close(self) -> None:
        self.client.close()
