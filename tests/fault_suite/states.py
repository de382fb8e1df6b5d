"""Check the states that the hub reports while one part is silent for longer than the hub may overlook.

``violations`` decides: it compares the answers of ``/views``, ``/api/lag`` and ``/api/mirrors`` with what is
true. ``ask`` reads these answers over HTTP, ``seen_wrong`` does both. Call it before the fault is healed.

A part that is silent must not look healthy, the silent part must be named, and no other part may be named as
the cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from fault_suite.counts import count_violations
from fault_suite.model import CHECKED

Part = Literal["materializer", "applier", "home Kafka", "away Kafka", "mirror", "Postgres"]
"""The faulty part, which hangs or is down. ``mirror``: all of its workers. ``Postgres``: the store
``warehouse``.
"""

LIMITS_S: Mapping[Part, float] = {
    "materializer": 40.0,
    "applier": 40.0,
    "home Kafka": 40.0,
    "away Kafka": 30.0,
    "mirror": 25.0,
    "Postgres": 20.0,
}
"""Seconds after which the hub must have noticed, without patience: its own limits (30 s of silence of a
materializer, 15 s of a worker, two readings of lag) and the time until the next look."""

_ACCUSES: Mapping[Part, tuple[str, ...]] = {
    "home Kafka": ("Kafka does not answer", "cut off from Kafka", "connections are down"),
    "materializer": ("materializer process does not run", "written nothing for"),
    "Postgres": ("Postgres", "psycopg"),
}
"""Words in the reason of a view's state by which a part is named as the cause."""


@dataclass(frozen=True)
class States:
    """Answers of one server at one moment. ``views``: the rows of /views; ``lag``: those of /api/lag;
    ``mirrors``: the statuses in /api/mirrors; ``failed``: why a route gave no answer, by its path."""

    views: Sequence[Mapping[str, Any]] = ()
    lag: Sequence[Mapping[str, Any]] = ()
    mirrors: Sequence[Mapping[str, Any]] = ()
    failed: Mapping[str, str] | None = None
    counted: Sequence[Mapping[str, Any]] = ()
    """The rows of /api/completeness."""


def violations(hurt: Part, seconds: float, states: States) -> list[str]:
    """Return what the answers get wrong after ``hurt`` has been silent for ``seconds``;
    nothing before its limit."""
    if seconds < LIMITS_S[hurt]:
        return []
    wrong = [f"{path} does not answer: {why}" for path, why in (states.failed or {}).items()]
    wrong += _missing(states)
    wrong += [each for view in _checked(states) for each in _of_view(hurt, view)]
    wrong += _of_lag(hurt, states.lag)
    wrong += [each for mirror in states.mirrors for each in _of_mirror(hurt, mirror)]
    wrong += count_violations(states.counted)
    return [f"{hurt} has been silent for {seconds:.0f} s: {each}" for each in wrong]


def _checked(states: States) -> Iterator[Mapping[str, Any]]:
    return (view for view in states.views if view["view"] in CHECKED)


def _missing(states: States) -> Iterator[str]:
    if "/views" not in (states.failed or {}):
        there = {view["view"] for view in states.views}
        yield from (f"view {name} is not listed" for name in CHECKED if name not in there)


def _of_view(hurt: Part, view: Mapping[str, Any]) -> Iterator[str]:
    said = f"view {view['view']} is {view['state']} ({view.get('reason')})"
    reason = view.get("reason") or ""
    if hurt in ("materializer", "home Kafka"):
        if view["state"] != "unknown":
            yield f"{said}, and nobody can know that: it must be unknown"
        elif not _names(reason, hurt):
            yield f"{said}: the reason does not name {hurt}"
    elif view["state"] != "live":
        yield f"{said}, although its materializer and Kafka are well"
    for other in _ACCUSES:
        if other != hurt and _names(reason, other):
            yield f"{said}: the reason names {other}, which is well"
    if hurt == "Postgres":
        yield from _of_stores(view)
    if hurt == "applier":
        for store in view.get("stores", ()):
            if store["state"] != "unknown" or "applier" not in (store.get("reason") or ""):
                yield (
                    f"store {store['store']} of view {view['view']} is {store['state']} "
                    f"({store.get('reason')})"
                )


def _names(reason: str, part: Part) -> bool:
    return any(words in reason for words in _ACCUSES[part])


def _of_stores(view: Mapping[str, Any]) -> Iterator[str]:
    for store in view.get("stores", ()):
        if store["store"] == "warehouse" and store["state"] not in ("down", "starting", "stopped"):
            yield f"view {view['view']}: store warehouse is {store['state']}, and its database is away"
        if store["store"] == "serving" and store["state"] != "live":
            yield (
                f"view {view['view']}: store serving is {store['state']} "
                f"({store.get('reason')}), and it is well"
            )


def _of_lag(hurt: Part, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield violations in the lag of a view. A stopped view is late or unknown, never OK, because writers
    append all the time.
    """
    if hurt not in ("materializer", "applier", "home Kafka"):
        return
    for row in rows:
        if row["kind"] == "view" and row["view"] in CHECKED and row["state"] == "OK":
            yield f"the lag of view {row['view']} on {row['topic']} is OK ({row.get('records')} records wait)"


def _of_mirror(hurt: Part, mirror: Mapping[str, Any]) -> Iterator[str]:
    said = f"mirror {mirror['mirror']} is {mirror['state']} ({mirror.get('reason')})"
    if hurt == "mirror" and mirror["state"] != "no worker":
        yield f"{said}, and no worker of it runs"
    elif hurt == "away Kafka" and mirror["state"] != "unknown":
        yield f"{said}, and its target does not answer: it must be unknown"
    elif hurt == "home Kafka" and mirror["state"] == "no worker":
        yield f"{said}, and its workers run"
    elif hurt in ("materializer", "applier", "Postgres") and not mirror.get("ok"):
        yield f"{said}, although both clusters and its workers are well"


def ask(url: str, timeout_s: float = 20.0) -> States:
    """Read the states from a server. Those of mirrors may be 10 s old."""
    failed: dict[str, str] = {}

    def get(path: str) -> Any:
        try:
            answer = httpx2.get(f"{url}{path}", timeout=timeout_s)
        except httpx2.HTTPError as error:
            failed[path] = f"{type(error).__name__}: {error}"
            return None
        if answer.status_code != 200:
            failed[path] = f"{answer.status_code} {answer.text[:200]}"
            return None
        return answer.json()

    views, lag, mirrors = get("/views"), get("/api/lag"), get("/api/mirrors")
    counted = get("/api/completeness?topics=home.*")
    statuses = [each["status"] for each in (mirrors or {}).get("mirrors", ())]
    return States(
        (views or {}).get("views", ()), lag or (), statuses, failed, (counted or {}).get("rows", ())
    )


def seen_wrong(hurt: Part, began_s: float, url: str, wait: Callable[[float], None] = time.sleep) -> list[str]:
    """Return the violations of answers that are at most 5 s old. Blocks for about 15 s.

    ``began_s``: start of the fault by time.monotonic. ``wait``: called with the seconds to wait.
    """
    for pause_s in (11.0, 4.0):  # the first answer about mirrors may be 10 s old; the second starts a refresh
        ask(url)
        wait(pause_s)
    return violations(hurt, time.monotonic() - began_s, ask(url))
