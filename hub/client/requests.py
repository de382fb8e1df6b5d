"""[core] Requests of the client, the events that they carry, and their replies, as values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import orjson

from hub.errors import CallerError, NotFound
from hub.record import Positions

T = TypeVar("T")
Row = dict[str, Any]
Where = Mapping[str, Any] | Sequence[tuple[str, Any]]
Token = Positions | str
#: A time, with a time zone or in UTC; its text in ISO 8601; or the token of a write.
Moment = datetime | Token
POSITION = "Hub-Position"
EXPECTED_VERSION = "Expected-Version"
IDEMPOTENCY_KEY, IDEMPOTENCY_RETRY = "Idempotency-Key", "Idempotency-Retry"
CATCHING_UP = "hub-catching-up"
TEMPORARY = (429, 502, 503, 504)


class SearchOptions(TypedDict, total=False):
    """Options of a page of found rows. ``where`` names declared indexes; ``cursor`` is ``next`` of the
    previous page."""

    where: Where | None
    fields: Sequence[str] | None
    limit: int
    cursor: str | None
    after: Token | None
    timeout_s: float | None


class _Declared:
    def __repr__(self) -> str:
        return "DECLARED"


#: The key is what topics.yaml declares for the topic: a field of the event.
DECLARED: Any = _Declared()


@dataclass(frozen=True, slots=True)
class Event:
    """An event to write. ``value``: an object in the topic's schema; None is a tombstone; bytes are written
    unchanged. ``type``: JSON or STRING for topics without a schema. ``headers``: texts or bytes. Any option
    other than ``value`` requires ``key``; None means no key.

    >>> Event({"customer_id": "C-1", "name": "Ada"}, key="C-1", headers={"trace": "42"})
    """

    value: Any
    key: Any = DECLARED
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    partition: int | None = None
    timestamp: datetime | int | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server. ``path`` is already quoted."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout_s: float = 10.0


def retry_of(request: Request, first_sent_s: float, now_s: float) -> Request:
    """Return the request as a retry: a server that did not get the first attempt then waits until no other
    server can still write it. Only produce requests are changed.

    >>> produce = Request("POST", "/topics/t/events", headers=(("Idempotency-Key", "load-7"),))
    >>> retry_of(produce, 10.0, 12.5).headers
    (('Idempotency-Key', 'load-7'), ('Idempotency-Retry', '2500'))
    """
    if all(name != IDEMPOTENCY_KEY for name, _ in request.headers):
        return request
    passed_ms = round(1_000 * (now_s - first_sent_s))
    return replace(request, headers=(*request.headers, header(IDEMPOTENCY_RETRY, str(passed_ms))))


class ProduceOptions(TypedDict, total=False):
    """Options of one event, and of its call: ``expected_version`` of its key, the token of the key's newest
    event or "none".
    """

    key: Any
    headers: Mapping[str, str | bytes] | None
    partition: int | None
    timestamp: datetime | int | None
    type: str | None
    idempotency_key: str | None
    expected_version: Token | None
    timeout_s: float | None


def event_of(value: Any, options: ProduceOptions) -> Event:
    """Return the event with its options."""
    return Event(
        value,
        options.get("key", DECLARED),
        options.get("headers") or {},
        options.get("partition"),
        options.get("timestamp"),
        options.get("type"),
    )


class PageOptions(SearchOptions, total=False):
    """Options of a page of rows; also ``order`` names declared indexes."""

    order: str | Sequence[str] | None


class ReadOptions(TypedDict, total=False):
    """Options of a read by key: includes the write ``after``; ``as_of`` a time or a write."""

    after: Token | None
    as_of: Moment | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class RetryPause:
    """A pause of ``seconds`` before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Call = Generator[Request | RetryPause, Any, T]


@dataclass(frozen=True, slots=True)
class Budget:
    """The time that a call has."""

    end_s: float
    retry: bool
    now: Callable[[], float]

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - self.now())


def pause_s(attempt: int, chance: float, first_s: float, longest_s: float) -> float:
    """Return a pause that grows with ``attempt``, with jitter so that waiting clients do not retry together.
    ``chance`` is from 0 to 1.
    """
    return float(min(longest_s, first_s * 2 ** min(attempt, 20)) * (0.5 + chance / 2))


JSON_BODY = (("Content-Type", "application/json"),)


def header(name: str, value: str) -> tuple[str, str]:
    """Return a request header. Raises CallerError for a text that HTTP cannot carry; sending it would look
    like a connection failure.
    """
    if not (value.isascii() and value.isprintable()):
        raise CallerError(
            f"{name} {value[:80]!r} cannot be sent in a header", hint="letters, digits and signs of ASCII"
        )
    return name, value


def conditions_of(where: Where | None) -> tuple[tuple[str, str], ...]:
    """Convert ``{"city": "Oslo", "points.gte": 100}``, or pairs, to parameters of a query string."""
    pairs = where.items() if isinstance(where, Mapping) else where or ()
    return tuple((_operated(name), text_of(value)) for name, value in pairs)


def _operated(name: str) -> str:
    """Return a field's parameter with its operator, because a field may have the name of a parameter of the
    route.
    """
    return name if "." in name or name == "key" else f"{name}.eq"


# Keys that a path cannot name: the subscription's own, and what URLs treat as folders.
_NO_PATH = ("changes", "", ".", "..")
# Routes below a row: a key that ends in one is not read by its path.
_BELOW_ROW = ("/history", "/diff")


def view_path(view: str) -> str:
    return f"/views/{quote(view, safe='')}"


def row_path(view: str, key: str) -> str | None:
    """Return the path of a row; None for a key that a path cannot name: it is the filter ``key`` of the
    view's rows.
    """
    if key in _NO_PATH or key.endswith(_BELOW_ROW):
        return None
    return f"{view_path(view)}/{quote(key, safe='')}"


def no_such_row(view: str, key: str) -> NotFound:
    """Return the error for a row that the filter ``key`` does not find."""
    return NotFound(f'view "{view}": key "{key}" does not exist', code="HUB-1411")


def below_row_path(view: str, key: str, route: str) -> str:
    """Return the path of a route below a row, such as ``history``; the key may be any text."""
    named = quote(key, safe="") if key.strip(".") else key.replace(".", "%2E")
    return f"{view_path(view)}/{named}/{route}"


def page_query(
    options: SearchOptions, order: str | Sequence[str] | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a page besides its conditions."""
    found = [("limit", str(options.get("limit", 100)))]
    if (cursor := options.get("cursor")) is not None:
        found.append(("after", cursor))
    if order:
        found.append(("order", order if isinstance(order, str) else ",".join(order)))
    if (fields := options.get("fields")) is not None:
        found.append(("fields", ",".join(fields)))
    return tuple(found)


def named_times(**moments: Moment | None) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a request that have a value."""
    return tuple((name, text_of(moment)) for name, moment in moments.items() if moment is not None)


def version_request(topic: str, key: str) -> Request:
    return Request("GET", f"/topics/{quote(topic, safe='')}/version", (("key", key),))


def translation(mirror: str, topic: str, partition: int, offset: int, back: bool) -> Request:
    query = (("topic", topic), ("partition", str(partition)), ("offset", str(offset)))
    path = f"/api/mirrors/{quote(mirror, safe='')}/translate"
    return Request("GET", path, (*query, ("back", "true")) if back else query)


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, date) else str(value)


def headers_of(token: str | None) -> dict[str, str]:
    """Return the headers of every request. ``token``: a bearer token, or ``user:password``."""
    agent = {"User-Agent": "hub.client"}
    if not token:
        return agent
    if ":" in token:
        return {**agent, "Authorization": f"Basic {base64.b64encode(token.encode()).decode()}"}
    return {**agent, "Authorization": f"Bearer {token}"}


def caller_settings(url: str, token: str | None, environment: Mapping[str, str]) -> tuple[str, str | None]:
    """Return (URL without credentials, credentials): from ``token``, else ``user:password@`` in the URL, else
    the variable HUB_TOKEN.

    >>> caller_settings("http://ana:a%20b@hub:8088", None, {})
    ('http://hub:8088', 'ana:a b')
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at:
        url = urlunsplit(parts._replace(netloc=host))
        token = token or unquote(user)
    return url, token or environment.get("HUB_TOKEN") or None


def json_of(value: Any, what: str) -> bytes:
    try:
        return orjson.dumps(value, default=_unusual)
    except TypeError as error:
        raise CallerError(f"{what} cannot be encoded as JSON: {error}") from None


def _unusual(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON")


def plain(value: Any) -> Any:
    """Return a parameter of a statement as JSON can carry it."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return text_of(value)
