"""[core] A webhook's request as events: the body, its key,
and the id by which a repeated delivery is known."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import orjson

from hub.errors import CallerError

_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 1_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Settings for the events of a webhook. ``key``: path of the key in the event, with dots; None: the
    topic's own. ``delivery``: the header, or ``$.`` and a path in the body, that names a delivery; "": none.
    ``fields``: field -> header whose value it has.
    """

    name: str
    topic: str
    key: str | None = None
    delivery: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delivery:
    """``body``: one event or an array of events, as JSON. ``idempotency_key``: the same for a repeated one.
    ``challenge``: the text that a sender wants back; then nothing is written.
    """

    body: bytes
    idempotency_key: str | None = None
    challenge: str | None = None


def delivery_of(shape: Shape, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Return the events of a request. ``headers``: names in lower case. Raises CallerError (HUB-1326)."""
    event = _parsed(headers.get("content-type", ""), body)
    if isinstance(event, dict) and event.get("type") == "url_verification" and "challenge" in event:
        return Delivery(b"", challenge=str(event["challenge"])[:1_000])
    each = event if isinstance(event, list) else [event]
    if not each or not all(isinstance(one, dict) for one in each):
        raise CallerError(
            "the body is not a JSON object, nor an array of objects",
            hint="a webhook's events are objects",
            code="HUB-1326",
        )
    added = {name: headers.get(header.lower()) for name, header in shape.fields.items()}
    if added:
        event = [one | added for one in each]
        event = event if len(event) > 1 else event[0]
    named = _named(shape.delivery, headers, each[0])
    return Delivery(orjson.dumps(event), None if named is None else _idempotency_key(shape.name, named))


def _parsed(kind: str, body: bytes) -> Any:
    if kind.split(";")[0].strip().lower() == _FORM:
        try:
            found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError as error:
            raise CallerError(f"the form cannot be parsed: {error}", code="HUB-1326") from None
        fields = {name: values[0] if len(values) == 1 else values for name, values in found.items()}
        # GitHub and Slack send JSON within a form, too.
        payload = fields.get("payload")
        return _json(payload.encode()) if isinstance(payload, str) else fields
    return _json(body)


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise CallerError(
            f"the body is not JSON: {error}", hint="webhooks are JSON or a form", code="HUB-1326"
        ) from None


def _named(where: str, headers: Mapping[str, str], event: Mapping[str, Any]) -> str | None:
    if not where.startswith("$."):
        return headers.get(where.lower()) or None
    found: Any = event
    for step in where[2:].split("."):
        found = found.get(step) if isinstance(found, dict) else None
    return str(found) if isinstance(found, str | int) else None


def _idempotency_key(name: str, delivery: str) -> str:
    """Return a key of limited length in ASCII, whatever the sender wrote.

    >>> _idempotency_key("github", "72d3162e")
    'webhook:github:72d3162e'
    """
    plain = delivery.isascii() and delivery.isprintable() and len(delivery) <= 128
    return f"webhook:{name}:{delivery if plain else hashlib.sha256(delivery.encode()).hexdigest()}"
