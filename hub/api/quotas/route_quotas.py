"""[core] The quota that a request counts against before it is answered.

Events and bytes are counted by the gateway, which knows their number, and SQL by the query service, which
knows its tables. All other requests count as a connection while they are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from hub.access.decide import granted_as
from hub.caller import Kind, Resource
from hub.quotas.kinds import Quota


@dataclass(frozen=True, slots=True)
class RouteQuota:
    """Quota of a route. ``view`` and ``topic``: path parameters that name its object."""

    quota: Quota
    view: str = ""
    topic: str = ""

    def objects(self, given: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the topics and the views of a request with these path parameters."""
        return (given[self.topic],) if self.topic else (), (given[self.view],) if self.view else ()


_ROWS, _MESSAGES = RouteQuota(Quota.queries, view="view"), RouteQuota(Quota.queries, topic="topic")
_VIEW_CHANGES = RouteQuota(Quota.subscriptions, view="view")
_TAIL = RouteQuota(Quota.subscriptions, topic="topic")

ROUTE_QUOTAS: Final[Mapping[str, Mapping[str, RouteQuota]]] = {
    "/views/{view}": {"GET": _ROWS},
    "/api/views/{view}": {"GET": _ROWS},
    "/views/{view}/{key:path}/history": {"GET": _ROWS},
    "/views/{view}/{key:path}/diff": {"GET": _ROWS},
    "/views/{view}/{key:path}": {"GET": _ROWS},
    "/views/{view}/changes": {"GET": _VIEW_CHANGES, "WEBSOCKET": _VIEW_CHANGES},
    "/api/topics/{topic}/messages": {"GET": _MESSAGES},
    "/ui/topics/{topic}/messages": {"GET": _MESSAGES},
    "/api/topics/{topic}/tail": {"GET": _TAIL},
    "/ui/topics/{topic}/tail": {"GET": _TAIL},
    "/topics/{topic}/produce": {"GET": _MESSAGES},
    "/topics/{topic}/version": {"GET": _MESSAGES},
    "/api/topics/{topic}/produce": {"GET": _MESSAGES},
    "/dlq/{topic}/{partition}/{offset}": {"GET": _MESSAGES},
    "/api/workbench/topics/{topic}": {"GET": _MESSAGES},
    "/api/workbench/preview": {"POST": RouteQuota(Quota.queries)},
}


def registered_subject(scope: Mapping[str, Any]) -> str | None:
    """Return the subject of a request that registers a schema; None for any other request.

    >>> registered_subject({"method": "POST", "path": "/subjects/nyc.a-value/versions"})
    'nyc.a-value'
    """
    if scope.get("method") != "POST":
        return None
    raw = scope.get("raw_path")
    text = scope["path"] if raw is None else raw.partition(b"?")[0].decode("latin-1")
    parts = [unquote(each) for each in text.rstrip("/").split("/")[1:]]
    if parts[:1] == ["contexts"]:
        parts = parts[2:]
    return parts[1] if len(parts) == 3 and (parts[0], parts[2]) == ("subjects", "versions") else None


def topics_of_subject(subject: str) -> tuple[str, ...]:
    """Return the topic that a subject belongs to."""
    owners = granted_as(Resource(Kind.subject, subject))
    return tuple(each.name for each in owners if each.kind is Kind.topic)
