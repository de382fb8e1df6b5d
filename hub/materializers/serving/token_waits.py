"""[shell] Wait until a store covers the write whose token a reader sends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread

from hub.errors import CallerError, HubError, PeerError
from hub.materializers.serving.read_your_writes import row_covers, wanted
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion
from hub.record import Positions
from hub.tracing import ACTIVE, spans


async def wait_for(store: Store, watcher: Watcher, views: Sequence[str], token: str, deadline: float) -> None:
    """Wait until each view covers its part of the token; ``deadline`` is of time.monotonic().

    Raises PeerError with the lag, CallerError when the token concerns none of them.
    """
    concerned: dict[str, Positions] = {}
    refusal: CallerError | None = None
    for view in views:
        try:
            concerned[view] = wanted(token, await topics_of(store, view), view)
        except CallerError as error:
            refusal = error
    if refusal is not None and not concerned:
        raise refusal
    for view, positions in concerned.items():
        await covering(store, watcher, view, None, positions, deadline - time.monotonic())


async def covering(
    store: Store, watcher: Watcher, view: str, key: str | None, token: Positions, timeout_s: float
) -> tuple[RowVersion | None, Positions]:
    """Return the key's row (None without a key) once the store covers the token, and the positions covered
    then.

    Raises PeerError with the lag.
    """
    known = spans()
    if known is None:
        return await _covering(store, watcher, view, key, token, timeout_s)
    span = known.start(f"wait {view}", "internal", parent=ACTIVE.get(), attributes={"hub.view": view})
    error = "_OTHER"
    try:
        found = await _covering(store, watcher, view, key, token, timeout_s)
        error = ""
        return found
    except HubError as failed:
        error = failed.code or type(failed).__name__
        raise
    finally:
        span.end(error)


async def _covering(
    store: Store, watcher: Watcher, view: str, key: str | None, token: Positions, timeout_s: float
) -> tuple[RowVersion | None, Positions]:
    deadline = time.monotonic() + timeout_s
    row: RowVersion | None = None
    while True:
        generation = watcher.generation
        if key is not None:
            row, covered = await anyio.to_thread.run_sync(store.read, view, key)
        else:
            covered = await anyio.to_thread.run_sync(store.positions, view, "source")
        sources = row.sources if row is not None else None
        if covered.covers(token) or row_covers(sources, token):
            return row, covered
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise _behind(view, covered, token)
        await watcher.wait(generation, min(remaining, 1.0))


def _behind(view: str, covered: Positions, token: Positions) -> PeerError:
    missing = covered.behind(token)
    lag = ", ".join(
        f"{tp.topic}:{tp.partition} is at {covered.get(tp)} of {offset} ({offset - covered.get(tp)} to go)"
        for tp, offset in missing
    )
    error = PeerError(
        f'view "{view}" does not cover the write yet: {lag}',
        hint="ask again, or with a longer timeout_ms; hub lag shows whether the view is running",
        code="HUB-3050",
    )
    error.details = {"position": str(covered), "missing": str(missing)}
    return error


async def topics_of(store: Store, view: str) -> frozenset[str]:
    """Return the topics that the view reads, as reported: those of its last batch, and the patterns of its
    file.
    """
    records = await anyio.to_thread.run_sync(store.progress)
    progress: Mapping[str, Any] = records.get(f"progress:{view}", {})
    state: Mapping[str, Any] = records.get(f"state:{view}", {})
    return frozenset({*progress.get("sources", {}), *state.get("sources", {}).values()})
