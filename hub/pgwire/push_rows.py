"""[edge] Rows of a push query for a client of Postgres' protocol: COPY, a cursor, or a SELECT that does not
end.

The client reads at its own pace: while a megabyte waits for it, the query waits too, and nothing is lost. Of
a view each row has two columns before its own: ``_change`` (upsert or delete) and ``_key``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import anyio

from hub.errors import PeerError
from hub.materializers.queries.push.service import OpenPush, PushQueries
from hub.materializers.queries.push.statement import PushStatement
from hub.materializers.queries.relations import OutputColumn, Value
from hub.materializers.queries.running import RunningQuery
from hub.materializers.serving.subscription_events import SubscriptionEvent
from hub.pgwire.results import ResultSpool, fields_of

_OF_VIEW = (OutputColumn("_change", "string"), OutputColumn("_key", "string"))


async def pushed(
    push_queries: PushQueries,
    push: PushStatement,
    parameters: Mapping[str, Value],
    running: RunningQuery,
    spool: ResultSpool,
) -> None:
    """Write the rows of a push query to the spool until its LIMIT, or until ``running`` is cancelled.

    Raises HubError; SqlError (HUB-1449) when it was cancelled.
    """
    running.deadline = math.inf
    loop = asyncio.get_running_loop()
    # A scope, and not a cancelled task: it lets a poll of Kafka end before its reader is closed.
    scope = anyio.CancelScope()

    def stop() -> None:
        loop.call_soon_threadsafe(scope.cancel)

    with running.interruptible(stop), scope:
        ready = await push_queries.opened(push, parameters, take=stored_rows)
        columns = [*(_OF_VIEW if ready.view else ()), *ready.columns]
        spool.begin(fields_of(columns, spool.formats))
        await _written(ready, spool)
    if running.cancelled:
        raise running.ended()


async def _written(ready: OpenPush, spool: ResultSpool) -> None:
    async with aclosing(ready.events) as events:
        async for event in events:
            if event.name == "closing":
                raise PeerError(str(event.body["reason"]), hint="run the query again", code="HUB-3091")
            if (row := _row(event, ready)) is not None:
                await spool.add([row])


def _row(event: SubscriptionEvent, ready: OpenPush) -> Sequence[Any] | None:
    match event.name:
        case "row":
            return list(event.body["row"].values())
        case "snapshot" | "upsert":
            return ["upsert", event.body["key"], *event.body["row"].values()]
        case "delete":
            return ["delete", event.body["key"], *(None for _ in ready.columns)]
        case _:
            return None


def stored_rows(
    rows: Iterable[Sequence[Any]], _columns: Sequence[OutputColumn], running: RunningQuery, limit: int
) -> tuple[list[list[Any]], bool]:
    """Return rows as the database has them, which the encoders of the protocol take. See ``TakeRows``."""
    found: list[list[Any]] = []
    for row in rows:
        if running.over:
            raise running.ended()
        if len(found) == limit:
            return found, True
        found.append(list(row))
    return found, False
