"""[edge] FastAPI: the page at ``/``, its fragments under ``/ui``, the same facts as JSON under ``/api``, ``/metrics``.

Nothing here asks Kafka: everything is read from the collector's memory, and rows from the store. All of it is
read-only. The page loads nothing from other hosts and runs no inline script, and its policy (CSP) says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Protocol
from urllib.parse import urlencode

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from hub.errors import HubError, NotFound
from hub.observability import metrics
from hub.observability.collector import wall_clock_ms
from hub.observability.consumers import LagRow
from hub.observability.overview import Overview, lag_rows
from hub.observability.reports import ViewSource
from hub.observability.status import LagState
from hub.observability.web.card import card
from hub.observability.web.page import html, static_files
from hub.observability.web.tree import branches

SUGGESTIONS = 8


class HasOverview(Protocol):
    def overview(self) -> Overview: ...


class HasRows(Protocol):
    """Every consumer's lag, worst first; ``round_s``: what the last round of measuring took."""

    round_s: float | None

    def rows(self) -> Sequence[LagRow]: ...


def create_router(
    collector: HasOverview,
    views: ViewSource,
    counters: metrics.Counters = tuple,
    monitor: HasRows | None = None,
    series: int = metrics.SERIES,
) -> APIRouter:
    """The routes over a running Collector and the store's views; others' ``counters`` go into ``/metrics``, and there
    the ``series`` worst consumers of ``monitor``."""
    router = APIRouter()
    lookup = Lookup(views)

    @router.get("/", include_in_schema=False)
    def page(request: Request, view: str = "", key: str = "") -> Response:
        """The dashboard for browsers; for programs the empty object that schema registries answer with."""
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse({})
        overview = collector.overview()
        return html("page.html", section="overview", **{**lookup.facts(overview, view, key), **_facts(overview)})

    @router.get("/ui/overview", include_in_schema=False)
    def overview_fragment() -> Response:
        return html("overview.html", **_facts(collector.overview()))

    @router.get("/ui/lookup", include_in_schema=False)
    def lookup_fragment(view: str = "", key: str = "", waiting: bool = False) -> Response:
        """``waiting``: the page asks by itself until there is something to show; its address stays."""
        facts = lookup.facts(collector.overview(), view, key)
        response = html("lookup.html", **facts)
        if waiting:
            return response
        chosen = {"view": facts["view"], "key": facts["key"]}
        response.headers["HX-Push-Url"] = f"/?{urlencode({k: v for k, v in chosen.items() if v})}"
        return response

    @router.get("/ui/recent", include_in_schema=False)
    def recent_fragment(view: str = Query(), key: str = "") -> Response:
        return html("recent.html", view=view, key=key, keys=lookup.recent(view))

    @router.get("/ui/card", include_in_schema=False)
    def card_fragment(view: str = Query(), key: str = Query()) -> Response:
        return html("card.html", **lookup.card(view, key))

    @router.get("/ui/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in static_files():
            raise NotFound(f'file "{name}" is not part of the dashboard')
        path, media_type = static_files()[name]
        return FileResponse(
            path, media_type=media_type, headers={"Cache-Control": "public, max-age=31536000, immutable"}
        )

    @router.get("/api/overview")
    def overview_json() -> Response:
        """Kafka, topics, views and lag of this moment. null means: not known."""
        return Response(orjson.dumps(as_json(collector.overview())), media_type="application/json")

    def known_rows() -> Sequence[LagRow]:
        """All consumers; before they were measured once, the views."""
        rows = monitor.rows() if monitor is not None else ()
        return rows or lag_rows(collector.overview())

    @router.get("/api/lag")
    def lag_json(
        state: Annotated[list[LagState] | None, Query(description="Only these states.")] = None,
        owner: Annotated[str | None, Query(description="Only what belongs to it.")] = None,
        prefix: Annotated[str, Query(description="Only topics that begin so.")] = "",
        name: Annotated[str | None, Query(description="Only this group, view or applier.")] = None,
        kind: Annotated[str | None, Query(description="group, view, applier or mirror.")] = None,
        limit: Annotated[int, Query(ge=1, description="At most so many, the worst.")] = 100_000,
    ) -> Response:
        """One row a consumer and topic, worst first: state, cause, records, seconds ± error_s, eta_s. null: not known."""
        rows = [
            row
            for row in known_rows()
            if (not state or row.state in state)
            and (owner is None or row.owner == owner)
            and (not prefix or (row.topic or "").startswith(prefix))
            and (name is None or row.name == name)
            and (kind is None or row.kind == kind)
        ]
        return Response(orjson.dumps(rows[:limit]), media_type="application/json")

    @router.get("/metrics", include_in_schema=False)
    def prometheus() -> Response:
        overview = collector.overview()
        rows = monitor.rows() if monitor is not None else ()
        round_s = monitor.round_s if monitor is not None else None
        text = metrics.exposition(overview, counters(), rows or lag_rows(overview), series, round_s)
        return Response(text, media_type=metrics.MEDIA_TYPE)

    return router


class Lookup:
    """The live lookup: which view and key are shown, and the row."""

    def __init__(self, views: ViewSource, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.views = views
        self.now_ms = now_ms

    def facts(self, overview: Overview, view: str, key: str) -> dict[str, Any]:
        """What the lookup's template needs. With nothing chosen it shows what changed last."""
        names = [each.name for each in overview.views]
        view = view or (names[0] if names else "")
        keys = self.recent(view) if view in names else []
        key = key.strip() or (keys[0] if keys else "")
        shown = self._nothing(view, key)
        if view in names and key:
            shown = self.card(view, key)
        return {**shown, "view_names": names, "known": view in names, "keys": keys}

    def card(self, view: str, key: str) -> dict[str, Any]:
        """One row as a card; ``card`` None: there is none, ``trouble``: why it cannot be told."""
        facts = self._nothing(view, key)
        try:
            row = self.views.row(view, key)
        except HubError as error:
            return {**facts, "trouble": error.message}
        return facts if row is None else {**facts, "card": card(row)}

    def _nothing(self, view: str, key: str) -> dict[str, Any]:
        return {"view": view, "key": key, "card": None, "trouble": None, "now_ms": self.now_ms()}

    def recent(self, view: str) -> Sequence[str]:
        """Keys that changed last."""
        try:
            return self.views.recent_keys(view, SUGGESTIONS)
        except HubError:
            return []  # the view has no table yet, or the store is away: the card says which


def as_json(overview: Overview) -> dict[str, Any]:
    """The JSON of ``/api/overview``: the values and the totals that the tiles show."""
    worst = overview.worst_lag
    return {
        **asdict(overview),
        "kafka": {**asdict(overview.kafka), "state": overview.kafka.state},
        "totals": {
            "views": len(overview.views),
            "views_live": overview.live_views,
            "worst_lag": None if worst is None else asdict(worst),
            "events": overview.events,
            "events_per_second": overview.events_per_second,
            "undecodable": overview.undecodable,
        },
    }


def _facts(overview: Overview) -> dict[str, Any]:
    return {"overview": overview, "now_ms": overview.at_ms, "branches": branches(overview.topics)}

