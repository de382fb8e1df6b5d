"""[edge] FastAPI: search the access log, as JSON and as a page. For admins of the hub."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.search import FoundEntries, LogFilter, find, parse_since
from hub.errors import CallerError, HubError, NotFound
from hub.log import Log
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html

DEFAULT_LIMIT, MOST_LIMIT = 200, 2_000


@dataclass(frozen=True, slots=True)
class _Search:
    """Searches of requests in the log of a cluster."""

    cluster: Log

    def rows(
        self, by: str, action: str, on: str, result: str, since: str, limit: int
    ) -> tuple[list[dict[str, Any]], bool]:
        """Return rows, newest first, and whether a part of the asked time was not searched. Blocks."""
        if result and result not in list(Outcome):
            raise CallerError(
                f'result "{result[:40]}" is not known',
                hint=f"one of {', '.join(Outcome)}",
                code="HUB-1725",
            )
        wanted = LogFilter(by, action, on, Outcome(result) if result else None)
        if not 1 <= limit <= MOST_LIMIT:
            raise CallerError(f"limit {limit} is not between 1 and {MOST_LIMIT}", code="HUB-1424")
        try:
            found_entries = find(self.cluster, wanted, limit, parse_since(since, time.time()))
        except NotFound:
            found_entries = FoundEntries((), 0, True)  # nothing was logged yet
        return [each.row() for each in reversed(found_entries.entries)], not found_entries.from_start


def create_router(cluster: Log) -> APIRouter:
    """Return the routes over the log of a cluster."""
    router, search = APIRouter(tags=["access"]), _Search(cluster)

    @router.get("/api/access/log")
    def entries(
        by: str = "",
        action: str = "",
        on: str = "",
        result: str = "",
        since: str = "24h",
        limit: int = DEFAULT_LIMIT,
    ) -> Mapping[str, object]:
        """Search the access log; the newest entries first. ``more``: older records were not searched."""
        rows, more = search.rows(by, action, on, result, since, limit)
        return {"entries": rows, "more": more}

    @router.get("/access-log", include_in_schema=False)
    async def page(
        by: str = "", action: str = "", on: str = "", result: str = "", since: str = "24h"
    ) -> Response:
        error: HubError | None = None
        rows, more = list[dict[str, Any]](), False
        try:
            rows, more = await run_in_threadpool(search.rows, by, action, on, result, since, DEFAULT_LIMIT)
        except HubError as failed:
            error = failed
        status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
        conditions = {"by": by, "action": action, "on": on, "result": result, "since": since}
        return html(
            "frame/access_log.html",
            status,
            section="access-log",
            rows=rows,
            more=more,
            error=error,
            asked=conditions,
            actions=list(LoggedAction),
            results=list(Outcome),
            limit=DEFAULT_LIMIT,
        )

    return router
