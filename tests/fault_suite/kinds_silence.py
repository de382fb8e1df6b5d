"""Faults that hit exactly one part for longer than the hub may overlook it, and answers that are lost.

While such a fault lasts, the states that the hub shows are checked (states.py). A world suffers these kinds
when its abilities have ``SILENCE``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from random import Random
from socket import socket

from link_proxy import Link
from patience import patient

from fault_suite.faults import kind
from fault_suite.kinds_processes import HITS
from fault_suite.states import LIMITS_S, Part, seen_wrong
from fault_suite.world import World

SILENCE = "silence"
"""Ability of a world whose rounds may last longer than a minute."""

Work = Callable[[World], None]


def _silent(part: Part, name: str, hits: tuple[str, ...], hurt: Work, heal: Work) -> None:
    limit_s = LIMITS_S[part]

    @kind(
        f"{name} for longer than its limit",
        "silence",
        hits=hits,
        seconds=(limit_s, limit_s + 5.0),
        needs=(SILENCE,),
        alone=True,
        once=True,
    )
    def function(world: World, chance: Random) -> Iterator[None]:
        began_s = time.monotonic()
        hurt(world)
        try:
            yield
            world.live(max(0.0, began_s + patient(limit_s) - time.monotonic()))
            for each in seen_wrong(part, began_s, world.settings.url, world.live):
                world.journal.accuse(each)
        finally:
            heal(world)


def _send(number: signal.Signals, *parts: str) -> Work:
    def work(world: World) -> None:
        for part in parts:
            world.send(part, number)

    return work


for _part, _parts in (
    ("materializer", ("materializer",)),
    ("applier", ("applier",)),
    ("mirror", ("mirror", "mirror-2")),
):
    _silent(
        _part,  # type: ignore[arg-type]
        f"the {_part} stands still",
        HITS[_part],
        _send(signal.SIGSTOP, *_parts),
        _send(signal.SIGCONT, *_parts),
    )


def _freeze_home(world: World) -> None:
    for node in world.home.nodes:
        node.freeze()


def _thaw_home(world: World) -> None:
    for node in world.home.nodes:
        node.thaw()


_silent(
    "home Kafka",
    "home Kafka stands still",
    ("registry", "gateway", "materializer", "mirror"),
    _freeze_home,
    _thaw_home,
)
_silent(
    "away Kafka",
    "away Kafka stands still",
    ("mirror",),
    lambda world: world.away.nodes[0].freeze(),
    lambda world: world.away.nodes[0].thaw(),
)
_silent(
    "Postgres",
    "Postgres is away",
    (),
    lambda world: world.postgres.kill(),
    lambda world: world.postgres.start(),
)


@kind("HTTP: answers are lost", "link HTTP", hits=(), seconds=(1.0, 4.0), needs=(SILENCE,))
def lose_answers(world: World, chance: Random) -> Iterator[None]:
    """Drop all answers on the current connections; requests still arrive and are executed."""
    _swallow_answers(world.http_link)
    yield


def _swallow_answers(link: Link) -> None:
    def is_client(side: socket) -> bool:
        try:
            return bool(side.getsockname()[1] == link.port)
        except OSError:
            return False

    with link._lock:
        link._dead |= {side for side in link._open if is_client(side)}
