"""[edge] FastAPI: the pages of the cluster, Kafka Connect and mirrors."""

from __future__ import annotations

from fastapi import APIRouter, Request

from hub.caller import sees_topic
from hub.errors import HubError
from hub.observability.web.pages.estate import PageSources, ask
from hub.observability.web.pages.monitor import cluster, connect, mirrors
from hub.observability.web.routes.page_router import PageRouter, Text


def cluster_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/cluster``."""
    pages = PageRouter(sources, "cluster")

    @pages.page("/cluster", "monitor/cluster.html", for_programs=True)
    def cluster_now(request: Request) -> cluster.ClusterPage:
        """Brokers, their disks, partitions without a leader or with too few replicas in sync; the registry,
        Kafka Connect, canaries and the hub's own processes. null: not known."""
        return cluster.cluster_page(
            sources.health(),
            sources.bootstrap,
            registry_line(sources),
            sources.topics.overview().connect,
            sources.processes(),
            sources.canary(),
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
        ``state``. The state is UNKNOWN while its workers do not answer; ``of`` is null before the first answer."""
        return connect.connect_page(sources.topics.overview().connect, q.strip(), state, page)

    return pages.routes


def mirror_routes(sources: PageSources) -> APIRouter:
    """Return the route of ``/mirrors``."""
    pages = PageRouter(sources, "mirrors")

    @pages.page("/mirrors", "monitor/mirrors.html", for_programs=True)
    def mirrors_list(request: Request) -> mirrors.MirrorsPage:
        """State of every mirror, and whether its target could take over. The clusters are read in the
        background: ``asked_at_ms`` is null until they answered once."""
        return mirrors.mirrors_page(sources.mirrors())

    return pages.routes
