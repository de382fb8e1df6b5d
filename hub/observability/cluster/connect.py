"""[core] Kafka Connect as its workers tell it: connectors and tasks with their states, and what of it is not known.

A worker answers for its whole cluster. Those that name, or ever named, the same workers are one cluster, of which the first
answer counts; so any of them may be asked, or all. Two that answer must have a connector in common, too: where addresses are given
out anew, a worker of one cluster may have that of a former one of another. What a worker said that does not answer now is UNKNOWN.

Format: ``GET /connectors?expand=status&expand=info`` (KIP-465). Of ``info`` only the class is taken: configs hold secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

# A worker that said nothing for so long does not answer, whatever its last answer was.
STALE_MS = 60_000
MOST_CONNECTORS = 10_000
_LONGEST = 300
_MOST_PEERS = 1_000


class ConnectState(StrEnum):
    """Kafka Connect's states, what needs eyes first; UNKNOWN is ours."""

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
    """``reason``: of a failed one, the first line of its trace; of an unknown one, why."""

    id: int
    state: ConnectState
    worker: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Connector:
    """``state`` is the worst of its ``own`` and its tasks', ``reason`` that of whichever is worst. ``kind``: source or sink."""

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
    """What one address said last, and when; ``error``: why it says nothing now. ``peers``: every worker that it ever named."""

    url: str
    connectors: tuple[Connector, ...] = ()
    answered_at_ms: int | None = None
    error: str | None = None
    peers: frozenset[str] = frozenset()

    def is_stale(self, now_ms: int) -> bool:
        return self.answered_at_ms is not None and now_ms - self.answered_at_ms > STALE_MS

    def answered(self, connectors: Sequence[Connector], now_ms: int) -> WorkerAnswer:
        """After one more answer."""
        named = frozenset(name for connector in connectors for name in connector.workers)
        peers = named | self.peers
        return WorkerAnswer(
            self.url, tuple(connectors), now_ms, None, peers if len(peers) <= _MOST_PEERS else named
        )


@dataclass(frozen=True, slots=True)
class ConnectWorker:
    """An address that is asked. ``state``: connecting before its first answer, then up or down."""

    url: str
    state: str
    answered_at_ms: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Connect:
    """Every cluster of Connect together. Numbers are None while no worker answers: that is not 0."""

    workers: tuple[ConnectWorker, ...]
    connectors: tuple[Connector, ...]

    @property
    def state(self) -> str:
        """``up`` while any worker answers, ``connecting`` while none was heard yet, else ``down``."""
        states = {worker.state for worker in self.workers}
        return next((each for each in ("up", "connecting") if each in states), "down")

    @property
    def known(self) -> bool:
        return self.state == "up"

    @property
    def whole(self) -> bool:
        """Whether every address answers: then a connector that is not there is gone."""
        return all(worker.state == "up" for worker in self.workers)

    @property
    def connectors_by_state(self) -> Mapping[str, int] | None:
        """None: nothing was ever heard."""
        return self._counted(each.state for each in self.connectors)

    @property
    def tasks_by_state(self) -> Mapping[str, int] | None:
        return self._counted(task.state for each in self.connectors for task in each.tasks)

    @property
    def failed(self) -> int | None:
        """Connectors that failed or have a task that did."""
        return sum(each.state is ConnectState.FAILED for each in self.connectors) if self.known else None

    @property
    def unknown(self) -> int | None:
        return sum(each.state is ConnectState.UNKNOWN for each in self.connectors) if self.known else None

    def _counted(self, states: Iterable[ConnectState]) -> Mapping[str, int] | None:
        if all(worker.answered_at_ms is None for worker in self.workers):
            return None
        numbers = Counter(states)
        return {state.value: numbers[state] for state in ConnectState}


def connect_of(heard: Sequence[WorkerAnswer], now_ms: int) -> Connect:
    """All that the addresses said, each cluster once, the worst first."""
    workers = tuple(_worker(each, now_ms) for each in heard)
    clusters: list[tuple[frozenset[str], list[Connector]]] = []

    def is_one(
        worker: ConnectWorker, each: WorkerAnswer, known: frozenset[str], those: Sequence[Connector]
    ) -> bool:
        names = {one.name for one in those}
        alike = worker.state != "up" or any(one.name in names for one in each.connectors)
        return bool(each.peers & known) and alike

    # Those that answer speak first: of a cluster with one worker gone the others know everything.
    for worker, each in sorted(zip(workers, heard, strict=True), key=lambda pair: pair[0].state != "up"):
        if any(is_one(worker, each, known, those) for known, those in clusters):
            continue
        why = None if worker.state == "up" else worker.error or "no answer"
        clusters.append((each.peers, [one if why is None else unknown(one, why) for one in each.connectors]))
    found = [one for _, those in clusters for one in those]
    return Connect(workers, tuple(sorted(found, key=lambda one: (RANK[one.state], one.name))))


def _worker(heard: WorkerAnswer, now_ms: int) -> ConnectWorker:
    url = without_password(heard.url)
    if heard.error is not None:
        return ConnectWorker(url, "down", heard.answered_at_ms, heard.error)
    if heard.answered_at_ms is None:
        return ConnectWorker(url, "connecting", None, None)
    if heard.is_stale(now_ms):
        return ConnectWorker(url, "down", heard.answered_at_ms, "it has not answered for a minute")
    return ConnectWorker(url, "up", heard.answered_at_ms, None)


def unknown(connector: Connector, why: str) -> Connector:
    """The same when nobody can tell how it is: which there were, and what they were last."""
    no_longer = ConnectState.UNKNOWN
    tasks = tuple(
        replace(task, state=no_longer, reason=f"was {task.state}; {why}") for task in connector.tasks
    )
    reason = f"was {connector.state}; {why}"
    return replace(connector, state=no_longer, own=no_longer, reason=reason, tasks=tasks)


def without_password(url: str) -> str:
    """The address as it may be shown.

    >>> without_password("http://ada:secret@connect:8083/")
    'http://connect:8083'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


# ---- what a worker answers


def connectors_of(body: object) -> tuple[Connector, ...]:
    """The connectors of an answer. Raises TypeError for one that is not Connect's."""
    if not isinstance(body, dict):
        raise TypeError("no object of connectors")
    return tuple(_connector(str(name), each) for name, each in list(body.items())[:MOST_CONNECTORS])


def _connector(name: str, body: object) -> Connector:
    said = _part(body)
    status, info = _part(said.get("status")), _part(said.get("info"))
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
    said = _part(body)
    state, number = _state(said.get("state")), said.get("id")
    if not isinstance(number, int):
        raise TypeError("a task without an id")
    return Task(number, state, _shortened(said.get("worker_id")), _reason(said, state))


def _state(said: object) -> ConnectState:
    """A word of a newer Connect, and none at all, is not known."""
    known = str(said).upper()
    return ConnectState(known) if known in RANK else ConnectState.UNKNOWN


def _reason(said: Mapping[str, Any], state: ConnectState) -> str:
    if state is ConnectState.UNKNOWN:
        word = said.get("state")
        return "its worker tells no state of it" if word is None else f"its worker says {_shortened(word)}"
    lines = str(said.get("trace") or "").strip().splitlines()
    return _shortened(lines[0]) if lines else ""


def _part(body: object) -> Mapping[str, Any]:
    return body if isinstance(body, dict) else {}


def _shortened(said: object) -> str:
    text = "" if said is None else str(said).strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# ---- as JSON


def summary(connect: Connect, most: int) -> dict[str, Any]:
    """What ``/api/overview`` says of it: workers, numbers (null: not known), and so many connectors, the worst first."""
    return {
        "state": connect.state,
        "workers": [asdict(each) for each in connect.workers],
        "failed": connect.failed,
        "connectors_by_state": connect.connectors_by_state,
        "tasks_by_state": connect.tasks_by_state,
        "connectors": [asdict(each) for each in connect.connectors[:most]],
        "more": max(0, len(connect.connectors) - most),
    }
