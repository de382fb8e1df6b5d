"""[edge] FastAPI: produce records over HTTP, in Confluent's REST Proxy API v3 and in a short form.

Paths and bodies follow the REST Proxy API v3 reference. A single record is answered with its own status;
several with 200 and one JSON line each. Answers carry ``Hub-Position``: a read that sends this position sees
the write.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from hub.caller import sees_topic
from hub.errors import CallerError, HubError, NotFound
from hub.topics.gateway.admission import Slot, require_room, spend_bytes
from hub.topics.gateway.expected_version.version import HEADER as EXPECTED_VERSION
from hub.topics.gateway.expected_version.version import NONE, expected_version
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.idempotency import checked_key, checked_retry
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceRequest, refusal
from hub.topics.gateway.produce_request import MOST_REQUEST_BYTES, TooLarge
from hub.tracing import ACTIVE, parse

POSITION_HEADER = "Hub-Position"
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_BODY_S = 30.0
_THIS = "-"


class _Route(APIRoute):
    """Route that returns errors in REST Proxy's format, with a numeric ``error_code``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except HubError as error:
                return answered(refusal(error))

        return handled


def create_router(gateway: Gateway) -> APIRouter:
    """Build the routes for a running gateway."""
    router, api = APIRouter(route_class=_Route, tags=["produce"]), _GatewayRoutes(gateway)
    router.get("/v3/clusters")(api.clusters)
    router.get("/v3/clusters/{cluster_id}")(api.cluster)
    router.get("/v3/clusters/{cluster_id}/topics")(api.topics)
    router.post("/v3/clusters/{cluster_id}/topics/{topic}/records")(api.records)
    router.post("/topics/{topic}/events")(api.events)
    router.get("/topics/{topic}/version")(api.version)
    return router


class _GatewayRoutes:
    """Handlers of the routes."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def clusters(self, request: Request) -> Response:
        cluster_id = await run_in_threadpool(self._gateway.cluster_id)
        url = f"{_base(request)}/v3/clusters"
        return _listed("KafkaClusterList", url, [_cluster(url, cluster_id)])

    async def cluster(self, request: Request, cluster_id: str) -> Response:
        own_id = await self._this_cluster(cluster_id)
        return _json(_cluster(f"{_base(request)}/v3/clusters", own_id))

    async def topics(self, request: Request, cluster_id: str) -> Response:
        own_id = await self._this_cluster(cluster_id)
        descriptions = await run_in_threadpool(self._gateway.cluster.topics)
        url = f"{_base(request)}/v3/clusters/{own_id}/topics"
        listed = [
            {
                "kind": "KafkaTopic",
                "metadata": {
                    "self": f"{url}/{name}",
                    "resource_name": f"crn:///kafka={own_id}/topic={name}",
                },
                "cluster_id": own_id,
                "topic_name": name,
                "is_internal": name.startswith("_"),
                "replication_factor": topic.replication_factor,
                "partitions_count": topic.partitions,
            }
            for name, topic in sorted(descriptions.items())
            if sees_topic(name)
        ]
        return _listed("KafkaTopicList", url, listed)

    async def records(self, request: Request, cluster_id: str, topic: str) -> Response:
        """One record or many; see docs/how-to/write-events-over-http.md."""
        if cluster_id != _THIS:
            await self._this_cluster(cluster_id)
        return await self._produce(request, topic, "record", None)

    async def events(self, request: Request, topic: str, key: str | None = None) -> Response:
        """One event, an array of them, or JSON lines. ``key`` names the field (or its path, with dots) whose
        value is the key; unsaid, the one that topics.yaml declares for the topic."""
        if key is None:
            key = declared_key(self._gateway, topic)
        return await self._produce(request, topic, "event", key)

    async def version(self, topic: str, key: str) -> Response:
        """Version of a key: the position after its newest event, or ``none``. Send it back as the header
        Expected-Version of an event of this key."""
        key_version = await run_in_threadpool(self._gateway.version, topic, key)
        version = NONE if key_version is None else str(key_version)
        return _json(
            {
                "topic": topic,
                "key": key,
                "version": version,
                "deleted": bool(key_version and key_version.is_deleted),
            }
        )

    async def _this_cluster(self, cluster_id: str) -> str:
        own_id = await run_in_threadpool(self._gateway.cluster_id)
        if cluster_id not in (_THIS, own_id):
            raise NotFound(
                f'cluster "{cluster_id[:80]}" is not this one', hint=f'this one is "{own_id}", or "-"'
            )
        return own_id

    async def _produce(self, request: Request, topic: str, form: Any, key_field: str | None) -> Response:
        idempotency_key = request.headers.get("idempotency-key")
        key = None if idempotency_key is None else checked_key(idempotency_key)
        retry_ms = checked_retry(request.headers.get("idempotency-retry"))
        expected = request.headers.get(EXPECTED_VERSION)
        if expected is not None:
            expected_version(topic, expected)  # refused before the body is read
            key = key or uuid.uuid4().hex
        # Pass the trace on to the record even if this server records no traces.
        headers = request.headers
        trace = ACTIVE.get() or parse(headers.get("traceparent"), headers.get("tracestate"))
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        require_room(topic)
        slot = self._gateway.admit(announced_bytes(request))
        try:
            body = await read_body(request, slot)
            spend_bytes(topic, len(body))
        except BaseException:
            slot.release()
            raise
        produce_request = ProduceRequest(
            *(topic, body, form, kind in _LINES, key_field, request.headers.get("hub-producer"), key, trace),
            expected,
            retry_ms,
        )
        # Shielded: a client that disconnects must not cancel the answer for another request with the same
        # key.
        return answered(
            await asyncio.shield(asyncio.wrap_future(self._gateway.submit(produce_request, slot)))
        )


def declared_key(gateway: Gateway, topic: str) -> str | None:
    """Return the key field that the topic tree declares for the topic, None if there is none."""
    spec = None if gateway.tree is None else gateway.tree.find(topic)
    return None if spec is None else spec.key


def announced_bytes(request: Request) -> int:
    """Return the upper bound of the body size in bytes."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else MOST_REQUEST_BYTES


async def read_body(request: Request, slot: Slot) -> bytes:
    """Read the body. Raises TooLarge; CallerError if it does not arrive in time."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > MOST_REQUEST_BYTES:
                    raise TooLarge(
                        f"the request has more than {MOST_REQUEST_BYTES} bytes", hint="send several"
                    )
    except TimeoutError:
        raise CallerError(f"the body did not come within {_BODY_S:g} s; nothing was written") from None
    slot.shrink(size)
    return b"".join(parts)


def answered(answer: GatewayAnswer) -> Response:
    """Return the HTTP answer to a produce request."""
    headers = {}
    if answer.position:
        headers[POSITION_HEADER] = str(answer.position)
    if answer.repeated:
        headers["Idempotent-Replayed"] = "true"
    if answer.status in (429, 503):
        headers["Retry-After"] = answer.retry_after
    if answer.single:
        return Response(orjson.dumps(answer.lines[0]), answer.status, headers, "application/json")
    body = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in answer.lines)
    return Response(body, answer.status, headers, "application/x-ndjson")


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _cluster(url: str, cluster_id: str) -> dict[str, Any]:
    own_url = f"{url}/{cluster_id}"
    return {
        "kind": "KafkaCluster",
        "metadata": {"self": own_url, "resource_name": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
        "topics": {"related": f"{own_url}/topics"},
    }


def _listed(kind: str, url: str, rows: list[dict[str, Any]]) -> Response:
    return _json({"kind": kind, "metadata": {"self": url, "next": None}, "data": rows})


def _json(body: object) -> Response:
    return Response(orjson.dumps(body), media_type="application/json")
