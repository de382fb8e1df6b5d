"""[edge] FastAPI: compose the packages' routes, map errors to status codes, open and close resources."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.websockets import WebSocket
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from hub.access.authenticate import Proxies
from hub.access.live_config import LiveAccess
from hub.api import sign_in
from hub.api.alerting import AlertSources, add_alerts, make_alert_manager
from hub.api.api_docs import add_docs
from hub.api.auditing.open_log import open_request_log
from hub.api.auditing.statement_log import database_log
from hub.api.dashboard import add_canaries, add_dashboard, alerts_for_caller, own_families
from hub.api.erasing.open_erasures import add_erasures
from hub.api.granting.open_requests import open_access
from hub.api.guard import AuthenticationContext, Guard
from hub.api.help_pages import add_help
from hub.api.materializer_health import around
from hub.api.quotas.usage import ServerUsage
from hub.api.web import HubParts, add_history, counted_topics, mirrors_of
from hub.api.write_guard import WriteGuard
from hub.completeness import routes as completeness_routes
from hub.completeness.canary import routes as canary_routes
from hub.completeness.canary.runner import body_of as canary_body
from hub.completeness.counting import write_entries
from hub.completeness.counts_follower import CountsFollower
from hub.completeness.receipts import ReceiptWriter
from hub.config import Settings
from hub.errors import CallerError, HubError
from hub.hosts import Hosts
from hub.kafka import KafkaCluster, own_cluster, own_connection
from hub.lake.archive import topic_tables
from hub.materializers.definition.declared import changelog_of
from hub.materializers.progress.store_watch import StoreWatch
from hub.materializers.queries.answering import calls as query_calls
from hub.materializers.queries.answering.service import QueryService
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.http import routes as query_routes
from hub.materializers.serving import routes as view_routes
from hub.materializers.serving.fast_path import FastPath, FastReads
from hub.materializers.serving.watcher import Watcher
from hub.materializers.stores.sql_store import Store
from hub.materializers.versions import routes as version_routes
from hub.materializers.workbench import routes as workbench_routes
from hub.materializers.workbench.process import PreviewProcess
from hub.materializers.workbench.service import Workbench
from hub.observability.overview.contact_watch import ContactWatch
from hub.observability.web.http_status import status_of
from hub.pgwire.open_port import open_database_port
from hub.quotas.shares import Shares
from hub.replication.clusters.clusters import access_of
from hub.replication.config.mirrors import MIRRORS_FILE
from hub.schema_registry.client.in_process import InProcessRegistry
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.encryption.serving import serve_keys
from hub.schema_registry.http import levels_routes
from hub.schema_registry.http import routes as registry_routes
from hub.schema_registry.http.asgi import NOT_ALLOWED, NOT_FOUND, answer_type
from hub.schema_registry.http.openapi import with_registry
from hub.schema_registry.server.node import RegistryNode
from hub.topics.browse import routes as topic_routes
from hub.topics.conformance import routes as audit_routes
from hub.topics.conformance.results import ConformanceResults
from hub.topics.dead_letters import routes as dead_letter_routes
from hub.topics.dead_letters.queue import DeadLetters
from hub.topics.gateway import routes as gateway_routes
from hub.topics.gateway.gateway import Gateway, Refuses
from hub.topics.tree.erasable import seal_by_tree
from hub.topics.tree.live_rules import LiveRules
from hub.topics.tree.tree import LiveTree
from hub.topics.webhooks import routes as webhook_routes
from hub.topics.webhooks.counts import WebhookCounts
from hub.topics.webhooks.webhooks_file import WEBHOOKS_FILE, LiveWebhooks
from hub.tracing import spans
from hub.tracing.asgi import Traced

REGISTRY_WAIT_S = 10.0
TOPICS = "topics.yaml"


def create_app(settings: Settings) -> FastAPI:
    """Return the hub's server for these settings; Kafka, registry and store are opened when it starts
    serving."""
    access = LiveAccess(settings.project, required=settings.require_access, admin_token=settings.admin_token)
    proxies = Proxies(settings.proxy_header or "", tuple(settings.proxy_addresses))
    hosts = Hosts.of([*settings.own_names, *settings.allowed_hosts])
    door = AuthenticationContext(
        access, settings.home, proxies, settings.metrics_open, hosts, has_hosts=bool(settings.allowed_hosts)
    )
    reads = FastReads()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            # uvicorn ends the process with the signal that it received: nothing runs after this.
            opened.push_async_callback(run_in_threadpool, _close_traces)
            await run_in_threadpool(door.ready)
            door.request_log = await run_in_threadpool(open_request_log, app, settings, opened)
            watching = asyncio.create_task(door.watch())
            opened.callback(watching.cancel)
            service = await compose(app, settings, opened, access)
            reads.open(service.store)
            opened.push_async_callback(reads.close)
            await open_database_port(
                settings, access, door.authenticator, service, opened, lambda: database_log(door.active_log)
            )
            yield

    # FastAPI's own pages load scripts from the Internet, which the hub must not need.
    app = FastAPI(title="Event hub", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(HubError, on_hub_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_no_such_route)
    own = app.openapi
    app.openapi = lambda: with_registry(own())  # type: ignore[method-assign]

    # The middleware added last runs first.
    app.add_middleware(FastPath, reads=reads)
    app.add_middleware(Guard, door=door)
    app.add_middleware(Traced)
    add_docs(app)
    add_help(app)
    app.include_router(sign_in.create_router(door))

    @app.get("/health")
    def health() -> dict[str, str]:
        """Answers once the app has opened all it needs."""
        return {"status": "up"}

    return app


async def compose(
    app: FastAPI, settings: Settings, opened: AsyncExitStack, access: LiveAccess
) -> QueryService:
    """Open shared resources, pass them to the routes, and close them in reverse order at the end. Without
    Kafka, views are served from the store; all other routes answer 503 until it is back."""
    cluster = own_cluster(settings)
    node = await add_registry(app, settings, cluster, opened)
    registry = InProcessRegistry(node)
    refuses = await run_in_threadpool(open_write_guard, settings, cluster, opened)
    app.include_router(topic_routes.create_router(cluster, registry, settings.project / TOPICS, refuses))
    gateway, hooks = add_gateway(app, settings, cluster, registry, refuses, opened)
    results = add_audit(app, cluster, opened)
    ledger = add_completeness(app, settings, cluster, opened)
    add_dead_letters(app, settings, cluster, registry, refuses)
    news = StoreWatch(cluster)
    watcher = await add_views(app, settings, cluster, news, opened)
    add_history(app, watcher.store, news.over, cluster, node, opened)
    await run_in_threadpool(open_access, app, settings, cluster, access, node, watcher, news, opened)
    contact = opened.enter_context(ContactWatch(settings.home, settings.kafka_cut_off_s).running())
    service = await add_queries(app, settings, cluster, registry, watcher, news, opened)
    desk = make_alert_manager(settings, cluster) if settings.alerts else None
    visible_alerts = alerts_for_caller(desk, watcher.store) if desk is not None else None
    mirrors = mirrors_of(settings)
    canaries = await run_in_threadpool(add_canaries, app, settings, cluster, registry, watcher.store, opened)
    parts = HubParts(
        *(watcher.store, watcher, node, contact, mirrors),
        completeness=lambda: counted_topics(ledger),
        alerts=visible_alerts,
        canary=lambda: canary_body(canaries),
        newest=news.over,
        counters=results.counters,
        usage=ServerUsage(access),
        gateway=gateway,
        families=lambda: (
            *completeness_routes.families(ledger),
            *canary_routes.families(canaries),
            *mirrors.families(),
            *hooks.families(),
            *own_families(app, settings.project, settings.home),
            *(desk.families() if desk is not None else ()),
        ),
    )
    measurers = add_dashboard(app, settings, parts, opened)
    news.around = around(settings, watcher.store, contact, lambda: measurers.collector.kafka_error)
    if desk is not None and visible_alerts is not None:
        probes = None if canaries is None else canaries.rows
        sources = AlertSources(settings, measurers, ledger, mirrors, probes, desk.live, contact)
        asking = partial(query_calls.rows_of, service.queries, service.topics)
        add_alerts(app, desk, visible_alerts, asking, sources.all(), opened)
    return service


async def add_registry(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, opened: AsyncExitStack
) -> RegistryNode:
    """Add the schema registry at the root, where Confluent's clients expect it."""
    rules = await run_in_threadpool(LiveRules, settings.project)
    node = RegistryNode(cluster, replication_factor=settings.replication_factor, rules=rules)
    await run_in_threadpool(node.start, REGISTRY_WAIT_S)
    opened.push_async_callback(run_in_threadpool, node.stop)
    app.include_router(registry_routes.create_router(node))
    app.include_router(levels_routes.create_router(node))
    keys = DekNode(cluster, replication_factor=settings.replication_factor)
    opened.push_async_callback(run_in_threadpool, keys.close)
    app.include_router(serve_keys(keys, settings, node.writable))
    seal_by_tree(settings.project, settings.erase_kek)
    return node


def open_write_guard(settings: Settings, cluster: KafkaCluster, opened: AsyncExitStack) -> Refuses:
    """Return the function that refuses records of a topic; every HTTP route that writes calls it."""
    hands = WriteGuard(settings.project / MIRRORS_FILE, cluster, access_of(own_connection(settings)))
    hands.start()
    opened.push_async_callback(run_in_threadpool, hands.stop)
    return hands.refusal


def add_gateway(
    app: FastAPI,
    settings: Settings,
    cluster: KafkaCluster,
    registry: SchemaRegistry,
    refuses: Refuses,
    opened: AsyncExitStack,
) -> tuple[Gateway, WebhookCounts]:
    """Add the routes that write records over HTTP. Returns the gateway, and the counts of webhooks."""
    receipts = ReceiptWriter(
        cluster, f"gateway-{uuid.uuid4().hex[:12]}", replication_factor=settings.replication_factor
    )
    receipts.start()
    opened.push_async_callback(run_in_threadpool, receipts.stop)
    tree = LiveTree(settings.project / TOPICS)
    gateway = Gateway(cluster, registry, tree, receipts.took, refuses)
    gateway.start()
    opened.push_async_callback(run_in_threadpool, gateway.stop)
    app.include_router(gateway_routes.create_router(gateway))
    hooks, counts = LiveWebhooks(settings.project / WEBHOOKS_FILE), WebhookCounts()
    app.include_router(webhook_routes.create_router(hooks, gateway, counts))
    return gateway, counts


def add_audit(app: FastAPI, cluster: KafkaCluster, opened: AsyncExitStack) -> ConformanceResults:
    """Add the results of the conformance check, which runs in a process of its own."""
    results = ConformanceResults(cluster)
    results.follower.start()
    opened.push_async_callback(run_in_threadpool, results.follower.stop)
    app.include_router(audit_routes.create_router(results))
    return results


def add_completeness(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, opened: AsyncExitStack
) -> CountsFollower:
    """Add the routes of completeness, with a follower of its counts."""
    counts = CountsFollower(cluster)
    counts.follower.start()
    opened.push_async_callback(run_in_threadpool, counts.follower.stop)
    app.include_router(
        completeness_routes.create_router(
            counts, lambda entries: write_entries(cluster, entries, settings.replication_factor)
        )
    )
    return counts


def add_dead_letters(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, registry: SchemaRegistry, refuses: Refuses
) -> None:
    """Add the routes of the DLQ."""
    tree = LiveTree(settings.project / TOPICS)

    def declared_key(topic: str) -> str | None:
        spec = tree.find(topic)
        return None if spec is None else spec.key

    letters = DeadLetters(
        cluster,
        registry,
        declared_key,
        settings.replication_factor,
        refuses=refuses,
    )
    app.include_router(dead_letter_routes.create_router(letters))


async def add_views(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, news: StoreWatch, opened: AsyncExitStack
) -> Watcher:
    """Add views by key, index and subscription, and their versions; start the task that wakes subscribers,
    and ``news``."""
    store = await run_in_threadpool(Store, settings.store)
    opened.push_async_callback(run_in_threadpool, store.close)
    shares = Shares(settings.subscriptions_per_caller, "subscriptions", "subscriptions_per_caller")
    watcher = Watcher(store, shares=shares)
    task = asyncio.create_task(watcher.run())
    opened.callback(task.cancel)
    news.follower.start()
    opened.push_async_callback(run_in_threadpool, news.follower.stop)
    app.include_router(
        view_routes.create_router(
            *(store, watcher, settings.query_timeout_ms, news.over),
            catching_up=news.catching_up,
            shares=shares,
            search_timeout_s=settings.search_timeout_s,
        )
    )
    app.include_router(version_routes.create_router(store, cluster, news.over))
    await run_in_threadpool(add_erasures, app, settings, cluster, store, news.over, opened)
    return watcher


async def add_queries(
    app: FastAPI,
    settings: Settings,
    cluster: KafkaCluster,
    registry: SchemaRegistry,
    watcher: Watcher,
    news: StoreWatch,
    opened: AsyncExitStack,
) -> QueryService:
    """Add SQL over views and recent events, push queries, statements that change views, and the workbench."""
    queries = await run_in_threadpool(QueryExecutor, watcher.store)
    opened.push_async_callback(run_in_threadpool, queries.close)
    topics = opened.enter_context(topic_tables(settings, cluster, registry))
    service = QueryService.of(
        *(watcher.store, watcher, queries, topics, settings.project, settings.query_timeout_ms),
        newest=news.over,
        catching_up=news.catching_up,
        shares=Shares(settings.queries_per_caller, "queries", "queries_per_caller"),
        stores=settings.store_urls,
        changes_views=settings.sql_changes_views,
    )
    app.include_router(query_routes.create_router(service))
    previews = PreviewProcess(settings)
    opened.push_async_callback(run_in_threadpool, previews.end)
    store = watcher.store
    workbench = Workbench(
        service.statements, topics, previews, lambda view: changelog_of(store.served_tables().get(view, view))
    )
    app.include_router(workbench_routes.create_router(workbench))
    return service


def _close_traces() -> None:
    known = spans()
    if known is not None:
        known.close()


def body_of(error: HubError) -> dict[str, str | None]:
    """Return the JSON body of an error."""
    return {"error_code": error.code, "message": error.message, "hint": error.hint, **error.details}


async def on_hub_error(connection: HTTPConnection, error: Exception) -> JSONResponse:
    """Return the error as a response; for a WebSocket, as the denial of the upgrade."""
    assert isinstance(error, HubError)
    status = status_of(error)
    headers = {"Retry-After": error.details.get("retry_after", "1")} if status in (429, 503) else None
    response = JSONResponse(body_of(error), status, headers)
    if isinstance(connection, WebSocket):
        await connection.send_denial_response(response)
    return response


async def on_no_such_route(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method, with the body of Confluent's registry, which its
    clients parse.

    Those clients request any path below the root, where the hub's own routes are as well.
    """
    assert isinstance(error, HTTPException)
    body = {404: NOT_FOUND.body, 405: NOT_ALLOWED.body}.get(error.status_code)
    if body is None:
        return await http_exception_handler(request, error)
    accept = request.headers.get("accept", "")
    kind = "application/json" if "text/html" in accept else answer_type(accept.encode("latin-1")).decode()
    return Response(body, error.status_code, dict(error.headers or {}), kind)


async def on_invalid_request(_request: Request, error: Exception) -> JSONResponse:
    """Return 400 for a parameter or body of the wrong type, naming it, in the same shape as every other
    error."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse(body_of(CallerError(f"request: {place}: {first['msg']}", code="HUB-1002")), 400)
