"""[edge] FastAPI: the page at ``/``, its fragments under ``/ui``, its JSON under ``/api``, and ``/metrics``.

No route queries Kafka: everything is read from the collector's memory, and rows from the store. All routes
are read-only. The page loads nothing from other hosts and runs no inline script, as its content security
policy states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, Protocol
from urllib.parse import quote

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from hub.alerts.snapshot import AlertSnapshot
from hub.caller import HUB, Action, may
from hub.errors import NotFound
from hub.observability.cluster.connect import summary
from hub.observability.export import metrics
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import LagState
from hub.observability.overview.attention import needs_attention
from hub.observability.overview.first_steps import first_steps
from hub.observability.overview.overview import Overview, lag_rows
from hub.observability.overview.reports import ViewSource
from hub.observability.web.layout import address
from hub.observability.web.page import html, static_files, takes_html
from hub.observability.web.pages.explore.lookup import Lookup
from hub.observability.web.pages.monitor.lag import LagFilter, fitting
from hub.observability.web.tree import branches

# Number of connectors in the overview, worst first; /api/connect has all.
MOST_CONNECTORS = 20


class HasOverview(Protocol):
    def overview(self) -> Overview: ...


class HasLagRows(Protocol):
    """Source of every consumer's lag, worst first. ``round_s``: duration of the last round of
    measurements."""

    @property
    def round_s(self) -> float | None: ...

    def rows(self) -> Sequence[LagRow]: ...


def create_router(
    collector: HasOverview,
    views: ViewSource,
    counters: metrics.Counters = tuple,
    monitor: HasLagRows | None = None,
    series: int = metrics.SERIES,
    families: metrics.Families = tuple,
    firing: Callable[[], int | None] = lambda: None,
    alerts: Callable[[], AlertSnapshot | None] = lambda: None,
    *,
    has_charts: bool = False,
) -> APIRouter:
    """Return the routes over a running Collector and the store's views.

    ``/metrics`` includes ``counters`` and ``families`` of other packages, and the ``series`` worst consumers
    of ``monitor``. ``firing``: number of firing alerts; None: unknown. ``alerts``: all of them; None:
    they are off. ``has_charts``: another router serves the charts of the hub.
    """
    router = APIRouter()
    add_overview(router, collector, Lookup(views), firing, alerts, has_charts=has_charts)
    add_lookup(router, collector, Lookup(views))
    add_lag(router, collector, monitor)

    @router.get("/metrics", include_in_schema=False)
    def prometheus(request: Request) -> Response:
        openmetrics = metrics.OPENMETRICS in request.headers.get("accept", "")
        overview = collector.overview()
        rows = monitor.rows() if monitor is not None else ()
        round_s = monitor.round_s if monitor is not None else None
        text = metrics.exposition(
            *(overview, counters(), rows or lag_rows(overview), series, round_s, families()),
            openmetrics=openmetrics,
        )
        return Response(text, media_type=metrics.OPENMETRICS_TYPE if openmetrics else metrics.MEDIA_TYPE)

    return router


def add_overview(
    router: APIRouter,
    collector: HasOverview,
    lookup: Lookup,
    firing: Callable[[], int | None],
    alerts: Callable[[], AlertSnapshot | None],
    *,
    has_charts: bool,
) -> None:
    """Add the dashboard, its part that is refreshed, its JSON, and static files."""

    def facts(overview: Overview) -> dict[str, Any]:
        problems = needs_attention(overview, alerts())
        return {**_facts(overview), "firing": firing(), "problems": problems}

    @router.get("/", include_in_schema=False)
    def page(request: Request, view: str = "", key: str = "") -> Response:
        """The dashboard for browsers; for programs the empty object that schema registries answer with."""
        if not takes_html(request.headers.get("accept", "")):
            return JSONResponse({})
        overview = collector.overview()
        return html(
            "overview/page.html",
            section="overview",
            **_charted(request, has_charts),
            **{**lookup.facts(overview, view, key), **facts(overview)},
        )

    @router.get("/ui/overview", include_in_schema=False)
    def overview_fragment() -> Response:
        return html("overview/overview.html", **facts(collector.overview()))

    @router.get("/api/overview")
    def overview_json() -> Response:
        """Return the current state of Kafka, topics, views and lag. null: unknown."""
        overview = collector.overview()
        body = as_json(overview)
        body["totals"]["alerts_firing"] = firing()
        body["needs_attention"] = needs_attention(overview, alerts())
        return Response(orjson.dumps(body), media_type="application/json")

    @router.get("/ui/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        if name not in static_files():
            raise NotFound(f'file "{name}" is not part of the dashboard')
        path, media_type = static_files()[name]
        return FileResponse(
            path, media_type=media_type, headers={"Cache-Control": "public, max-age=31536000, immutable"}
        )


def add_lookup(router: APIRouter, collector: HasOverview, lookup: Lookup) -> None:
    """Add the parts of the page that look up a row."""

    @router.get("/ui/lookup", include_in_schema=False)
    def lookup_fragment(view: str = "", key: str = "", waiting: bool = False, only: bool = False) -> Response:
        """``waiting``: the page asks by itself until there is something to show; its address stays. ``only``:
        it is the view's own page."""
        facts = {**lookup.facts(collector.overview(), view, key), "only": only}
        response = html("overview/lookup.html", **facts)
        if waiting:
            return response
        place = f"/views/{quote(facts['view'])}" if only else "/"
        parameters = {"key": facts["key"]} if only else {"view": facts["view"], "key": facts["key"]}
        response.headers["HX-Push-Url"] = address(place, parameters)
        return response

    @router.get("/ui/recent", include_in_schema=False)
    def recent_fragment(view: str = Query(), key: str = "", only: bool = False) -> Response:
        return html("overview/recent.html", view=view, key=key, keys=lookup.recent(view), only=only)

    @router.get("/ui/card", include_in_schema=False)
    def card_fragment(view: str = Query(), key: str = Query()) -> Response:
        return html("overview/card.html", **lookup.card(view, key))


def add_lag(router: APIRouter, collector: HasOverview, monitor: HasLagRows | None) -> None:
    """Add the JSON of every consumer's lag."""

    def known_rows() -> Sequence[LagRow]:
        """Return all consumers; until they have been measured once, the views."""
        rows = monitor.rows() if monitor is not None else ()
        return rows or lag_rows(collector.overview())

    @router.get("/api/lag")
    def lag_json(
        state: Annotated[list[LagState] | None, Query(description="Only these states.")] = None,
        owner: Annotated[str | None, Query(description="Only objects of this owner.")] = None,
        prefix: Annotated[str, Query(description="Only topics with this prefix.")] = "",
        name: Annotated[str | None, Query(description="Only this group, view or applier.")] = None,
        kind: Annotated[str | None, Query(description="group, view, applier or mirror.")] = None,
        limit: Annotated[int, Query(ge=1, description="Most rows to return, the worst first.")] = 100_000,
    ) -> Response:
        """Return one row per consumer and topic, worst first: state, cause, records, seconds ± error_s,
        eta_s. null: unknown."""
        wanted = LagFilter(tuple(state or ()), owner or "", prefix, name or "", kind or "")
        rows = fitting(known_rows(), wanted)
        return Response(orjson.dumps(rows[:limit]), media_type="application/json")


def as_json(overview: Overview) -> dict[str, Any]:
    """Return the JSON of ``/api/overview``: the values, and the totals that the tiles show."""
    worst = overview.worst_lag
    return {
        **asdict(replace(overview, connect=None)),
        "connect": None if overview.connect is None else summary(overview.connect, MOST_CONNECTORS),
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


def _charted(request: Request, has_charts: bool) -> dict[str, Any]:
    """Return what the charts of the overview need. Totals cover every topic and view."""
    return {"params": request.query_params, "has_charts": has_charts and may(Action.read, HUB)}


def _facts(overview: Overview) -> dict[str, Any]:
    return {
        "overview": overview,
        "now_ms": overview.at_ms,
        "branches": branches(overview.topics),
        "most_connectors": MOST_CONNECTORS,
        # Who may not operate the hub sees a part of it: it may look empty and be in use.
        "first_steps": first_steps(overview) if may(Action.operate, HUB) else (),
    }
