"""[core] Kafka Connect as reported by its workers: connectors and tasks with their states, and what is
unknown.

A worker answers for its whole cluster. Addresses whose answers name (or ever named) the same workers are one
cluster, of which the first answer counts; so one address or all may be configured. Two that answer must also
have a connector in common: when addresses are reassigned, a worker of one cluster may have the address of a
former worker of another. The last answer of a worker that does not answer now is UNKNOWN.

Format: ``GET /connectors?expand=status&expand=info`` (KIP-465). Only the class is taken from ``info``:
configs hold secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

# A worker whose last answer is older than this counts as down.
STALE_MS = 60_000
MOST_CONNECTORS = 10_000
_LONGEST = 300
_MOST_PEERS = 1_000


class ConnectState(StrEnum):
    """Kafka Connect's states, most urgent first; UNKNOWN is the hub's own."""

    FAILED = "FAILED"
    UNKNOWN = "UNKNOWN"
    UNASSIGNED = "UNASSIGNED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"
    PAUSED = "PAUSED"
    RUNNING = "RUNNING"


RANK = {state: rank for rank, state in enumerate(ConnectState)}


@dataclass(frozen=True, slots=True)
class Task:
    """A task. ``reason``: the first line of a failed task's trace, or why its state is unknown."""

    id: int
    state: ConnectState
    worker: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector. ``kind``: source or sink.

    ``state``: the worst of its ``own`` state and its tasks' states; ``reason`` is the reason of the worst.
    """

    name: str
    kind: str
    class_name: str
    state: ConnectState
    own: ConnectState
    worker: str
    reason: str
    tasks: tuple[Task, ...]

    @property
    def workers(self) -> frozenset[str]:
        return frozenset({self.worker, *(task.worker for task in self.tasks)} - {""})


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """Last answer of one address, and its time. ``error``: why it does not answer now. ``peers``: every
    worker that it ever named."""

    url: str
    connectors: tuple[Connector, ...] = ()
    answered_at_ms: int | None = None
    error: str | None = None
    peers: frozenset[str] = frozenset()

    def is_stale(self, now_ms: int) -> bool:
        return self.answered_at_ms is not None and now_ms - self.answered_at_ms > STALE_MS

    def answered(self, connectors: Sequence[Connector], now_ms: int) -> WorkerAnswer:
        """Return the state after one more answer."""
        named = frozenset(name for connector in connectors for name in connector.workers)
        peers = named | self.peers
        return WorkerAnswer(
            self.url, tuple(connectors), now_ms, None, peers if len(peers) <= _MOST_PEERS else named
        )


@dataclass(frozen=True, slots=True)
class ConnectWorkerStatus:
    """A configured address. ``state``: connecting before its first answer, then up or down."""

    url: str
    state: str
    answered_at_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Connect:
    """All Connect clusters together. Numbers are None while no worker answers, which is not 0."""

    workers: tuple[ConnectWorkerStatus, ...]
    connectors: tuple[Connector, ...]

    @property
    def state(self) -> str:
        """State: ``up`` while any worker answers, ``connecting`` before the first answer, else ``down``."""
        states = {worker.state for worker in self.workers}
        return next((each for each in ("up", "connecting") if each in states), "down")

    @property
    def is_known(self) -> bool:
        return self.state == "up"

    @property
    def whole(self) -> bool:
        """True if every address answers; a connector that is missing is then gone."""
        return all(worker.state == "up" for worker in self.workers)

    @property
    def connectors_by_state(self) -> Mapping[str, int] | None:
        """Number of connectors by state; None before the first answer."""
        return self._counted(each.state for each in self.connectors)

    @property
    def tasks_by_state(self) -> Mapping[str, int] | None:
        return self._counted(task.state for each in self.connectors for task in each.tasks)

    @property
    def failed(self) -> int | None:
        """Number of connectors that failed or have a failed task."""
        return sum(each.state is ConnectState.FAILED for each in self.connectors) if self.is_known else None

    @property
    def unknown(self) -> int | None:
        return sum(each.state is ConnectState.UNKNOWN for each in self.connectors) if self.is_known else None

    def _counted(self, states: Iterable[ConnectState]) -> Mapping[str, int] | None:
        if all(worker.answered_at_ms is None for worker in self.workers):
            return None
        numbers = Counter(states)
        return {state.value: numbers[state] for state in ConnectState}


def connect_of(answers: Sequence[WorkerAnswer], now_ms: int) -> Connect:
    """Combine the answers of all addresses, each cluster once, worst connectors first."""
    workers = tuple(_worker(each, now_ms) for each in answers)
    clusters: list[tuple[frozenset[str], list[Connector]]] = []

    def is_one(
        worker: ConnectWorkerStatus, each: WorkerAnswer, known: frozenset[str], those: Sequence[Connector]
    ) -> bool:
        names = {one.name for one in those}
        alike = worker.state != "up" or any(one.name in names for one in each.connectors)
        return bool(each.peers & known) and alike

    # Workers that answer come first: in a cluster with one worker down, the others know everything.
    for worker, each in sorted(zip(workers, answers, strict=True), key=lambda pair: pair[0].state != "up"):
        if any(is_one(worker, each, known, those) for known, those in clusters):
            continue
        why = None if worker.state == "up" else worker.error or "no answer"
        clusters.append((each.peers, [one if why is None else unknown(one, why) for one in each.connectors]))
    connectors = [one for _, those in clusters for one in those]
    return Connect(workers, tuple(sorted(connectors, key=lambda one: (RANK[one.state], one.name))))


def _worker(answer: WorkerAnswer, now_ms: int) -> ConnectWorkerStatus:
    url = without_password(answer.url)
    if answer.error is not None:
        return ConnectWorkerStatus(url, "down", answer.answered_at_ms, answer.error)
    if answer.answered_at_ms is None:
        return ConnectWorkerStatus(url, "connecting", None, None)
    if answer.is_stale(now_ms):
        return ConnectWorkerStatus(url, "down", answer.answered_at_ms, "it has not answered for a minute")
    return ConnectWorkerStatus(url, "up", answer.answered_at_ms, None)


def unknown(connector: Connector, why: str) -> Connector:
    """Return the connector in state UNKNOWN, with its last state and the cause in the reason; its tasks
    likewise."""
    no_longer = ConnectState.UNKNOWN
    tasks = tuple(
        replace(task, state=no_longer, reason=f"was {task.state}; {why}") for task in connector.tasks
    )
    reason = f"was {connector.state}; {why}"
    return replace(connector, state=no_longer, own=no_longer, reason=reason, tasks=tasks)


def without_password(url: str) -> str:
    """Return the address without credentials.

    >>> without_password("http://ada:secret@connect:8083/")
    'http://connect:8083'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


# ---- parsing of answers


def connectors_of(body: object) -> tuple[Connector, ...]:
    """Return the connectors of an answer. Raises TypeError when the answer is not Connect's."""
    if not isinstance(body, dict):
        raise TypeError("no object of connectors")
    return tuple(_connector(str(name), each) for name, each in list(body.items())[:MOST_CONNECTORS])


def _connector(name: str, body: object) -> Connector:
    state_body = _part(body)
    status, info = _part(state_body.get("status")), _part(state_body.get("info"))
    about = _part(status.get("connector"))
    own = _state(about.get("state"))
    listed = status.get("tasks")
    tasks = tuple(
        sorted(
            map(_task, listed if isinstance(listed, list) else ()), key=lambda task: (task.id, task.worker)
        )
    )
    worst = min([own, *(task.state for task in tasks)], key=RANK.__getitem__)
    reason = _reason(about, own)
    if own is not worst:
        first = next(task for task in tasks if task.state is worst)
        reason = f"task {first.id}: {first.reason}" if first.reason else ""
    return Connector(
        _shortened(name),
        _shortened(status.get("type") or info.get("type")),
        _shortened(_part(info.get("config")).get("connector.class")),
        worst,
        own,
        _shortened(about.get("worker_id")),
        reason,
        tasks,
    )


def _task(body: object) -> Task:
    status = _part(body)
    state, number = _state(status.get("state")), status.get("id")
    if not isinstance(number, int):
        raise TypeError("a task without an id")
    return Task(number, state, _shortened(status.get("worker_id")), _reason(status, state))


def _state(reported: object) -> ConnectState:
    """Return the state; UNKNOWN for a missing state or one of a newer Connect."""
    state = str(reported).upper()
    return ConnectState(state) if state in RANK else ConnectState.UNKNOWN


def _reason(status: Mapping[str, Any], state: ConnectState) -> str:
    if state is ConnectState.UNKNOWN:
        reported = status.get("state")
        return (
            "its worker reports no state of it"
            if reported is None
            else f"its worker reports {_shortened(reported)}"
        )
    lines = str(status.get("trace") or "").strip().splitlines()
    return _shortened(lines[0]) if lines else ""


def _part(body: object) -> Mapping[str, Any]:
    return body if isinstance(body, dict) else {}


def _shortened(reported: object) -> str:
    text = "" if reported is None else str(reported).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# ---- as JSON


def summary(connect: Connect, most: int) -> dict[str, Any]:
    """Return Connect's part of ``/api/overview``: workers, numbers (null: unknown), and the ``most`` worst
    connectors."""
    return {
        "state": connect.state,
        "workers": [asdict(each) for each in connect.workers],
        "failed": connect.failed,
        "connectors_by_state": connect.connectors_by_state,
        "tasks_by_state": connect.tasks_by_state,
        "connectors": [asdict(each) for each in connect.connectors[:most]],
        "more": max(0, len(connect.connectors) - most),
    }
