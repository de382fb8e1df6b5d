"""Hostile clients: floods, idle connections, subscribers that do not read,
records that no schema can decode."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import httpx2
from confluent_kafka import Producer

from fault_suite.faults import kind
from fault_suite.model import ORDERS, PROBES
from fault_suite.world import World

_CONNECTIONS = 2_000


@kind("2,000 idle connections", "clients", hits=("reads", "gateway", "registry"), seconds=(3.0, 8.0))
def idle_connections(world: World, chance: Random) -> Iterator[None]:
    held: list[socket.socket] = []
    with suppress(OSError):
        for _ in range(_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", world.settings.http_port), 2.0))
    try:
        yield
    finally:
        for each in held:
            each.close()


@kind("subscribers that do not read", "clients", hits=(), seconds=(5.0, 12.0))
def deaf_subscribers(world: World, chance: Random) -> Iterator[None]:
    held: list[socket.socket] = []
    with suppress(OSError):
        for _ in range(60):
            each = socket.create_connection(("127.0.0.1", world.settings.http_port), 2.0)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            each.sendall(b"GET /views/customer_totals/changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            held.append(each)
    try:
        yield
    finally:
        for each in held:
            each.close()


@kind(
    "a flood of requests",
    "clients",
    hits=("reads", "gateway", "registry", "materializer"),
    seconds=(4.0, 8.0),
)
def flood(world: World, chance: Random) -> Iterator[None]:
    over = threading.Event()

    def ask() -> None:
        with httpx2.Client(timeout=5.0) as client:
            while not over.is_set():
                with suppress(httpx2.HTTPError):
                    client.post(
                        f"{world.settings.url}/query", json={"sql": "SELECT count(*) FROM customer_totals"}
                    )

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(16)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        over.set()
        for each in threads:
            each.join(10.0)


@kind("a slow request holds its connection", "clients", hits=(), seconds=(4.0, 10.0))
def slow_requests(world: World, chance: Random) -> Iterator[None]:
    held: list[socket.socket] = []
    with suppress(OSError):
        for _ in range(100):
            each = socket.create_connection(("127.0.0.1", world.settings.http_port), 2.0)
            each.sendall(b"POST /query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
            held.append(each)
    try:
        yield
    finally:
        for each in held:
            each.close()


def _append(world: World, topic: str, value: bytes, **more: str) -> None:
    producer = Producer({"bootstrap.servers": world.home.bootstrap, "message.max.bytes": 200_000_000, **more})
    producer.produce(topic, value, b"poison")
    producer.flush(10.0)


@kind("records that no schema can read", "poison", hits=(), seconds=(0.5, 2.0))
def unreadable(world: World, chance: Random) -> Iterator[None]:
    for value in (
        b"",
        b"\x00",
        b"no schema",
        b"\x00\x7f\xff\xff\xff" + chance.randbytes(20),
        chance.randbytes(500),
    ):
        _append(world, chance.choice((ORDERS, PROBES)), value)
    truncated = world.codec.encode(
        ORDERS, {"id": "t", "customer": "t", "city": "Oslo", "cents": 1, "seq": 1, "channel": "x"}
    )[:-4]
    _append(world, ORDERS, truncated)
    yield


def _bomb(codec: str) -> None:
    @kind(
        f"a record that {codec} makes small", "poison", hits=("materializer",), seconds=(1.0, 3.0), once=True
    )
    def hurt(world: World, chance: Random) -> Iterator[None]:
        _append(world, PROBES, b"\0" * (100 << 20), **{"compression.type": codec})
        yield


for _codec in ("zstd", "gzip", "lz4"):
    _bomb(_codec)
