"""[edge] httpx: the hub's server as ``hub sql`` asks it. An error keeps the caret that the server drew."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx2
import orjson

from hub.cli.http import answer_body, asking, base_url, refused, unreachable
from hub.errors import HubError

_ANSWER_S = 90.0  # the server ends a query after 60 s
_FRESH_S = 30.0
_SILENCE_S = 60.0  # of a push query, which sends a sign of life every 10 s


class StatementRefused(HubError):
    """The server refused a statement; ``caret`` marks the place, or is None."""

    def __init__(self, error: HubError, caret: str | None) -> None:
        super().__init__(error.message, hint=error.hint, code=error.code)
        self.caret = caret


@dataclass(slots=True)
class SqlSession:
    """A session with one server; remembers the limits of this call and, for a while, the tables."""

    limit: int = 1_000
    timeout_ms: int | None = None
    events: int | str | None = None
    since: str | None = None
    before: str | None = None
    after: str | None = None
    cut: bool = False
    _tables: tuple[float, dict[str, Any]] | None = field(default=None, repr=False)
    _topics: tuple[float, list[dict[str, Any]]] | None = field(default=None, repr=False)

    def ask(self, sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of POST /query as JSON. Raises Refused, PeerError.
        Interrupted, it hangs up: the query is stopped."""
        body: dict[str, Any] = {"sql": sql, "parameters": dict(parameters), "limit": self.limit}
        for name in ("timeout_ms", "events", "since", "before", "after"):
            if getattr(self, name) is not None:
                body[name] = getattr(self, name)
        if self.cut:
            body["cut"] = "required"
        return dict(self._send("POST", "/query", body))

    def follow(self, sql: str, parameters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of a push query as they arrive. Raises Refused, PeerError."""
        url = base_url()
        parameters_sent = httpx2.QueryParams({**parameters, "sql": sql, "format": "ndjson"})
        timeout = httpx2.Timeout(_ANSWER_S, read=_SILENCE_S)
        try:
            with httpx2.stream(
                "GET", f"{url}/query/changes", params=parameters_sent, headers=asking(), timeout=timeout
            ) as answer:
                if not answer.is_success:
                    answer.read()
                    raise _refusal(answer)
                for line in answer.iter_lines():
                    yield orjson.loads(line)
        except httpx2.HTTPError as error:
            raise unreachable(url, error) from None

    def tables(self) -> dict[str, Any]:
        """GET /query/tables: views with columns, functions."""
        if self._tables is None or time.monotonic() - self._tables[0] > _FRESH_S:
            self._tables = (time.monotonic(), dict(self._send("GET", "/query/tables")))
        return self._tables[1]

    def topics(self) -> list[dict[str, Any]]:
        """GET /topics: every topic with its partitions and how many records it had."""
        if self._topics is None or time.monotonic() - self._topics[0] > _FRESH_S:
            self._topics = (time.monotonic(), list(self._send("GET", "/topics")["topics"]))
        return self._topics[1]

    def topic(self, name: str) -> dict[str, Any]:
        """Return a topic's columns. Raises NotFound."""
        return dict(self._send("GET", f"/query/topics/{quote(name, safe='')}"))

    def saved(self) -> list[dict[str, Any]]:
        """Return the project's saved queries."""
        return list(self._send("GET", "/queries")["queries"])

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        url = base_url()
        try:
            answer = httpx2.request(method, f"{url}{path}", json=body, headers=asking(), timeout=_ANSWER_S)
        except httpx2.HTTPError as error:
            raise unreachable(url, error) from None
        if answer.is_success:
            return answer_body(answer)
        raise _refusal(answer)


def _refusal(answer: httpx2.Response) -> Exception:
    """Return the error of an answer, with its caret if it has one."""
    error = refused(answer)
    if not isinstance(error, HubError):
        return error
    try:
        body = answer.json()
        error.code = str(body.get("error_code") or error.code)
        caret = body.get("caret")
    except (ValueError, AttributeError):
        caret = None
    return StatementRefused(error, caret) if caret else error
