"""[core] Requests of the client and their replies, as values:
what is sent, with which headers, and how long to pause."""

from __future__ import annotations

import base64
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import orjson

from hub.errors import CallerError
from hub.record import Positions

T = TypeVar("T")
Row = dict[str, Any]
Where = Mapping[str, Any] | Sequence[tuple[str, Any]]
Token = Positions | str
POSITION = "Hub-Position"
CATCHING_UP = "hub-catching-up"
TEMPORARY = (429, 502, 503, 504)


class SearchOptions(TypedDict, total=False):
    """Options of a text search. ``where`` names declared indexes; ``cursor`` is ``next`` of the previous
    page."""

    where: Where | None
    fields: Sequence[str] | None
    limit: int
    cursor: str | None
    after: Token | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server. ``path`` is already quoted."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of ``seconds`` before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Call = Generator[Request | Pause, Any, T]


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


def search_query(words: str, options: SearchOptions) -> tuple[tuple[str, str], ...]:
    """Return the parameters of a text search besides its conditions."""
    found = [("q", words), ("limit", str(options.get("limit", 100)))]
    if (cursor := options.get("cursor")) is not None:
        found.append(("after", cursor))
    if (fields := options.get("fields")) is not None:
        found.append(("fields", ",".join(fields)))
    return tuple(found)


def translation(mirror: str, topic: str, partition: int, offset: int, back: bool) -> Request:
    asked = (("topic", topic), ("partition", str(partition)), ("offset", str(offset)))
    path = f"/api/mirrors/{quote(mirror, safe='')}/translate"
    return Request("GET", path, (*asked, ("back", "true")) if back else asked)


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
