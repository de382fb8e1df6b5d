"""[core] Page of Kafka Connect: its connectors with their tasks, worst first, and its workers."""

from __future__ import annotations

from dataclasses import dataclass

from hub.errors import CallerError
from hub.observability.cluster.connect import Connect, Connector, ConnectState, ConnectWorkerStatus
from hub.observability.web.layout import Pager, paged

PAGE = 100
MOST_TASKS = 200


@dataclass(frozen=True, slots=True)
class ConnectFacts:
    """Configured workers, and their combined state."""

    state: str
    workers: tuple[ConnectWorkerStatus, ...]


@dataclass(frozen=True, slots=True)
class ConnectPage:
    """Values of the page.

    ``connect`` None: no worker is configured. ``of``: number of all connectors; None: unknown. ``counts``:
    (state, number) of the matches without the filter on states.
    """

    connect: ConnectFacts | None
    q: str
    state: str
    connectors: tuple[Connector, ...]
    counts: tuple[tuple[str, int], ...]
    total: int
    of: int | None
    pager: Pager
    most_tasks: int = MOST_TASKS


def connect_page(connect: Connect | None, q: str, state: str, number: int = 1) -> ConnectPage:
    """Return the page with that number. Raises CallerError."""
    if state and state not in set(ConnectState):
        raise CallerError(f'"{state[:30]}" is not a state', hint=f"one of: {', '.join(ConnectState)}")
    every = connect.connectors if connect is not None else ()
    named = [one for one in every if not q or _named(one, q.casefold())]
    fit = [one for one in named if state in ("", one.state)]
    pager = paged(len(fit), number, PAGE)
    counts = tuple((each.value, sum(one.state is each for one in named)) for each in ConnectState)
    answered = connect is not None and connect.connectors_by_state is not None
    return ConnectPage(
        None if connect is None else ConnectFacts(connect.state, connect.workers),
        q,
        state,
        tuple(fit[pager.first : pager.last]),
        tuple(each for each in counts if each[1]),
        len(fit),
        len(every) if answered else None,
        pager,
    )


def _named(connector: Connector, word: str) -> bool:
    return word in connector.name.casefold() or any(word in each.casefold() for each in connector.workers)
