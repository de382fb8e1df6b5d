"""Faults of network links: cut, slow, half open, throttled, cut inside a frame, requests held back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from link_proxy import END_TXN, FETCH, PRODUCE, Link

from fault_suite.faults import kind
from fault_suite.world import World

METADATA, FIND_COORDINATOR, OFFSET_COMMIT = 3, 10, 8

_HUB = ("registry", "gateway", "materializer", "mirror")
_SIDES: dict[str, tuple[tuple[str, ...], Callable[[World], list[Link]]]] = {
    "home Kafka": (_HUB, lambda world: [node.link for node in world.home.nodes]),
    "away Kafka": (("mirror",), lambda world: [node.link for node in world.away.nodes]),
    "Postgres": ((), lambda world: [world.postgres_link]),
    "HTTP": ((), lambda world: [world.http_link]),
}


def _hurt_link(
    side: str, what: str, hurt: Callable[[Link, Random], None], seconds: tuple[float, float] = (1.0, 10.0)
) -> None:
    hits, links = _SIDES[side]

    @kind(f"{side}: {what}", f"link {side}", hits=hits, seconds=seconds)
    def function(world: World, chance: Random) -> Iterator[None]:
        for link in links(world):
            hurt(link, chance)
        try:
            yield
        finally:
            for link in links(world):
                link.heal()


def _slow(link: Link, chance: Random) -> None:
    link.delay_s = chance.choice((0.02, 0.1, 0.3))


def _throttle(link: Link, chance: Random) -> None:
    link.bytes_per_s = chance.choice((20_000.0, 100_000.0))


for _side in _SIDES:
    _hurt_link(_side, "cut", lambda link, _: link.cut())
    _hurt_link(_side, "half open", lambda link, _: link.half_open())
    _hurt_link(_side, "slow", _slow)
    _hurt_link(_side, "throttled", _throttle)
    _hurt_link(_side, "cut in the middle of a frame", lambda link, _: link.cut_in_frame(), (0.5, 2.0))

for _side, _names in (
    (
        "home Kafka",
        {
            "Produce held": PRODUCE,
            "Fetch held": FETCH,
            "EndTxn held": END_TXN,
            "Metadata held": METADATA,
            "FindCoordinator held": FIND_COORDINATOR,
        },
    ),
    ("away Kafka", {"Produce held": PRODUCE, "EndTxn held": END_TXN, "OffsetCommit held": OFFSET_COMMIT}),
):
    for _name, _api in _names.items():
        _hurt_link(_side, _name, lambda link, _, api=_api: link.hold(api))  # type: ignore[misc]

# The gateway abandons a record after 10 s (``kafka_timeout_s`` of world.py); Kafka still gets it later.
_hurt_link("home Kafka", "Produce held past its limit", lambda link, _: link.hold(PRODUCE), (12.0, 16.0))
