"""[edge] FastAPI: ``POST /hooks/NAME``, where other systems send their events.

The signature is the credential: nobody signs in. The body is verified before anything of it is parsed.
"""

from __future__ import annotations

import asyncio
import logging
import time

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from hub.errors import CallerError, HubError
from hub.topics.gateway.admission import require_room, spend_bytes
from hub.topics.gateway.gateway import Gateway
from hub.topics.gateway.produce_batch import GatewayAnswer, ProduceRequest, refusal
from hub.topics.gateway.routes import announced_bytes, answered, declared_key, read_body
from hub.topics.webhooks.counts import Outcome, WebhookCounts
from hub.topics.webhooks.deliveries import Delivery, Shape, delivery_of
from hub.topics.webhooks.signatures import SignedRequest
from hub.topics.webhooks.signatures import refusal as not_signed
from hub.topics.webhooks.webhooks_file import LiveWebhooks
from hub.tracing import ACTIVE

log = logging.getLogger(__name__)

_OTHER_REQUEST = "HUB-1930"
_TEXT = {"X-Content-Type-Options": "nosniff"}


class NotSigned(CallerError):
    """A request without the signature of the webhook's sender."""

    code = "HUB-1328"


def create_router(webhooks: LiveWebhooks, gateway: Gateway, counts: WebhookCounts) -> APIRouter:
    """Return the route, for a running gateway."""
    router = APIRouter(tags=["produce"])

    @router.post("/hooks/{name}")
    async def receive(request: Request, name: str) -> Response:
        """Write the events of a signed request into the webhook's topic (docs/how-to/receive-webhooks.md)."""
        try:
            return await _received(request, name, webhooks, gateway, counts)
        except NotSigned as error:
            counts.count(name, "not signed")
            log.warning("webhook %s: %s", name, error.message)
            return _refused(error, 401)
        except HubError as error:
            return answered(refusal(error))

    return router


async def _received(
    request: Request, name: str, webhooks: LiveWebhooks, gateway: Gateway, counts: WebhookCounts
) -> Response:
    webhook = await run_in_threadpool(webhooks.find, name)
    slot = gateway.admit(announced_bytes(request))
    try:
        body = await read_body(request, slot)
        headers = {key.lower(): value for key, value in request.headers.items()}
        why = not_signed(webhook.verification, SignedRequest(headers, body, time.time()))
        if why is not None:
            raise NotSigned(why, hint="the sender and the hub need the same secret: hub webhook ls")
        require_room(webhook.shape.topic)
        spend_bytes(webhook.shape.topic, len(body))
        delivery = delivery_of(webhook.shape, headers, body)
    except BaseException as error:
        slot.release()
        if isinstance(error, HubError) and not isinstance(error, NotSigned):
            counts.count(name, "refused")
        raise
    if delivery.challenge is not None:
        slot.release()
        return Response(delivery.challenge, headers=_TEXT, media_type="text/plain")
    produce_request = _produce_request(webhook.shape, delivery, gateway)
    answer = await asyncio.shield(asyncio.wrap_future(gateway.submit(produce_request, slot)))
    answer, repeated = _as_sender_sees(answer)
    outcome: Outcome = "repeated" if repeated else "written" if _all_written(answer) else "refused"
    counts.count(name, outcome)
    return answered(answer)


def _produce_request(shape: Shape, delivery: Delivery, gateway: Gateway) -> ProduceRequest:
    key = shape.key if shape.key is not None else declared_key(gateway, shape.topic)
    return ProduceRequest(
        shape.topic,
        delivery.body,
        "event",
        key_field=key,
        producer=f"webhook:{shape.name}",
        idempotency_key=delivery.idempotency_key,
        trace=ACTIVE.get(),
    )


def _as_sender_sees(answer: GatewayAnswer) -> tuple[GatewayAnswer, bool]:
    """Return the answer for the sender, and whether the delivery was written before.

    A sender repeats a delivery with small changes, such as a count of its tries. It is the same delivery, so
    the sender must not try it again. Several events of which one was refused are not all written: an error.
    """
    if answer.single and answer.lines[0].get("code") == _OTHER_REQUEST:
        return GatewayAnswer(200, ({"repeated": True},), repeated=True), True
    if not answer.single and not _all_written(answer):
        worst = max(int(line.get("error_code", 200)) // 100 for line in answer.lines)
        return GatewayAnswer(worst, answer.lines, answer.position, single=False), False
    return answer, answer.repeated


def _all_written(answer: GatewayAnswer) -> bool:
    return answer.status < 300 and all(int(line.get("error_code", 200)) in (0, 200) for line in answer.lines)


def _refused(error: HubError, status: int) -> Response:
    body = {"error_code": error.code, "message": error.message, "hint": error.hint}
    return Response(orjson.dumps(body), status, media_type="application/json")
