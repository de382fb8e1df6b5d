"""[edge] FastAPI: composes the packages' routes, maps errors to status codes, opens and closes what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from hub.config import Settings
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.schema_registry import routes as registry_routes
from hub.schema_registry.node import Node

KAFKA_TIMEOUT_S = 60.0

# The first that fits; anything else is the hub's own fault.
STATUS_OF: tuple[tuple[type[HubError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (CallerError, 400),
    (PeerError, 503),
)


def create_app(settings: Settings) -> FastAPI:
    """The hub's server for these settings; Kafka, registry and store are opened when it starts serving."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as opened:
            await compose(app, settings, opened)
            yield

    # No interactive docs: their scripts come from elsewhere, and the hub runs without the Internet.
    app = FastAPI(title="Event hub", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_exception_handler(HubError, on_hub_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)

    @app.get("/health")
    def health() -> dict[str, str]:
        """Answers once the app has opened all it needs."""
        return {"status": "up"}

    return app


async def compose(app: FastAPI, settings: Settings, opened: AsyncExitStack) -> None:
    """Open what the routes share, give it to them, and have it closed in reverse order.

    Raises PeerError when Kafka does not answer within a minute: the process ends, its supervisor starts it again.
    """
    cluster = KafkaCluster(settings.bootstrap, settings.kafka_timeout_s)
    await run_in_threadpool(cluster.wait_ready, KAFKA_TIMEOUT_S)
    await add_registry(app, settings, cluster, opened)


async def add_registry(
    app: FastAPI, settings: Settings, cluster: KafkaCluster, opened: AsyncExitStack
) -> None:
    """The schema registry at the root, where Confluent's clients look for it."""
    node = Node(cluster, replication_factor=settings.replication_factor)
    await run_in_threadpool(node.start)
    opened.push_async_callback(run_in_threadpool, node.stop)
    app.include_router(registry_routes.create_router(node))


def status_of(error: HubError) -> int:
    """The HTTP status of an error: whose fault it is decides."""
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


def body_of(error: HubError) -> dict[str, str | None]:
    """The JSON body of an error."""
    return {"error_code": error.code, "message": error.message, "hint": error.hint}


async def on_hub_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HubError)
    status = status_of(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse(body_of(error), status, headers)


async def on_invalid_request(_request: Request, error: Exception) -> JSONResponse:
    """A parameter or body of the wrong type: 400, naming it, in the same shape as every other error."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse(body_of(CallerError(f"request: {place}: {first['msg']}", code="HUB-1002")), 400)
