"""[core] The cluster as a page: brokers and their disks, partitions in trouble, the registry, Kafka Connect, canaries, and the hub's
own processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.observability.cluster.connect import Connect
from hub.observability.cluster.health import MOST_TROUBLES, Broker, Health, Trouble
from hub.observability.cluster.processes import Process

MOST_BROKERS = 200


@dataclass(frozen=True, slots=True)
class RegistryLine:
    """``state``: ready, or waiting while its log is not read. ``position``: what it has read of it. ``subjects`` None: not known."""

    state: str
    position: int
    subjects: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConnectLine:
    """Numbers of Kafka Connect; None: not known."""

    state: str
    connectors: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """``state`` as the health has it. Counts are None while nothing was ever heard; with ``error`` they are of ``answered_at_ms``.
    ``more_brokers`` and ``more_troubles`` are not among those listed. ``connect`` None: no worker is named; ``canary`` None: there
    are none."""

    state: str
    error: str | None
    answered_at_ms: int | None
    bootstrap: str
    topics: int | None
    partitions: int | None
    offline: int | None
    under_replicated: int | None
    away: tuple[int, ...]
    bytes: int | None
    brokers: tuple[Broker, ...]
    more_brokers: int
    troubles: tuple[Trouble, ...]
    more_troubles: int
    registry: RegistryLine
    connect: ConnectLine | None
    processes: tuple[Process, ...]
    canary: Mapping[str, Any] | None


def cluster_page(
    health: Health,
    bootstrap: str,
    registry: RegistryLine,
    connect: Connect | None,
    processes: Sequence[Process],
    canary: Mapping[str, Any] | None,
    sees: Callable[[str], bool] = lambda _topic: True,
) -> ClusterPage:
    """The page's facts. ``sees``: whose topics' names may be shown; of the others the number stands there."""
    heard = health.answered_at_ms is not None
    sizes = [size for each in health.brokers if (size := each.bytes) is not None]
    troubles = tuple(each for each in health.troubles if sees(each.topic))[:MOST_TROUBLES]
    return ClusterPage(
        health.state,
        health.error,
        health.answered_at_ms,
        bootstrap,
        health.topics if heard else None,
        health.partitions if heard else None,
        health.offline if heard else None,
        health.under_replicated if heard else None,
        health.away,
        sum(sizes) if sizes else None,
        health.brokers[:MOST_BROKERS],
        max(0, len(health.brokers) - MOST_BROKERS),
        troubles,
        health.offline + health.under_replicated - len(troubles),
        registry,
        None if connect is None else _connect(connect),
        tuple(processes),
        canary,
    )


def _connect(connect: Connect) -> ConnectLine:
    return ConnectLine(
        connect.state, len(connect.connectors) if connect.state == "up" else None, connect.failed
    )
