"""[shell] Hold a topic: its brokers refuse new events, whoever sends them.

Kafka has no switch for it. A topic whose ``max.message.bytes`` is smaller than any batch refuses them all,
and the producer gets an error, so no event is lost unnoticed. The markers that end transactions have 78
bytes: a first limit lets them pass until no transaction is open, the second one lets nothing pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hub.errors import PeerError
from hub.log import Cluster
from hub.record import Positions

LIMIT: Final = "max.message.bytes"
_MARKERS, NOTHING = "100", "1"
_POLL_S = 0.1
_TRIES = 5


@dataclass(frozen=True, slots=True)
class HoldWaits:
    """Waits of a hold, in seconds. ``settled_s``: for brokers to apply a setting, without a new record.
    ``at_most_s``: for transactions of producers to end.
    """

    settled_s: float = 2.0
    at_most_s: float = 120.0


def hold(cluster: Cluster, topic: str, waits: HoldWaits) -> Positions:
    """Let the topic refuse new events, and return its ends. Idempotent. Raises PeerError (HUB-3110) if a
    transaction stays open, or if records still come; the topic is held then.
    """
    for _ in range(_TRIES):
        cluster.alter_config(topic, {LIMIT: _MARKERS})
        _await(lambda: _decided(cluster, topic), waits.at_most_s, topic)
        cluster.alter_config(topic, {LIMIT: NOTHING})
        ends = _quiet_ends(cluster, topic, waits)
        if cluster.end_offsets([topic]) == ends:
            return ends
    raise _not_held(topic)


def is_held(cluster: Cluster, topic: str) -> bool:
    """Return whether the topic refuses every event."""
    return cluster.topic_config([topic])[topic].get(LIMIT) == NOTHING


def _decided(cluster: Cluster, topic: str) -> bool:
    """Return whether no transaction is open in the topic."""
    return cluster.end_offsets([topic]) == cluster.end_offsets([topic], committed=False)


def _quiet_ends(cluster: Cluster, topic: str, waits: HoldWaits) -> Positions:
    """Return the ends once they stayed the same for ``settled_s``."""
    deadline = time.monotonic() + waits.at_most_s
    ends, since = cluster.end_offsets([topic], committed=False), time.monotonic()
    while time.monotonic() - since < waits.settled_s:
        time.sleep(min(_POLL_S, waits.settled_s))
        now = cluster.end_offsets([topic], committed=False)
        if now != ends:
            ends, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise _not_held(topic)
    return ends


def _await(is_done: Callable[[], bool], at_most_s: float, topic: str) -> None:
    deadline = time.monotonic() + at_most_s
    while not is_done():
        if time.monotonic() > deadline:
            raise _not_held(topic)
        time.sleep(_POLL_S)


def _not_held(topic: str) -> PeerError:
    return PeerError(
        f'topic "{topic}": a transaction of a producer stays open, or records still come',
        hint="stop the producers of the topic, then continue: hub topic repair TOPIC --continue",
        code="HUB-3110",
    )
