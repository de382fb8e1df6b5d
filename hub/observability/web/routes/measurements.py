"""[edge] FastAPI: the pages of lag and latency, whose JSON are the API's own routes; charts of all pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from hub.errors import CallerError, HubError, NotFound
from hub.observability.series.answers import series_csv, series_json
from hub.observability.series.catalog import SeriesObject, parsed_object, reader_object
from hub.observability.series.reading import MOST_OBJECTS, HasSeries, SeriesAnswer
from hub.observability.series.rollup import checked_range
from hub.observability.web.charts.charts import charts_of, numbers_of
from hub.observability.web.page import html
from hub.observability.web.pages.estate import PageSources
from hub.observability.web.pages.monitor import lag, latency
from hub.observability.web.routes.page_router import PageRouter, Text, json_of, split_values

# Readers whose charts are on the page of lag, a line each.
MOST_READERS = 5


def lag_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/lag``."""
    pages = PageRouter(sources, "lag")

    def charted(_request: Request, found: lag.LagPage) -> Mapping[str, object]:
        """Return the readers whose charts the page shows: the first of the list."""
        rows = [row for row in found.rows if row.topic is not None][:MOST_READERS]
        return {"charted": [str(reader_object(row.kind, row.name, row.topic or "")) for row in rows]}

    @pages.page("/lag", "monitor/lag.html", has_json=False, more=charted)
    def lag_list(
        request: Request,
        state: Annotated[list[str] | None, Query()] = None,
        owner: Text = "",
        prefix: Text = "",
        name: Text = "",
        kind: Text = "",
        page: int = 1,
    ) -> lag.LagPage:
        states = lag.checked(split_values(state))
        wanted = lag.LagFilter(states, owner, prefix.strip(), name.strip(), kind)
        return lag.lag_page(sources.lag(), wanted, page, sources.unmeasured())

    return pages.routes


def latency_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/latency``."""
    pages = PageRouter(sources, "latency")

    @pages.page("/latency", "monitor/latency.html", has_json=False)
    def latency_list(
        request: Request, view: Text = "", stage: Text = "", origin: Text = "", page: int = 1
    ) -> latency.LatencyPage:
        wanted = latency.checked(latency.LatencyFilter(view.strip(), stage, origin))
        return latency.latency_page(sources.latency(), wanted, page)

    return pages.routes


Of = Annotated[
    list[str],
    Query(
        max_length=MOST_OBJECTS,
        description="Objects of one kind: hub, cluster, topic:NAME, view:NAME, mirror:NAME, process:NAME or "
        "reader:KIND/NAME/TOPIC.",
    ),
]
Metrics = Annotated[list[str] | None, Query(max_length=50, description="Only these metrics.")]
Format = Annotated[Literal["json", "csv"], Query(description="json or csv.")]


def chart_routes(sources: PageSources) -> APIRouter:
    """Return the routes of the charts' parts and of ``/api/series``."""
    router = APIRouter()

    @router.get("/ui/charts", include_in_schema=False)
    def charts_part(of: Of, range: Text = "") -> Response:
        try:
            objects, answer = _read(sources.series, of, (), range)
            charts = charts_of(objects, answer, lambda kind: _all_of(sources.series, kind, range))
        except HubError as error:
            return html("charts/charts.html", error=error)
        parameters, count = {"of": of, "range": range}, len(answer.window.times)
        return html(
            "charts/charts.html", error=None, answer=answer, charts=charts, asked=parameters, count=count
        )

    @router.get("/ui/charts/numbers", include_in_schema=False)
    def numbers_part(of: Of, range: Text = "") -> Response:
        try:
            _, answer = _read(sources.series, of, (), range)
        except HubError as error:
            return html("charts/numbers.html", error=error)
        table = numbers_of(answer)
        return html("charts/numbers.html", error=None, table=table, now_ms=answer.window.end_ms)

    @router.get("/api/series", tags=["observability"], response_model=None)
    def series(of: Of, metric: Metrics = None, range: Text = "", format: Format = "json") -> Response:
        """Series of objects over a range: 15m, 1h (the default), 6h, 24h, 7d or 30d. A time without a known
        sample is null: unknown, never 0."""
        _, answer = _read(sources.series, of, metric or (), range)
        if format == "csv":
            return Response(series_csv(answer), media_type="text/csv")
        return json_of(series_json(answer))

    return router


def _read(
    series: HasSeries | None, of: list[str], metrics: Sequence[str], range: str
) -> tuple[list[SeriesObject], SeriesAnswer]:
    """Return the objects of an address and their series. Raises NotFound, CallerError, PeerError."""
    if series is None:
        raise NotFound("this server records no series", hint="set series_most in hub.yaml to more than 0")
    wanted, objects = checked_range(range), [parsed_object(text) for text in dict.fromkeys(of)]
    if len({each.kind for each in objects}) > 1:
        raise CallerError(
            "objects of several kinds have no common charts", hint="ask for each kind by itself"
        )
    return objects, series.read(objects, metrics, wanted)


def _all_of(series: HasSeries | None, kind: str, range: str) -> SeriesAnswer | None:
    """Return the series of all objects of a kind; None without any."""
    series_objects = series.objects(kind) if series is not None else ()
    return (
        series.read(series_objects, (), checked_range(range))
        if series is not None and series_objects
        else None
    )
