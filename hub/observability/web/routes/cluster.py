"""[edge] FastAPI: the pages of the cluster, Kafka Connect, sinks and usage."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.caller import HUB, Action, done_by, may, sees_topic
from hub.errors import HubError, NotFound
from hub.observability.web.forms import PostedForm
from hub.observability.web.pages.estate import HasConnectors, PageSources, ask
from hub.observability.web.pages.monitor import cluster, connect, sinks
from hub.observability.web.pages.monitor.connector import ConnectorPage, connector_page
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.quotas.usage import UsagePage


def cluster_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/cluster``."""
    pages = PageRouter(sources, "cluster")

    @pages.page("/cluster", "monitor/cluster.html", for_programs=True)
    def cluster_now(request: Request) -> cluster.ClusterPage:
        """Brokers, their disks, partitions without a leader or with too few replicas in sync; the registry,
        Kafka Connect, canaries, the hub's own processes and the sandbox of Python. null: not known."""
        return cluster.cluster_page(
            sources.health(),
            sources.bootstrap,
            registry_line(sources),
            sources.topics.overview().connect,
            sources.processes(),
            sources.canary(),
            sources.python(),
            sees_topic,
        )

    return pages.routes


def registry_line(sources: PageSources) -> cluster.RegistryLine:
    """Return the state of this server's registry."""
    position = sources.registry.position
    try:
        subjects = ask(sources.registry, lambda registry: len(registry.subjects))
    except HubError as error:
        return cluster.RegistryLine("waiting", position, None, error.message)
    return cluster.RegistryLine("ready", position, subjects)


def connect_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/connect``."""
    pages = PageRouter(sources, "connect")

    @pages.page("/connect", "monitor/connect.html", for_programs=True)
    def connect_list(request: Request, q: Text = "", state: Text = "", page: int = 1) -> connect.ConnectPage:
        """Kafka Connect's connectors and tasks, the worst first; with ``q`` in a name or a worker's, in a
        ``state``. The state is UNKNOWN while its workers do not answer; ``of`` is null before the first
        answer."""
        return connect.connect_page(sources.topics.overview().connect, q.strip(), state, page)

    add_connector(pages, sources)
    return pages.routes


def add_connector(pages: PageRouter, sources: PageSources) -> None:
    """Add the page of one connector, and the target of the forms that operate it."""

    def connectors() -> HasConnectors:
        if sources.connectors is None:
            raise NotFound("no worker of Kafka Connect is named", hint="connect_urls in hub.yaml")
        return sources.connectors

    @pages.page("/connect/{connector:path}", "monitor/connector.html")
    def connector_now(request: Request, connector: str, do: Text = "") -> ConnectorPage:
        """A connector of Kafka Connect: tasks with their traces, topics, a sink's lag, settings without
        secrets; with ``do`` the steps of an action: pause, resume, restart, restart-failed."""
        detail = connectors().detail(connector)
        return connector_page(detail, sources.lag(), do, may(Action.operate, HUB))

    @pages.routes.post("/connect/{connector:path}/{action}", include_in_schema=False)
    async def operate(request: Request, connector: str, action: str) -> Response:
        def act(values: PostedForm) -> None:
            connectors().act(connector, action, done_by(values.get("by", "")[:200]))

        return await pages.carried_out(request, act, f"/connect/{quote(connector, safe='')}")


def sink_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/sinks``."""
    pages = PageRouter(sources, "sinks")

    def shapes(_request: Request, _found: sinks.SinksPage) -> Mapping[str, object]:
        return {"shapes": sinks.SHOWN_AS}

    @pages.page("/sinks", "monitor/sinks.html", for_programs=True, more=shapes)
    def sinks_list(request: Request) -> sinks.SinksPage:
        """Sinks of sinks.yaml, the worst first, with lag and cause. The state is UNKNOWN while no worker of
        the server's home reports; null: not known."""
        return sinks.sinks_page(sources.sinks.lines() if sources.sinks is not None else ())

    return pages.routes


def usage_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/usage``."""
    pages = PageRouter(sources, "usage")

    @pages.page("/usage", "monitor/usage.html", for_programs=True)
    def usage_now(request: Request) -> UsagePage:
        """Use against limits of access.yaml at this server, by principal and tenant: refused ones first.
        Callers who may not read the hub see their own."""
        return sources.usage()

    return pages.routes
