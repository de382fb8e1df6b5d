"""[core] Action and object of each route in the access log.

``ROUTES_LOGGED`` has every route that writes; a test compares it with the rules of access. A writing route
that is missing here is logged as ``hub.change``. Paths of the registry are told apart by its own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hub.access_log.actions import LoggedAction
from hub.caller import Action
from hub.schema_registry.http.access_rules import RULES


@dataclass(frozen=True, slots=True)
class LoggedRoute:
    """Action of a route. ``kind``: of its object, which the path parameter ``named`` names. ``is_change``: it
    does not happen without its entry; others are noted."""

    action: LoggedAction
    kind: str = "hub"
    named: str = ""
    is_change: bool = True


def _noted(action: LoggedAction, kind: str = "hub", named: str = "") -> LoggedRoute:
    return LoggedRoute(action, kind, named, is_change=False)


_HUB_CHANGE = LoggedRoute(LoggedAction.hub_change)
_SCHEMA_CHANGE = LoggedRoute(LoggedAction.schema_change, "subject", "rest")
_SCHEMA_EDIT = LoggedRoute(LoggedAction.schema_change, "subject", "subject")
_KEY_CHANGE = LoggedRoute(LoggedAction.key_change, "key", "rest")
_KEY_READ = LoggedRoute(LoggedAction.key_read, "key", "rest", is_change=False)
_WRITE = _noted(LoggedAction.records_write, "topic", "topic")
_LETTER = LoggedRoute(LoggedAction.dead_letter_change, "topic", "topic")
_TOKEN = LoggedRoute(LoggedAction.token_create, "token")
_TOKEN_END = LoggedRoute(LoggedAction.token_revoke, "token", "id")
_SESSION_END = LoggedRoute(LoggedAction.session_end, "session", "id")
_REQUEST = LoggedRoute(LoggedAction.access_request, "access-request", "id")
_SILENCE = LoggedRoute(LoggedAction.alert_change, "silence", "id")
_ERASURE = LoggedRoute(LoggedAction.erase, "erasure", "id")
_MIRROR = LoggedRoute(LoggedAction.mirror_change, "mirror", "mirror")
_GROUP = LoggedRoute(LoggedAction.group_change, "group", "group")
_TOPIC = LoggedRoute(LoggedAction.topic_change, "topic", "topic")
_SQL = _noted(LoggedAction.sql)

# Writing routes by template.
ROUTES_LOGGED: Final[Mapping[str, LoggedRoute]] = {
    "/sign-in": _noted(LoggedAction.sign_in),
    "/sign-out": _noted(LoggedAction.sign_out),
    "/api/access/sessions/{id}": _SESSION_END,
    "/sessions/{id}/end": _SESSION_END,
    "/tokens": _TOKEN,
    "/tokens/{id}/revoke": _TOKEN_END,
    "/api/access/tokens": _TOKEN,
    "/api/access/tokens/{id}": _TOKEN_END,
    "/access-requests": _REQUEST,
    "/access-requests/{id}/approve": _REQUEST,
    "/access-requests/{id}/refuse": _REQUEST,
    "/access-requests/{id}/withdraw": _REQUEST,
    "/api/access/requests": _REQUEST,
    "/api/access/requests/{id}/approve": _REQUEST,
    "/api/access/requests/{id}/refuse": _REQUEST,
    "/api/access/requests/{id}/withdraw": _REQUEST,
    "/topics/{topic}/produce": _WRITE,
    "/topics/{topic}/records": _WRITE,
    "/topics/{topic}/events": _WRITE,
    "/hooks/{name}": _noted(LoggedAction.records_write, "webhook", "name"),
    "/v3/clusters/{cluster}/topics/{topic}/records": _WRITE,
    "/schema-editor/{subject:path}": _SCHEMA_EDIT,
    "/api/schema-editor/{subject:path}": _SCHEMA_EDIT,
    "/dlq/{topic}/replay": _LETTER,
    "/dlq/{topic}/dismiss": _LETTER,
    "/dlq/{topic}/{partition}/{offset}/repair": _LETTER,
    "/dlq/{topic}/{partition}/{offset}/replay": _LETTER,
    "/dlq/{topic}/{partition}/{offset}/dismiss": _LETTER,
    "/view-versions/{view}": LoggedRoute(LoggedAction.view_change, "view", "view"),
    "/query": _SQL,
    "/query/changes": _SQL,
    "/api/workbench/plan": _SQL,
    "/api/workbench/preview": _SQL,
    "/api/workbench/save": _SQL,
    "/views/{view}/changes": _noted(LoggedAction.export, "view", "view"),
    "/api/audit/receipts": _noted(LoggedAction.records_write),
    "/connect/{connector:path}/{action}": LoggedRoute(
        LoggedAction.connector_change, "connector", "connector"
    ),
    "/topic-editor/{topic}": _TOPIC,
    "/api/topic-editor/{topic}": _TOPIC,
    "/groups/{group:path}/offsets": _GROUP,
    "/api/groups/{group:path}/offsets": _GROUP,
    "/mirrors/{mirror}/{action}": _MIRROR,
    "/api/mirrors/{mirror}/{action}": _MIRROR,
    "/dek-registry/v1/{rest:anything}": _KEY_CHANGE,
    "/api/erasures": _ERASURE,
    "/api/erasures/plan": _ERASURE,
    "/api/erasures/{id}/approve": _ERASURE,
    "/api/erasures/{id}/cancel": _ERASURE,
    "/alerts/silences": _SILENCE,
    "/alerts/silences/{id}/end": _SILENCE,
    "/api/alerts/silences": _SILENCE,
    "/api/alerts/silences/{id}": _SILENCE,
    "/api/alerts/channels/{channel}/test": LoggedRoute(LoggedAction.alert_change, "channel", "channel"),
}
_REGISTRY: Final = (
    "/subjects",
    "/schemas",
    "/config",
    "/mode",
    "/contexts",
    "/compatibility",
    "/v1/metadata",
)
_KEYS: Final = "/dek-registry/v1"
_MOST_PARTS_OF_KEK: Final = 6  # "/dek-registry/v1/keks/NAME/deks", split

# Reads that are logged each time: rows and messages as lists and streams.
_MESSAGES = _noted(LoggedAction.export, "topic", "topic")
_ROWS = _noted(LoggedAction.export, "view", "view")
READS_LOGGED: Final[Mapping[str, LoggedRoute]] = {
    "/views/{view}": _ROWS,
    "/views/{view}/changes": _ROWS,
    "/api/topics/{topic}/messages": _MESSAGES,
    "/api/workbench/topics/{topic}": _MESSAGES,
    "/ui/topics/{topic}/messages": _MESSAGES,
    "/api/topics/{topic}/tail": _MESSAGES,
    "/ui/topics/{topic}/tail": _MESSAGES,
    "/dlq/{topic}/{partition}/{offset}": _MESSAGES,
    "/sign-in/oidc/callback": _noted(LoggedAction.sign_in),
}
_SAFE: Final = ("GET", "HEAD", "OPTIONS")


def logged_route(template: str, method: str, path: str) -> LoggedRoute | None:
    """Return the action of a request; None for a read that is logged only if it is refused or masked."""
    if method in _SAFE:
        if template.startswith(_KEYS) and len(path.split("/")) > _MOST_PARTS_OF_KEK:
            return _KEY_READ
        return READS_LOGGED.get(template)
    if template.startswith(_REGISTRY):
        return _SCHEMA_CHANGE if changes_registry(path, method) else None
    return ROUTES_LOGGED.get(template, _HUB_CHANGE)


def changes_registry(path: str, method: str) -> bool:
    """Return whether a request of the registry changes something: not a lookup, not a check.

    >>> changes_registry("/subjects/a-value/versions", "POST"), changes_registry("/subjects/a-value", "POST")
    (True, False)
    """
    parts = path.strip("/").split("/")
    if parts[0] == "contexts" and len(parts) > 2:
        parts = parts[2:]
    for pattern, methods in RULES.items():
        wanted = pattern.split("/")
        if len(wanted) == len(parts) and all(
            not want or want == part for want, part in zip(wanted, parts, strict=True)
        ):
            rule = methods.get(method)
            return rule is not None and rule[0] in (Action.write, Action.admin)
    return False


def object_name(route: LoggedRoute, path: str, given: Mapping[str, str]) -> str:
    """Return the name of the request's object; of the registry its subject, "" for the hub's own settings; of
    a key its KEK, subject and version.
    """
    if route.named != "rest":
        return given.get(route.named, "")
    parts = path.removeprefix(_KEYS).strip("/").split("/")
    if parts[0] == "contexts" and len(parts) > 2:
        parts = parts[2:]
    if path.startswith(_KEYS):
        return "/".join(each for each in parts[1::2] if each)
    return parts[1] if len(parts) > 1 else ""
