"""[edge] FastAPI: the form that produces one message through the gateway."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from hub.caller import Action, Kind, Resource, require, sees_subject, shows_records
from hub.errors import CallerError, HubError, NotFound, PeerError
from hub.observability.web.forms import posted
from hub.observability.web.http_status import status_of
from hub.observability.web.pages.estate import PageSources, ask
from hub.observability.web.pages.explore import produce
from hub.observability.web.routes.page_router import PageRouter, Text
from hub.observability.web.routes.topics import line_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.describe import SchemaView
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.registry.rulebook import view_of
from hub.schema_registry.registry.state_machine import Registry
from hub.topics.browse.bounded_read import MessageQuery
from hub.topics.gateway.admission import require_room, spend_bytes
from hub.topics.gateway.idempotency import fingerprint
from hub.topics.gateway.produce_batch import ProduceRequest

_TEMPLATE = "explore/produce.html"


def produce_routes(sources: PageSources) -> APIRouter:
    """Return the routes of ``/topics/NAME/produce``."""
    pages = PageRouter(sources, "topics")

    @pages.page("/topics/{name}/produce", _TEMPLATE)
    def form(
        request: Request, name: str, mode: Text = "", partition: Text = "", offset: Text = "", sent: Text = ""
    ) -> produce.ProducePage:
        """Form of a new message: the fields of the topic's schema. With ``partition`` and ``offset`` it holds
        that message, unless masks hide a part of it. Programs write to
        ``/v3/clusters/-/topics/NAME/records``."""
        empty = page_of(sources, name, {"mode": mode})
        if sent:
            return replace(empty, sent=_place(*sent.split(":", 1)) if ":" in sent else None)
        if not offset:
            return empty
        values, notes = _again(sources, name, *_place(partition, offset))
        return replace(page_of(sources, name, values), notes=tuple(notes))

    @pages.routes.post("/topics/{name}/produce", include_in_schema=False)
    async def produce_one(request: Request, name: str) -> Response:
        try:
            values = await posted(request, produce.MOST_FORM_BYTES, produce.MOST_FIELDS + 20)
            page = await anyio.to_thread.run_sync(page_of, sources, name, values)
        except HubError as error:
            return pages.failed(request, error)
        status = 200
        try:
            record = produce.record_of(page)
            if values.get("do") == "command":
                page = replace(page, command=produce.command_of(name, record, _base(request)))
            else:
                line = await anyio.to_thread.run_sync(_written, sources, page, record)
                sent = f"{line['partition_id']}:{line['offset']}"
                where = f"/topics/{quote(name, safe='')}/produce?sent={sent}&mode={page.mode}"
                return Response(status_code=303, headers={"Location": where})
        except HubError as error:
            page, status = replace(page, error=error), status_of(error)
        return pages.frame.shown(_TEMPLATE, request, status, facts=page, section="topics")

    return pages.routes


def page_of(sources: PageSources, topic: str, values: Mapping[str, str]) -> produce.ProducePage:
    """Return the form with these inputs. Raises NotFound, PeerError."""
    line = line_of(sources, topic)
    schemas, view = _schemas(sources, topic)
    fields = produce.form_fields(view)
    mode = "json" if values.get("mode") == "json" or not fields else "fields"
    spec = sources.tree().get(topic)
    return produce.ProducePage(
        topic,
        line.partitions,
        spec.key or "" if spec is not None else "",
        schemas,
        mode,
        fields,
        values,
        once=values.get("once") or uuid.uuid4().hex,
    )


def _schemas(sources: PageSources, topic: str) -> tuple[produce.TopicSchemas, SchemaView | None]:
    """Return the newest schemas of a topic, and the view of that of its values, if the caller sees it."""
    value, key = (f"{topic}-{part}" for part in ("value", "key"))

    def taken(registry: Registry) -> tuple[SchemaSource | None, bool]:
        newest = registry.source_of(registry.version(value, "latest")) if registry.numbers(value) else None
        return newest, bool(registry.numbers(key))

    source, has_key = ask(sources.registry, taken)
    of_key = key if has_key else ""
    if source is None:
        return produce.TopicSchemas(key=of_key), None
    if not sees_subject(value):
        hidden = "you may not see the schema"
        return produce.TopicSchemas(value, of_key, source.schema_type, hidden), None
    try:
        return produce.TopicSchemas(value, of_key, source.schema_type), view_of(source)
    except InvalidSchema as error:
        return produce.TopicSchemas(value, of_key, source.schema_type, error.message), None


def _again(sources: PageSources, topic: str, partition: int, offset: int) -> tuple[dict[str, str], list[str]]:
    """Return the inputs for a message that is sent again. Raises Forbidden, NotFound, CallerError."""
    require(Action.read, Resource(Kind.topic, topic))
    if not shows_records(topic):
        raise CallerError(
            f'topic "{topic}": masks hide a part of its messages from you, so none can be sent again',
            hint="write a new message",
            code="HUB-1722",
        )
    messages = sources.browser.find(
        MessageQuery(topic, partition, start={partition: offset}, limit=1)
    ).messages
    if not messages or messages[0].offset != offset:
        raise NotFound(
            f'topic "{topic}" partition {partition} has no message at offset {offset}',
            hint="retention may have deleted it",
        )
    return produce.again(messages[0])


def _place(partition: str, offset: str) -> tuple[int, int]:
    if not (partition.isdecimal() and offset.isdecimal() and len(partition) < 7 and len(offset) < 19):
        raise CallerError(f'"{partition[:20]}:{offset[:20]}" is not a partition and an offset')
    return int(partition), int(offset)


def _written(sources: PageSources, page: produce.ProducePage, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a record through the gateway as its route does, and return its line. Raises what refuses it.

    A form that is sent twice, by a second click or a reload, is the same request of the gateway.
    """
    gateway = sources.gateway
    if gateway is None:
        raise NotFound("this server writes no messages", hint="hub topic publish --help")
    body = orjson.dumps(record)
    require_room(page.topic)
    spend_bytes(page.topic, len(body))
    once = f"form-{fingerprint(page.once.encode(), body)}"
    answer = gateway.write(ProduceRequest(page.topic, body, producer="web", idempotency_key=once))
    (line,) = answer.lines
    if line["error_code"] == 200:
        return line
    refused: type[HubError] = PeerError if answer.status in (429, 503) else CallerError
    raise refused(line["message"], hint=line.get("hint"), code=line["code"])


def _base(request: Request) -> str:
    return str(request.base_url).rstrip("/")
