"""[core] Page of the cluster: brokers and disks, partitions in trouble, registry, Kafka Connect, canaries,
and the hub's own processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hub.observability.cluster.connect import Connect
from hub.observability.cluster.health import MOST_TROUBLES, Broker, Health, Trouble
from hub.observability.cluster.processes import Process
from hub.sandbox.platforms import PythonOfViews

MOST_BROKERS = 200


@dataclass(frozen=True, slots=True)
class RegistryLine:
    """State of the registry: ready, or waiting while its log has not been read. ``position``: offset up to
    which it has.

    ``subjects`` None: unknown.
    """

    state: str
    position: int
    subjects: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ConnectLine:
    """Numbers of Kafka Connect; None: unknown."""

    state: str
    connectors: int | None
    failed: int | None


@dataclass(frozen=True, slots=True)
class PythonLine:
    """State of the sandbox of Python. ``gaps``: rules of the sandbox that the machine does not enforce."""

    transforms: str
    is_complete: bool
    text: str
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Values of the page.

    ``state``: as in ``Health``. Counts are None before the first answer; with ``error`` they are of
    ``answered_at_ms``. ``more_brokers`` and ``more_troubles``: number of entries not listed. ``connect``
    None: no worker is configured. ``canary`` None: not enabled.
    ``python`` None: not known.
    """

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
    python: PythonLine | None


def cluster_page(
    health: Health,
    bootstrap: str,
    registry: RegistryLine,
    connect: Connect | None,
    processes: Sequence[Process],
    canary: Mapping[str, Any] | None,
    python: PythonOfViews | None = None,
    sees: Callable[[str], bool] = lambda _topic: True,
) -> ClusterPage:
    """Return the page's values. ``sees``: whether a topic's name may be shown; other topics are only
    counted."""
    answered = health.answered_at_ms is not None
    sizes = [size for each in health.brokers if (size := each.bytes) is not None]
    troubles = tuple(each for each in health.troubles if sees(each.topic))[:MOST_TROUBLES]
    return ClusterPage(
        health.state,
        health.error,
        health.answered_at_ms,
        bootstrap,
        health.topics if answered else None,
        health.partitions if answered else None,
        health.offline if answered else None,
        health.under_replicated if answered else None,
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
        None if python is None else _python(python),
    )


def _python(found: PythonOfViews) -> PythonLine:
    return PythonLine(
        found.transforms,
        found.is_complete,
        found.text,
        tuple(f"{each.rule}: {each.text}" for each in found.gaps),
    )


def _connect(connect: Connect) -> ConnectLine:
    return ConnectLine(
        connect.state, len(connect.connectors) if connect.state == "up" else None, connect.failed
    )
