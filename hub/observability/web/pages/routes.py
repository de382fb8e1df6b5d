"""[edge] FastAPI: the pages for browsers, and their JSON at the same addresses below ``/api``.

A page may share its address with an API route (``/topics``, ``/views/{view}``): requests that accept HTML get
the page, all others the API's answer. Errors of pages are pages. Parts that query Kafka load after the page,
from ``/ui``.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, MutableMapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from itertools import groupby
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

import anyio
import anyio.to_thread
import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from starlette.routing import Match

from hub.alerts.alerts_json import matchers_from
from hub.alerts.routes import end_of
from hub.alerts.runbooks import runbook
from hub.caller import Action, Forbidden, Kind, Resource, Unauthenticated, done_by, require, sees_topic
from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.observability.lineage.lineage import (
    Columns,
    Lineage,
    ViewStorage,
    drawn,
    lineage_of,
    open_lineage,
    visible_lineage,
)
from hub.observability.overview.mirror_readers import MirrorStatuses
from hub.observability.web.page import html, is_of, render, takes_html
from hub.observability.web.pages.estate import PageSources, ask
from hub.observability.web.pages.explore import messages, schemas, search, topic, topics
from hub.observability.web.pages.explore.lookup import Lookup
from hub.observability.web.pages.index import SearchIndex
from hub.observability.web.pages.monitor import (
    alerts,
    cluster,
    completeness,
    connect,
    lag,
    latency,
    lineage,
    mirrors,
    views,
)
from hub.schema_registry.folder.search import SearchEntry, search_in
from hub.schema_registry.registry.errors import RequestRefused
from hub.topics.browse.browse import MessageQuery, Tail
from hub.topics.browse.describe import TopicFacts
from hub.topics.browse.describe import as_json as described

READING_AT_ONCE = 8
TAILS_AT_ONCE = 20
TAIL_S = 900.0
TICK_S = 0.5
_ALIVE_S = 10.0
# Longest wait for the first answer of the mirrors' clusters, where an answer without them would be wrong.
_MIRRORS_S = 10.0

Facts = Callable[..., Any]
Text = Annotated[str, Query(max_length=500)]


class ForBrowsers(APIRoute):
    """Route that matches only requests that accept HTML, so that programs reach the API route at the same
    address."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, Any]:
        if scope["type"] != "http" or not wants_html(scope) or scope["path"].startswith(_PROGRAMS):
            return Match.NONE, {}
        return super().matches(scope)


# Registry addresses that look like a subject's page.
_PROGRAMS = ("/schemas/ids/", "/schemas/guids/", "/schemas/types")


def wants_html(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request accepts HTML, as browsers do."""
    return any(name == b"accept" and takes_html(value.decode("latin-1")) for name, value in scope["headers"])


def status_of(error: HubError) -> int:
    """Return the status of an error: 404 not found, 403 or 401 access, 400 invalid request, 503 peer away,
    else 500."""
    if isinstance(error, NotFound) or (isinstance(error, RequestRefused) and error.status == 404):
        return 404
    if isinstance(error, Forbidden | Unauthenticated):
        return 403 if isinstance(error, Forbidden) else 401
    if isinstance(error, CallerError):
        return 400
    return 503 if isinstance(error, PeerError) else 500


@dataclass(frozen=True)
class Frame:
    """Renderer of pages with their frame: health, navigation, own address and address of the JSON."""

    estate: PageSources

    def shown(self, template: str, request: Request, answer: int = 200, /, **values: Any) -> Response:
        """Return a page."""
        overview = self.estate.topics.overview()
        path = request.url.path
        query = f"?{request.url.query}" if request.url.query else ""
        common = {
            "overview": overview,
            "now_ms": overview.at_ms,
            "path": path,
            "params": request.query_params,
            "here": f"{quote(path)}{query}",
            "twin": f"/api{quote(path)}{query}",
            "found_by": request.query_params.get("q", "") if path == "/search" else "",
        }
        return html(template, answer, **{**common, **values})

    def failed(self, request: Request, error: HubError, section: str) -> Response:
        """Return an error as a page, or as a part of one, with status 200 since htmx shows no other."""
        status = status_of(error)
        if request.url.path.startswith("/ui/"):
            return html("trouble.html", error=error)
        return self.shown("error.html", request, status, error=error, status=status, section=section)


@dataclass
class MessagesAsked:
    """Query parameters for a topic's messages."""

    partition: Text = ""
    start: Annotated[str, Query(alias="from", max_length=100)] = ""
    before: Annotated[str, Query(max_length=20_000)] = ""
    after: Annotated[str, Query(max_length=20_000)] = ""
    q: Text = ""
    limit: int = 50

    def of(self, topic: str, now_ms: int) -> MessageQuery:
        """Return the query for a topic. Raises CallerError."""
        return messages.wanted_of(
            topic,
            now_ms,
            partition=self.partition,
            start=self.start,
            before=self.before,
            after=self.after,
            words=self.q,
            limit=self.limit,
        )


def nowhere(estate: PageSources) -> APIRouter:
    """Return the page for unknown addresses. Include it after all other routes."""
    router = APIRouter(route_class=ForBrowsers)
    frame = Frame(estate)

    @router.get("/{rest:path}", include_in_schema=False)
    def nothing(request: Request, rest: str) -> Response:
        error = NotFound(
            f'there is nothing at "/{rest[:200]}"', hint="the navigation leads to all that there is"
        )
        return frame.failed(request, error, "")

    return router


def create_router(
    estate: PageSources, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
) -> APIRouter:
    """Return the routes of all pages. Include it before the API routes at the same addresses."""
    router = APIRouter()
    reading = anyio.Semaphore(READING_AT_ONCE)
    tail_threads = anyio.CapacityLimiter(TAILS_AT_ONCE)
    tails = [0]
    index = SearchIndex(estate.registry)
    lookup = Lookup(estate.rows)

    frame = Frame(estate)
    shown, failed = frame.shown, frame.failed

    def page(
        path: str,
        template: str,
        section: str,
        *,
        twin: bool = True,
        for_programs: bool = False,
        more: Callable[[Request, Any], Mapping[str, Any]] = lambda _request, _facts: {},
    ) -> Callable[[Facts], Facts]:
        """Register two routes: the page, and its JSON.

        ``twin`` False: another route serves the JSON. ``for_programs``: serve JSON at the page's own address
        too. ``more``: values that only the template needs.
        """

        class Route(ForBrowsers):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle = super().get_route_handler()

                async def handled(request: Request) -> Response:
                    try:
                        return await handle(request)
                    except HubError as error:
                        return failed(request, error, section)
                    except RequestValidationError as error:
                        first = error.errors()[0]
                        wrong = CallerError(f"{first['loc'][-1]}: {first['msg']}")
                        return failed(request, wrong, section)

                return handled

        def register(facts: Facts) -> Facts:
            @wraps(facts)
            def as_html(request: Request, **given: Any) -> Response:
                found = facts(request, **given)
                return shown(template, request, facts=found, section=section, **more(request, found))

            @wraps(facts)
            def as_json(request: Request, **given: Any) -> Response:
                return json_of(facts(request, **given))

            router.add_api_route(
                path, as_html, route_class_override=Route, include_in_schema=False, response_model=None
            )
            if twin:
                router.add_api_route(f"/api{path}", as_json, tags=["pages"], response_model=None)
            if for_programs:
                router.add_api_route(path, as_json, include_in_schema=False, response_model=None)
            return facts

        return register

    # ---- search

    def entries(words: str) -> tuple[list[SearchEntry], tuple[str, ...]]:
        """Return the registry's search entries, or why they are unavailable."""
        try:
            return (index.entries() if words else []), ()
        except HubError as error:
            return [], (f"schemas: {error.message}",)

    @page("/search", "search.html", "", for_programs=True)
    def everything(request: Request, q: Text = "") -> search.SearchPage:
        """Topics, schemas with their fields, and views that have every word of ``q``."""
        found, missing = entries(q.strip())
        return search.search_page(q.strip(), estate.topics.overview(), estate.tree(), found, missing)

    # ---- schemas

    @page("/schemas", "schemas.html", "schemas")
    def subjects(
        request: Request,
        q: Text = "",
        schema_type: Annotated[str, Query(alias="type", max_length=20)] = "",
        page: int = 1,
    ) -> schemas.SubjectsPage:
        """All subjects, or those with every word of ``q`` in their names, fields, docs, owners or tags."""
        q = q.strip()
        matches = search_in(index.entries(), q) if q else None
        return ask(
            estate.registry, lambda registry: schemas.subjects_page(registry, matches, q, schema_type, page)
        )

    @page("/schemas/{subject:path}", "schema.html", "schemas")
    def subject_page(
        request: Request, subject: str, version: int | None = None, against: int | None = None
    ) -> schemas.SubjectPage:
        """One subject at a ``version`` (the newest), and what changed since ``against`` (the one before)."""
        # Checked here, not in the guard: there the same address may be an API route that names no subject.
        require(Action.describe, Resource(Kind.subject, subject))
        taken = ask(estate.registry, lambda registry: schemas.take(registry, subject, version, against))
        comparison = schemas.compared(taken)
        impact = schemas.impact_of(
            taken.page.topic,
            comparison.touched if comparison is not None else (),
            estate.topics.overview().views,
            columns_of,
            estate.lag(),
            estate.mirrors().mirrors,
        )
        return replace(taken.page, comparison=comparison, impact=impact, unmeasured=estate.unmeasured())

    # ---- views

    @page("/views", "views_page.html", "views")
    def views_list(request: Request, q: Text = "", owner: Text = "", state: Text = "") -> views.ViewsPage:
        """Views, those that need eyes first: with every word of ``q``, of an ``owner``, in a ``state``."""
        return views.views_page(estate.topics.overview(), q.strip(), owner, state)

    def row_of(request: Request, found: views.ViewPage) -> Mapping[str, Any]:
        key = request.query_params.get("key", "")
        return {**lookup.facts(estate.topics.overview(), found.line.name, key), "only": True}

    @page("/views/{name}", "view.html", "views", more=row_of)
    def view_page(request: Request, name: str) -> views.ViewPage:
        """One view: how fresh it is, its sources, stores, versions, its file, and how to ask it."""
        overview, missing = estate.topics.overview(), []
        told: list[Mapping[str, Any]] = []
        known = any(view.name == name for view in overview.views)
        for what, tell in (("fields and stores", estate.views.describe), ("versions", estate.views.versions)):
            try:
                told.append(tell(name) if known else {})
            except HubError as error:
                told.append({})
                missing.append(f"{what}: {error.message}")
        keys = lookup.recent(name) if known else ()
        about, versions = told
        found = views.view_page(overview, name, about, versions, keys, str(request.base_url), tuple(missing))
        return replace(found, batches=tuple(estate.topics.batches(name)))

    # ---- lag

    @page("/lag", "lag_page.html", "lag", twin=False)
    def lag_list(
        request: Request,
        state: Annotated[list[str] | None, Query()] = None,
        owner: Text = "",
        prefix: Text = "",
        name: Text = "",
        kind: Text = "",
        page: int = 1,
    ) -> lag.LagPage:
        states = [each for text in state or () for each in text.split(",")]
        wanted = lag.LagFilter(lag.checked(states), owner, prefix.strip(), name.strip(), kind)
        return lag.lag_page(estate.lag(), wanted, page, estate.unmeasured())

    # ---- latency

    @page("/latency", "latency.html", "latency", twin=False)
    def latency_list(
        request: Request, view: Text = "", stage: Text = "", origin: Text = "", page: int = 1
    ) -> latency.LatencyPage:
        wanted = latency.checked(latency.LatencyFilter(view.strip(), stage, origin))
        return latency.latency_page(estate.latency(), wanted, page)

    # ---- the cluster

    @page("/cluster", "cluster.html", "cluster", for_programs=True)
    def cluster_now(request: Request) -> cluster.ClusterPage:
        """Brokers, their disks, partitions without a leader or with too few replicas in sync; the registry, Kafka Connect, canaries
        and the hub's own processes. null: not known."""
        return cluster.cluster_page(
            estate.health(),
            estate.bootstrap,
            registry_line(),
            estate.topics.overview().connect,
            estate.processes(),
            estate.canary(),
            sees_topic,
        )

    def registry_line() -> cluster.RegistryLine:
        position = estate.registry.position
        try:
            subjects = ask(estate.registry, lambda registry: len(registry.subjects))
        except HubError as error:
            return cluster.RegistryLine("waiting", position, None, error.message)
        return cluster.RegistryLine("ready", position, subjects)

    # ---- Kafka Connect

    @page("/connect", "connect_page.html", "connect", for_programs=True)
    def connect_list(request: Request, q: Text = "", state: Text = "", page: int = 1) -> connect.ConnectPage:
        """Kafka Connect's connectors and tasks, the worst first; with ``q`` in a name or a worker's, in a ``state``. What no
        worker tells now is UNKNOWN, and ``of`` null while nothing was ever heard."""
        return connect.connect_page(estate.topics.overview().connect, q.strip(), state, page)

    # ---- completeness

    @page("/completeness", "completeness.html", "completeness", for_programs=True, more=map_of)
    def completeness_map(
        request: Request,
        topics: Text = "",
        state: Annotated[list[str] | None, Query()] = None,
        span: Annotated[str, Query(alias="range", max_length=10)] = "1h",
        until: Text = "",
        order: Annotated[str, Query(max_length=10)] = "worst",
        topic: Text = "",
        at: Text = "",
        page: int = 1,
    ) -> completeness.CompletenessPage:
        """Topics by time: is everything there that was written? ``topics`` a pattern, ``range`` up to ``until``, and one cell
        (``topic``, ``at``) looked at closely."""
        states = tuple(each for text in state or () for each in text.split(",") if each)
        wanted = completeness.GridFilter(topics.strip(), states, span, until.strip(), order)
        names = [line.name for line in estate.topics.overview().topics]
        return completeness.completeness_page(
            estate.completeness(), names, wanted, now_ms(), page, topic.strip(), at.strip()
        )

    # ---- alerts

    desk = estate.alerts

    def form_of(request: Request, _found: alerts.AlertsPage) -> Mapping[str, Any]:
        asked = request.query_params.get("silence", "")[:2_000]
        form = {"matchers": asked, "reason": "", "by": "", "for": "2h", "error": None}
        return {"form": form, "narrow": alerts.narrow}

    @page("/alerts", "alerts_page.html", "alerts", twin=desk is None, more=form_of)
    def alerts_list(
        request: Request,
        severity: Text = "",
        owner: Text = "",
        name: Text = "",
        page: int = 1,
        past: int = 1,
    ) -> alerts.AlertsPage:
        """What fires or is pending, what was, rules, silences and channels. Without a desk: that alerts are off."""
        wanted = alerts.AlertsFilter(severity, owner, name)
        return alerts.alerts_page(None if desk is None else desk.known(), wanted, page, past)

    @page("/alerts/runbooks/{name}", "runbook.html", "alerts")
    def runbook_page(request: Request, name: str) -> Mapping[str, Any]:
        """What an alert means and what to do."""
        return {"name": name, "blocks": runbook(name)}

    @router.post("/alerts/silences", include_in_schema=False)
    async def new_silence(request: Request) -> Response:
        said = await posted(request)
        form: dict[str, Any] = {name: said.get(name, "") for name in ("matchers", "reason", "by", "for")}
        try:
            if desk is None:
                raise CallerError("alerts are off here")
            matchers = matchers_from(each for each in form["matchers"].split(",") if each.strip())
            ends_ms = end_of(form["for"], None, now_ms())
            await anyio.to_thread.run_sync(
                desk.silence, matchers, form["reason"], done_by(form["by"]), ends_ms
            )
        except (HubError, ValueError) as error:
            wrong = error.message if isinstance(error, HubError) else str(error)
            known = alerts.alerts_page(None if desk is None else desk.known(), alerts.AlertsFilter())
            values = {"form": {**form, "error": wrong}, "narrow": alerts.narrow}
            status = status_of(error) if isinstance(error, HubError) else 400
            # The page that sent the form, and from which it is refreshed.
            return shown(
                "alerts_page.html",
                request,
                status,
                facts=known,
                section="alerts",
                **values,
                here="/alerts",
                twin="/api/alerts",
            )
        return Response(status_code=303, headers={"Location": "/alerts#silence"})

    @router.post("/alerts/silences/{id}/end", include_in_schema=False)
    async def end_silence(request: Request, id: str) -> Response:
        await posted(request)
        try:
            if desk is None:
                raise CallerError("alerts are off here")
            await anyio.to_thread.run_sync(desk.unsilence, id)
        except HubError as error:
            return failed(request, error, "alerts")
        return Response(status_code=303, headers={"Location": "/alerts#silence"})

    # ---- lineage

    def graph(wait_s: float = 0.0) -> tuple[Lineage, tuple[str, ...], MirrorStatuses]:
        """Return the lineage that the caller may see. ``wait_s``: longest wait for mirrors that were not
        read yet."""
        kept: Mapping[str, ViewStorage] = {}
        missing: tuple[str, ...] = ()
        try:
            kept = estate.views.kept()
        except HubError as error:
            missing = (f"stores: {error.message}",)
        until_s = time.monotonic() + wait_s
        while (told := estate.mirrors()).declared and told.asked_at_ms is None:
            if time.monotonic() >= until_s:
                missing += (lineage.ASKING,)
                break
            time.sleep(0.1)
        missing += lineage.unreported_mirrors(told)
        mirrored = MirrorStatuses(told.mirrors, told.here, told.clusters, told.asked_at_ms)
        views = estate.topics.overview().views
        whole = lineage_of(views, estate.lag(), kept, mirrored, now_ms())
        return visible_lineage(whole), missing, mirrored

    def columns_of(views: Collection[str]) -> Mapping[str, Columns]:
        try:
            return estate.views.made_of(views)
        except HubError:
            return {}

    def drawing_of(_request: Request, found: lineage.LineagePage) -> Mapping[str, Any]:
        part = Lineage({node.id: node for node in found.nodes}, found.edges)
        return {"drawing": drawn(part), "short": lineage.short, "home_of": lineage.home_of}

    @page("/lineage", "lineage.html", "lineage", for_programs=True, more=drawing_of)
    def lineage_of_all(request: Request, of: Text = "", steps: int = 3) -> lineage.LineagePage:
        """What events go through: topics, views, stores and readers ``of`` a name or id (``view:customer_360``), so many
        ``steps`` each way, with the live lag on each edge; why it is late, and what a view's columns are made of."""
        whole, missing, _ = graph()
        if of and lineage.ASKING in missing and not whole.knows(of.strip()):
            whole, missing, _ = graph(_MIRRORS_S)  # it may be the name of a mirror
        return lineage.lineage_page(whole, of.strip(), steps, columns_of, missing, estate.unmeasured())

    @router.get("/api/openlineage", tags=["pages"], response_model=None)
    def as_open_lineage() -> Response:
        """The same as OpenLineage's job events, with the columns of views."""
        whole, _, mirrored = graph(_MIRRORS_S)
        views = [node.name for node in whole.nodes.values() if node.kind == "view"]
        at = datetime.now(UTC).isoformat(timespec="seconds")
        first = estate.bootstrap.partition(",")[0]
        return json_of(open_lineage(whole, columns_of(views), first, at, mirrored.clusters))

    # ---- mirrors

    @page("/mirrors", "mirrors_page.html", "mirrors", for_programs=True)
    def mirrors_list(request: Request) -> mirrors.MirrorsPage:
        """How every mirror goes, and whether its target could take over. Asked of the clusters in the background:
        ``asked_at_ms`` is null until they answered once."""
        return mirrors.mirrors_page(estate.mirrors())

    # ---- queries

    @page("/query", "query.html", "query", for_programs=True)
    def query_console(
        request: Request, sql: Annotated[str, Query(max_length=20_000)] = ""
    ) -> Mapping[str, Any]:
        """What the console offers: views with rows, the project's saved queries."""
        overview = estate.topics.overview()
        names = [view.name for view in overview.views]
        return {"sql": sql, "views": names, "error": overview.error, "saved": estate.saved()}

    # ---- topics

    @page("/topics", "topics_page.html", "topics")
    def topic_tree(
        request: Request,
        under: Text = "",
        q: Text = "",
        owner: Text = "",
        tag: Text = "",
        kind: Text = "",
        order: Text = "tree",
        page: int = 1,
    ) -> topics.TopicListing:
        """The tree of topics: ``under`` a place, with the words ``q``, of an ``owner``, with a ``tag``, of a ``kind``."""
        wanted = topics.Filter(under.strip().strip("."), q.strip(), owner, tag, kind, order)
        others = estate.topics.other_lines(kind)
        return topics.listing(estate.topics.overview(), others, estate.tree(), wanted, page)

    def line_of(name: str) -> Any:
        line = estate.topics.line(name)
        if line is None:
            overview = estate.topics.overview()
            if overview.kafka.state == "connecting":
                raise PeerError("Kafka has not told its topics yet", hint="load the page again in a moment")
            if name in estate.tree():
                raise NotFound(
                    f'topic "{name}" is in topics.yaml and not in Kafka', hint="hub topic apply makes it"
                )
            guess = topic.near(name, estate.topics.names())
            raise NotFound(
                f'topic "{name}" does not exist',
                hint=f'did you mean "{guess}"?' if guess else "all that there are: /topics",
            )
        return line

    @page("/topics/{name}", "topic.html", "topics")
    def topic_page(request: Request, name: str) -> topic.TopicPage:
        """One topic: what it is, whose, how it flows, its schemas, who reads it, what is made of it."""
        line, missing = line_of(name), []
        subjects: tuple[topic.SubjectLine, ...] = ()
        try:
            subjects = ask(estate.registry, lambda registry: topic.subjects_of(registry, name))
        except HubError as error:
            missing.append(f"schemas: {error.message}")
        return topic.topic_page(
            line,
            estate.topics.overview(),
            estate.lag(),
            estate.tree().get(name),
            subjects,
            estate.topics.names(),
            tuple(missing),
            estate.unmeasured(),
        )

    @page("/topics/{name}/settings", "settings_page.html", "topics", for_programs=True)
    def topic_settings(request: Request, name: str) -> Any:
        """Partitions, replicas, sizes, settings with where each is from. Asks Kafka, a few seconds at most."""
        return described(estate.describe(name))

    @router.get("/ui/topics/{name}/settings", include_in_schema=False)
    def settings_part(request: Request, name: str) -> Response:
        try:
            found: TopicFacts = estate.describe(name)
        except HubError as error:
            return failed(request, error, "topics")
        return html("settings.html", facts=described(found), name=name)

    async def found(wanted: MessageQuery) -> messages.MessagesPart:
        if reading.statistics().tasks_waiting >= READING_AT_ONCE:
            raise PeerError("too many people read messages at this moment", hint="try again")
        async with reading:
            result = await anyio.to_thread.run_sync(estate.browser.find, wanted)
        return messages.messages_part(wanted, result, estate.browser.bounds, now_ms())

    @router.get("/api/topics/{name}/messages", tags=["pages"], response_model=None)
    async def messages_json(
        name: str,
        asks: Annotated[MessagesAsked, Depends()],
    ) -> Response:
        """Messages: the newest, or ``from`` an offset of a ``partition``, a time, or ``15m`` ago; with the words ``q``.

        Bounded in records, bytes and seconds; ``scanned`` and ``complete`` say what the answer covers; ``older`` and
        ``newer`` go on, as ``before`` and ``after``."""
        return json_of(await found(asks.of(name, now_ms())))

    @router.get("/ui/topics/{name}/messages", include_in_schema=False)
    async def messages_part(
        request: Request,
        name: str,
        asks: Annotated[MessagesAsked, Depends()],
    ) -> Response:
        try:
            part = await found(asks.of(name, now_ms()))
        except HubError as error:
            return failed(request, error, "topics")
        query = f"?{request.url.query}" if request.url.query else ""
        return html(
            "messages.html",
            facts=part,
            asks={"partition": asks.partition, "q": asks.q, "limit": asks.limit if asks.limit != 50 else ""},
            now_ms=now_ms(),
            twin=f"/api/topics/{quote(name)}/messages{query}",
        )

    def too_many_tails() -> PeerError:
        return PeerError(f"{TAILS_AT_ONCE} people watch messages already", hint="try again later")

    async def ticks(request: Request, wanted: MessageQuery) -> AsyncIterator[Any]:
        """Yield new messages twice a second until the client disconnects."""

        async def run(work: Callable[..., Any], *given: Any) -> Any:
            return await anyio.to_thread.run_sync(work, *given, limiter=tail_threads)

        if tails[0] >= TAILS_AT_ONCE:  # several arrived at the same moment
            raise too_many_tails()
        tails[0] += 1
        tail = None
        try:
            tail = await run(Tail, estate.browser, wanted)
            until = time.monotonic() + TAIL_S
            while time.monotonic() < until and not await request.is_disconnected():
                began = time.monotonic()
                yield await run(tail.step, TICK_S)
                await asyncio.sleep(max(0.0, TICK_S - (time.monotonic() - began)))
        finally:
            tails[0] -= 1
            if tail is not None:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(tail.close)

    async def stream(request: Request, wanted: MessageQuery, as_html: bool) -> AsyncIterator[bytes]:
        told_at = 0.0
        yield b"event: open\ndata: {}\n\n"
        try:
            async for tick in ticks(request, wanted):
                if not tick.seen and not tick.passed_by:
                    if time.monotonic() - told_at > _ALIVE_S:
                        told_at = time.monotonic()
                        yield b": alive\n\n"
                    continue
                told_at = time.monotonic()
                if not as_html:
                    yield sse("messages", orjson.dumps(tick).decode())
                    continue
                if tick.messages:
                    yield sse("messages", render("tail.html", messages=tick.messages, name=wanted.topic))
                yield sse("said", render("tail_said.html", tick=tick))
        except HubError as error:
            yield sse("said", render("tail_said.html", tick=None, error=error) if as_html else error.message)
        yield sse("ended", "")

    def tail_of(request: Request, name: str, partition: str, q: str, as_html: bool) -> Response:
        line_of(name)
        if tails[0] >= TAILS_AT_ONCE:
            raise too_many_tails()
        wanted = MessagesAsked(partition, q=q).of(name, now_ms())
        return StreamingResponse(
            stream(request, wanted, as_html),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    @router.get("/api/topics/{name}/tail", tags=["pages"], response_model=None)
    async def tail_json(request: Request, name: str, partition: Text = "", q: Text = "") -> Response:
        """Server-sent events: new messages as they come, at most ten a second; what is left out is counted."""
        return tail_of(request, name, partition, q, as_html=False)

    @router.get("/ui/topics/{name}/tail", include_in_schema=False)
    async def tail_part(request: Request, name: str, partition: Text = "", q: Text = "") -> Response:
        return tail_of(request, name, partition, q, as_html=True)

    return router


def map_of(_request: Request, facts: completeness.CompletenessPage) -> Mapping[str, Any]:
    """Return the values of the heat map's template besides its facts."""
    branches = [(name, list(rows)) for name, rows in groupby(facts.rows, lambda row: row.branch)]
    return {
        "branches": branches,
        "meaning": completeness.MEANING,
        "ranges": completeness.RANGES,
        "minute": completeness.minute,
        "tick": completeness.tick,
    }


MOST_POSTED = 20_000


async def posted(request: Request) -> Mapping[str, str]:
    """Return the values of a form sent from this server's own page; another site cannot submit one on the
    user's behalf.

    Raises CallerError.
    """
    site, origin, host = (request.headers.get(name, "") for name in ("sec-fetch-site", "origin", "host"))
    if not (site == "same-origin" if site else is_of(origin, host)):
        raise CallerError(
            "this form was not sent from the hub's own page", hint="open /alerts and send it there"
        )
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_POSTED:
            raise CallerError(f"more than {MOST_POSTED} bytes")
    return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=20))


def sse(event: str, text: str) -> bytes:
    """Format one server-sent event; the text may have several lines."""
    # Not splitlines(): it also splits at characters that the standard does not, and JSON may contain these.
    lines = "".join(f"data: {line}\n" for line in re.split(r"\r\n|\r|\n", text))
    return f"event: {event}\n{lines}\n".encode()


def json_of(facts: Any) -> Response:
    """Return the facts as JSON. Strings that are not valid Unicode (lone surrogates in a schema) are
    escaped."""
    try:
        body = orjson.dumps(facts, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        body = json.dumps(facts, default=lambda each: asdict(each)).encode()
    return Response(body, media_type="application/json")
