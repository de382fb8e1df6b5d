"""Faults of brokers and Postgres, and zombie producers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from fault_suite.brokers import Broker
from fault_suite.faults import kind
from fault_suite.model import ORDERS, PROBES
from fault_suite.world import World

_ALL = ("registry", "gateway", "materializer", "mirror")
THREE = ("three brokers",)


@kind("kill -9 a home broker", "home", hits=_ALL, seconds=(0.5, 1.0))
def kill_broker(world: World, chance: Random) -> Iterator[None]:
    chance.choice(world.home.nodes).kill()
    yield


@kind("kill -9 a home broker, slow start", "home", hits=_ALL, seconds=(4.0, 12.0))
def kill_broker_slowly(world: World, chance: Random) -> Iterator[None]:
    node = chance.choice(world.home.nodes)
    node.wanted = False
    node.kill()
    try:
        yield
    finally:
        node.wanted = True


@kind("a home broker stands still and is fenced", "home", hits=_ALL, seconds=(4.0, 12.0))
def fence_broker(world: World, chance: Random) -> Iterator[None]:
    node = chance.choice(world.home.nodes)
    world.aborts_may_be_lost |= len(world.home.nodes) == 1
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


@kind("a home broker gets a sixth of the time", "home", hits=_ALL, seconds=(6.0, 15.0))
def starve_broker(world: World, chance: Random) -> Iterator[None]:
    node = chance.choice(world.home.nodes)
    world.aborts_may_be_lost |= len(world.home.nodes) == 1
    turn = {"n": 0}

    def throttle() -> None:
        turn["n"] += 1
        with suppress(ProcessLookupError):
            node.thaw() if turn["n"] % 6 == 0 else node.freeze()

    world.background.append(throttle)
    try:
        yield
    finally:
        world.background.remove(throttle)
        node.thaw()


@kind("kill -9 the away broker", "away", hits=("mirror",), seconds=(0.5, 1.0))
def kill_away(world: World, chance: Random) -> Iterator[None]:
    world.away.nodes[0].kill()
    yield


@kind("the away broker stands still and is fenced", "away", hits=("mirror",), seconds=(4.0, 12.0))
def fence_away(world: World, chance: Random) -> Iterator[None]:
    node = world.away.nodes[0]
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


@kind("both regions' brokers are killed", "home", alone=True, hits=_ALL, seconds=(0.5, 1.0))
def kill_all_brokers(world: World, chance: Random) -> Iterator[None]:
    for node in (*world.home.nodes, *world.away.nodes):
        node.kill()
    yield


@kind("kill -9 Postgres", "postgres", hits=(), seconds=(1.0, 8.0))
def kill_postgres(world: World, chance: Random) -> Iterator[None]:
    world.postgres.kill()
    yield
    world.postgres.start()


def _controller(world: World) -> Broker:
    """The active controller, as its brokers' metadata names it (in KRaft any broker may be named:
    then one of three)."""
    with suppress(KafkaException):
        described = AdminClient({"bootstrap.servers": world.home.bootstrap}).describe_cluster(
            request_timeout=5.0
        )
        number = described.result(5.0).controller.id
        return next(node for node in world.home.nodes if node.number == number)
    return world.home.nodes[0]


@kind("the controller is lost", "home", hits=_ALL, seconds=(2.0, 6.0), needs=THREE)
def lose_controller(world: World, chance: Random) -> Iterator[None]:
    node = _controller(world)
    node.wanted = False
    node.kill()
    try:
        yield
    finally:
        node.wanted = True


@kind("leaders move", "home", hits=_ALL, seconds=(3.0, 6.0), needs=THREE)
def move_leaders(world: World, chance: Random) -> Iterator[None]:
    """One after the other each broker is away for a moment: every partition's leader moves at least once."""
    for node in chance.sample(world.home.nodes, len(world.home.nodes)):
        node.freeze()
        world.live(3.0)
        node.thaw()
        world.live(2.0)
    yield


@kind("partitions are added", "topic", hits=(), once=True)
def add_partitions(world: World, chance: Random) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": world.home.bootstrap})
    with suppress(KafkaException):
        for added in admin.create_partitions([NewPartitions(ORDERS, 6)]).values():
            added.result(20.0)
    yield


@kind("a zombie producer commits late", "zombie", hits=())
def zombie_producer(world: World, chance: Random) -> Iterator[None]:
    """Leave a transaction open, fence it with another producer of the same id, then let the first producer
    commit.
    """
    first, second = (
        Producer({"bootstrap.servers": world.home.bootstrap, "transactional.id": "faults.zombie"})
        for _ in range(2)
    )
    number = chance.randrange(1 << 30)
    value = world.codec.encode(PROBES, {"id": "zombie", "n": number})
    with suppress(KafkaException):
        first.init_transactions(20)
        first.begin_transaction()
        first.produce(PROBES, value, b"zombie")
        first.flush(10)
    yield
    with suppress(KafkaException):
        second.init_transactions(20)
        try:
            first.commit_transaction(10)
        except KafkaException:
            return
        world.journal.accuse("a fenced producer committed its transaction")


@kind("transactions are left open", "zombie", hits=("materializer", "mirror"), seconds=(3.0, 8.0))
def open_transactions(world: World, chance: Random) -> Iterator[None]:
    producer = Producer(
        {
            "bootstrap.servers": world.home.bootstrap,
            "transactional.id": f"faults.open.{chance.randrange(1 << 30)}",
            "transaction.timeout.ms": 10_000,
        }
    )
    with suppress(KafkaException):
        producer.init_transactions(20)
        producer.begin_transaction()
        for _ in range(20):
            producer.produce(PROBES, world.codec.encode(PROBES, {"id": "open", "n": 0}), b"open")
        producer.flush(10)
    yield
    with suppress(KafkaException):
        producer.abort_transaction(10)
