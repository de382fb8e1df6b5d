"""[edge] ASGI: requests and answers of Confluent's registry, without validation by a framework.

Errors are exactly ``{"error_code", "message"}``, because older Java clients fail on any other field.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import orjson
from starlette.convertors import PathConvertor, register_url_convertor

from hub.schema_registry.model.facts import SCHEMAS_TOPIC
from hub.schema_registry.registry.errors import RequestRefused

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
# Media types of answers, preferred first. Requests may also have no type, or application/octet-stream.
MEDIA_TYPES: Final = (MEDIA_TYPE, "application/vnd.schemaregistry+json", "application/json")
_REQUESTS = (*MEDIA_TYPES, "application/octet-stream")
MOST_BODY_BYTES = 4 * 1_048_576  # a schema may have 1 MiB of text, which JSON may enlarge by escapes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Anything(PathConvertor):
    """A path that may contain line breaks: subjects with them must be refused as Confluent refuses them."""

    regex = "(?s:.*)"


register_url_convertor("anything", _Anything())


class ClientGone(Exception):
    """The client has disconnected."""


@dataclass(slots=True)
class HttpCall:
    """A request. ``params`` are the variable parts of its path."""

    method: str
    segments: list[str]
    headers: Mapping[bytes, bytes]
    query: dict[str, list[str]]
    params: list[str] = field(default_factory=list)
    body: bytes = b""

    @classmethod
    def of(cls, scope: Scope) -> HttpCall:
        """Parse a request. Raises RequestRefused for a path or query that is not UTF-8."""
        headers = dict(scope["headers"])
        raw_query = scope.get("query_string") or b""
        try:
            query = (
                parse_qs(raw_query.decode("ascii"), keep_blank_values=True, errors="strict")
                if raw_query
                else {}
            )
            segments = [unquote(each, errors="strict") for each in _path(scope).split("/")]
        except (UnicodeDecodeError, ValueError):
            raise RequestRefused(400, 400, "the path or the query is not UTF-8") from None
        while segments and not segments[-1]:
            segments.pop()  # a slash at the end makes no difference
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        return cls(method, segments, headers, query)

    def text(self, name: str, default: str = "") -> str:
        return self.query[name][0] if name in self.query else default

    def optional(self, name: str) -> str | None:
        return self.query[name][0] if name in self.query else None

    def flag(self, name: str) -> bool:
        """Return True for "true" in any case, as Java reads it."""
        return self.text(name).lower() == "true"

    def number(self, name: str, default: int) -> int:
        """Return an integer parameter. Raises RequestRefused for any other text."""
        text = self.text(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise RequestRefused(422, 422, f"{name}: '{text[:80]}' is not a number") from None

    def page(self, items: list[Any]) -> list[Any]:
        """Return the page of a list selected by ``offset`` and ``limit``; a limit of 0 or less means no
        limit.
        """
        offset, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return items[offset : offset + limit] if limit > 0 else items[offset:]

    def json(self) -> dict[str, Any]:
        """Return the body's JSON object. Raises RequestRefused."""
        try:
            found = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise RequestRefused(400, 400, f"the request's body is not JSON in UTF-8: {error}") from None
        if not isinstance(found, dict):
            raise RequestRefused(400, 400, "the request's body is not a JSON object")
        return found


def _path(scope: Scope) -> str:
    """Return the path below the app, still escaped: ``%2F`` is part of a subject, ``/`` a separator."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return str(scope["path"])[1:]
    path = raw.partition(b"?")[0].decode("ascii")
    root = scope.get("root_path", "")
    return path.removeprefix(root)[1:]


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer. ``position`` is the next offset of the log after a write."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    position: int | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200, position: int | None = None) -> HttpAnswer:
        return cls(orjson.dumps(value), status, (), position)

    @classmethod
    def error(cls, status: int, code: int, message: str) -> HttpAnswer:
        return cls.of({"error_code": code, "message": message}, status)


NOT_FOUND = HttpAnswer.error(404, 404, "HTTP 404 Not Found")
NOT_ALLOWED = HttpAnswer.error(405, 405, "HTTP 405 Method Not Allowed")
UNSUPPORTED = HttpAnswer.error(415, 415, "HTTP 415 Unsupported Media Type")


@dataclass(frozen=True, slots=True)
class Ready:
    """Cached bytes of an answer. ``tag`` changes when the body does."""

    body: bytes
    tag: bytes

    @classmethod
    def of(cls, value: Any) -> Ready:
        body = orjson.dumps(value)
        return cls(body, b'"' + hashlib.sha256(body).hexdigest()[:24].encode() + b'"')

    def answer(self, call: HttpCall, cache_control: bytes) -> HttpAnswer:
        """Return the answer; 304 without a body when the client has these bytes already."""
        headers = ((b"etag", self.tag), (b"cache-control", cache_control), (b"vary", b"accept"))
        known_tags = call.headers.get(b"if-none-match")
        if known_tags is not None and _has(known_tags, self.tag):
            return HttpAnswer(b"", 304, headers)
        return HttpAnswer(self.body, 200, headers)


def _has(known_tags: bytes, tag: bytes) -> bool:
    return any(each.strip().removeprefix(b"W/") in (tag, b"*") for each in known_tags.split(b","))


def media_type_is_known(call: HttpCall) -> bool:
    """Return True if the media type of the request's body is supported."""
    media_type = call.headers.get(b"content-type")
    return media_type is None or media_type.partition(b";")[0].strip().lower().decode("latin-1") in _REQUESTS


@functools.lru_cache(maxsize=256)
def answer_type(accept: bytes) -> bytes:
    """Return the media type of an answer: our first preference among the Accept header's highest weights."""
    liked: dict[str, float] = {}
    for part in accept.decode("latin-1").lower().split(","):
        name, *parameters = (each.strip() for each in part.split(";"))
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            liked[name] = float(weight)
        except ValueError:
            liked[name] = 0.0
    if not accept.strip():
        return MEDIA_TYPE.encode()

    def weight_of(kind: str) -> float:
        return liked.get(kind, liked.get("application/*", liked.get("*/*", 0.0)))

    return max(MEDIA_TYPES, key=weight_of).encode()


async def read_body(call: HttpCall, receive: Receive) -> None:
    """Read the body into the call. Raises RequestRefused when it is too large; ClientGone."""
    too_large = RequestRefused(
        413, 413, f"the request's body is too large: {MOST_BODY_BYTES} bytes are allowed"
    )
    length = call.headers.get(b"content-length", b"0")
    if length.isdigit() and int(length) > MOST_BODY_BYTES:
        raise too_large
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MOST_BODY_BYTES:
            raise too_large
        if not message.get("more_body", False):
            break
    call.body = b"".join(parts)


async def respond(scope: Scope, send: Send, answer: HttpAnswer, topic: str = SCHEMAS_TOPIC) -> None:
    """Send an answer; answers to writes include their position in the log, ``topic``."""
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
    headers = [*answer.headers]
    if answer.status not in (204, 304):
        headers += [
            (b"content-type", answer_type(accept)),
            (b"content-length", str(len(answer.body)).encode()),
        ]
    if answer.position is not None:
        headers.append((b"hub-position", f"{topic}:0:{answer.position}".encode()))
        if answer.position > 0:
            headers.append((b"hub-offset", str(answer.position - 1).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" or answer.status in (204, 304) else answer.body
    await send({"type": "http.response.body", "body": body})
