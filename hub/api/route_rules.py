"""[core] Access rules of the server's routes: an action on the object in the path. A route without a rule is
refused.

``listed``: open to everyone with any grant; objects that the caller may not see are filtered out later
(hub.caller). The registry's paths are distinguished further in, after its own router has parsed them
(hub/schema_registry/http/access_rules.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.routing import compile_path

from hub.caller import HUB, Action, Kind, Resource
from hub.schema_registry.http import routes as _registry_paths

assert _registry_paths  # this import registers the convertor ":anything"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """Rule of a route.

    ``action`` None: everyone with any grant (``LISTED``), or everyone (``is_open``). ``named``: the path
    parameter that names the object. ``whole``: the answer is not filtered by caller.
    """

    action: Action | None = None
    kind: Kind = Kind.hub
    named: str = ""
    is_open: bool = False
    whole: bool = False

    def needs(self, given: Mapping[str, str]) -> tuple[Action, Resource] | None:
        """Return the required action and object for these path parameters; None: nothing in particular."""
        if self.action is None:
            return None
        return self.action, HUB if self.kind is Kind.hub else Resource(self.kind, given[self.named])


OPEN: Final = RouteRule(is_open=True)
LISTED: Final = RouteRule()
# Not as the sender, who has no grants: the signature admits, and the hub writes.
SIGNED: Final = RouteRule(is_open=True, whole=True)
METRICS: Final = RouteRule(Action.read, whole=True)
METRICS_OPEN: Final = RouteRule(is_open=True, whole=True)


def _on(action: Action, kind: Kind, named: str) -> RouteRule:
    return RouteRule(action, kind, named)


_HUB_READ, _HUB_OPERATED = RouteRule(Action.read), RouteRule(Action.operate)
_HUB_ADMIN = RouteRule(Action.admin)
_TOPIC_DESCRIBED = _on(Action.describe, Kind.topic, "topic")
_TOPIC_READ = _on(Action.read, Kind.topic, "topic")
_TOPIC_WRITTEN = _on(Action.write, Kind.topic, "topic")
_TOPIC_OPERATED = _on(Action.operate, Kind.topic, "topic")
_TOPIC_ADMINISTERED = _on(Action.admin, Kind.topic, "topic")
_VIEW_READ = _on(Action.read, Kind.view, "view")
_SUBJECT_DESCRIBED = _on(Action.describe, Kind.subject, "subject")
_SUBJECT_WRITTEN = _on(Action.write, Kind.subject, "subject")
_ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "DELETE")

# Rules by template and method. Templates are the routers', with parameter names of our own; the first match
# applies.
ROUTES: Final[Mapping[str, Mapping[str, RouteRule]]] = {
    # the server, and sign-in
    "/health": {"GET": OPEN},
    "/ui/static/{name}": {"GET": OPEN},
    "/sign-in": {"GET": OPEN, "POST": OPEN},
    "/sign-in/oidc": {"GET": OPEN},
    "/sign-in/oidc/callback": {"GET": OPEN},
    "/sign-out": {"POST": OPEN},
    "/api/access/sessions": {"GET": LISTED},
    "/api/access/sessions/{id}": {"DELETE": LISTED},
    "/sessions/{id}/end": {"POST": LISTED},
    "/tokens": {"GET": LISTED, "POST": LISTED},
    "/tokens/{id}/revoke": {"POST": LISTED},
    "/api/access/tokens": {"GET": LISTED, "POST": LISTED},
    "/api/access/tokens/{id}": {"DELETE": LISTED},
    # requests of the caller, for them, or theirs to answer: hub/access_requests/asking.py
    "/access-requests": {"GET": LISTED, "POST": LISTED},
    "/access-requests/{id}/approve": {"POST": LISTED},
    "/access-requests/{id}/refuse": {"POST": LISTED},
    "/access-requests/{id}/withdraw": {"POST": LISTED},
    "/api/access/requests": {"GET": LISTED, "POST": LISTED},
    "/api/access/requests/{id}": {"GET": LISTED},
    "/api/access/requests/{id}/approve": {"POST": LISTED},
    "/api/access/requests/{id}/refuse": {"POST": LISTED},
    "/api/access/requests/{id}/withdraw": {"POST": LISTED},
    "/api/access/explain": {"GET": LISTED},
    "/usage": {"GET": LISTED},
    "/api/usage": {"GET": LISTED},
    "/governance": {"GET": _HUB_ADMIN},
    "/api/governance": {"GET": _HUB_ADMIN},
    "/api/governance/flows": {"GET": _HUB_ADMIN},
    "/access-log": {"GET": _HUB_ADMIN},
    "/api/access/log": {"GET": _HUB_ADMIN},
    "/metrics": {"GET": METRICS},
    "/openapi.json": {"GET": LISTED, "HEAD": LISTED},
    "/docs": {"GET": LISTED},
    "/help": {"GET": LISTED},
    "/help/images/{name}": {"GET": LISTED},
    "/help/{name:path}": {"GET": LISTED},
    # the registry: see hub/schema_registry/http/access_rules.py
    **{
        path: dict.fromkeys(_ANY_METHOD, LISTED)
        for path in ("/subjects", "/config", "/mode", "/contexts")
        for path in (path, f"{path}/{{rest:anything}}")
    },
    "/schemas": dict.fromkeys(_ANY_METHOD, LISTED),
    "/compatibility/{rest:anything}": dict.fromkeys(_ANY_METHOD, LISTED),
    "/v1/metadata/{rest:anything}": dict.fromkeys(_ANY_METHOD, LISTED),
    # For browsers a subject's page; for programs schemas by id, without a subject.
    "/schemas/{subject:path}": {"GET": LISTED},
    "/schemas/{rest:anything}": dict.fromkeys(_ANY_METHOD, LISTED),
    "/api/schemas": {"GET": LISTED},
    "/api/schemas/{subject:path}": {"GET": _SUBJECT_DESCRIBED},
    "/schema-editor/{subject:path}": {"GET": _SUBJECT_WRITTEN, "POST": _SUBJECT_WRITTEN},
    "/api/schema-editor/{subject:path}": {"GET": _SUBJECT_WRITTEN, "POST": _SUBJECT_WRITTEN},
    "/api/levels": {"GET": LISTED},
    # keys of field encryption: see hub/schema_registry/dek_registry/routes.py
    "/dek-registry/v1/{rest:anything}": dict.fromkeys(_ANY_METHOD, LISTED),
    # erasures: an answer has the ids of persons
    "/api/erasures": {"GET": _HUB_OPERATED, "POST": _HUB_OPERATED},
    "/api/erasures/plan": {"POST": _HUB_OPERATED},
    "/api/erasures/{id}": {"GET": _HUB_OPERATED},
    "/api/erasures/{id}/approve": {"POST": _HUB_OPERATED},
    "/api/erasures/{id}/cancel": {"POST": _HUB_OPERATED},
    "/api/erasures/{id}/proof": {"GET": _HUB_OPERATED},
    # topics
    "/topics": {"GET": LISTED},
    "/api/topics": {"GET": LISTED},
    "/topics/{topic}": {"GET": _TOPIC_DESCRIBED},
    "/api/topics/{topic}": {"GET": _TOPIC_DESCRIBED},
    "/topics/{topic}/settings": {"GET": _TOPIC_DESCRIBED},
    "/api/topics/{topic}/settings": {"GET": _TOPIC_DESCRIBED},
    "/ui/topics/{topic}/settings": {"GET": _TOPIC_DESCRIBED},
    "/api/topics/{topic}/messages": {"GET": _TOPIC_READ},
    "/ui/topics/{topic}/messages": {"GET": _TOPIC_READ},
    "/api/topics/{topic}/tail": {"GET": _TOPIC_READ},
    "/ui/topics/{topic}/tail": {"GET": _TOPIC_READ},
    "/topics/{topic}/produce": {"GET": _TOPIC_WRITTEN, "POST": _TOPIC_WRITTEN},
    "/api/topics/{topic}/produce": {"GET": _TOPIC_WRITTEN},
    "/topic-editor": {"GET": LISTED},
    "/topic-editor/{topic}": {"GET": _TOPIC_ADMINISTERED, "POST": _TOPIC_ADMINISTERED},
    "/api/topic-editor/{topic}": {"GET": _TOPIC_ADMINISTERED, "POST": _TOPIC_ADMINISTERED},
    "/topics/{topic}/records": {"POST": _TOPIC_WRITTEN},
    "/topics/{topic}/events": {"POST": _TOPIC_WRITTEN},
    "/topics/{topic}/version": {"GET": _TOPIC_WRITTEN},
    "/hooks/{name}": {"POST": SIGNED},
    "/v3/clusters": {"GET": LISTED},
    "/v3/clusters/{cluster}": {"GET": LISTED},
    "/v3/clusters/{cluster}/topics": {"GET": LISTED},
    "/v3/clusters/{cluster}/topics/{topic}/records": {"POST": _TOPIC_WRITTEN},
    # DLQs: the topic is the DLQ itself, which belongs to the topic of its events
    "/dlq": {"GET": LISTED},
    "/dlq/{topic}": {"GET": LISTED},
    "/dlq/{topic}/replay": {"POST": _TOPIC_OPERATED},
    "/dlq/{topic}/dismiss": {"POST": _TOPIC_OPERATED},
    "/dead-letters": {"GET": LISTED},
    "/api/dead-letters": {"GET": LISTED},
    "/dlq/{topic}/{partition}/{offset}": {"GET": _TOPIC_READ},
    "/dlq/{topic}/{partition}/{offset}/repair": {"POST": _TOPIC_OPERATED},
    "/dlq/{topic}/{partition}/{offset}/replay": {"POST": _TOPIC_OPERATED},
    "/dlq/{topic}/{partition}/{offset}/dismiss": {"POST": _TOPIC_OPERATED},
    # views and queries
    "/views": {"GET": LISTED},
    "/api/views": {"GET": LISTED},
    "/views/{view}": {"GET": _VIEW_READ},
    "/api/views/{view}": {"GET": _VIEW_READ},
    "/views/{view}/changes": {"GET": _VIEW_READ, "WEBSOCKET": _VIEW_READ},
    "/views/{view}/{key:path}/history": {"GET": _VIEW_READ},
    "/views/{view}/{key:path}/diff": {"GET": _VIEW_READ},
    "/views/{view}/{key:path}": {"GET": _VIEW_READ},
    # A version's file may name Python that runs with the hub's rights.
    "/view-versions/{view}": {"GET": _VIEW_READ, "POST": _on(Action.admin, Kind.view, "view")},
    "/query": {"GET": LISTED, "POST": LISTED},
    "/api/query": {"GET": LISTED},
    "/queries": {"GET": LISTED},
    "/queries/{name}": {"GET": LISTED},
    "/query/changes": {"GET": LISTED, "WEBSOCKET": LISTED},
    "/query/tables": {"GET": LISTED},
    "/query/topics/{topic}": {"GET": _TOPIC_DESCRIBED},
    # A statement requires read of all its sources without masks; saving it, admin over the view.
    "/workbench": {"GET": LISTED},
    "/api/workbench": {"GET": LISTED},
    "/api/workbench/functions": {"GET": LISTED},
    "/api/workbench/topics/{topic}": {"GET": _TOPIC_READ},
    "/api/workbench/plan": {"POST": LISTED},
    "/api/workbench/preview": {"POST": LISTED},
    "/api/workbench/save": {"POST": LISTED},
    # monitoring
    "/": {"GET": LISTED},
    "/ui/overview": {"GET": LISTED},
    "/ui/lookup": {"GET": LISTED},
    "/ui/recent": {"GET": LISTED},
    "/ui/card": {"GET": LISTED},
    "/api/overview": {"GET": LISTED},
    "/search": {"GET": LISTED},
    "/api/search": {"GET": LISTED},
    "/lag": {"GET": LISTED},
    "/api/lag": {"GET": LISTED},
    # A reset requires operate of each topic: hub/topics/groups/reset.py
    "/groups/{group:path}/offsets": {"GET": LISTED, "POST": LISTED},
    "/api/groups/{group:path}/offsets": {"GET": LISTED, "POST": LISTED},
    "/ui/charts": {"GET": LISTED},
    "/ui/charts/numbers": {"GET": LISTED},
    "/api/series": {"GET": LISTED},
    "/latency": {"GET": LISTED},
    "/api/latency": {"GET": LISTED},
    "/lineage": {"GET": LISTED},
    "/api/lineage": {"GET": LISTED},
    "/api/openlineage": {"GET": LISTED},
    "/completeness": {"GET": LISTED},
    "/api/completeness": {"GET": LISTED},
    "/audit": {"GET": LISTED},
    "/api/audit": {"GET": LISTED},
    "/api/audit/receipts": {"POST": LISTED},
    "/api/audit/views": {"GET": LISTED},
    "/api/canary": {"GET": _HUB_READ},
    "/cluster": {"GET": _HUB_READ},
    "/api/cluster": {"GET": _HUB_READ},
    "/connect": {"GET": _HUB_READ},
    "/api/connect": {"GET": _HUB_READ},
    "/connect/{connector:path}": {"GET": _HUB_READ},
    "/api/connect/{connector:path}": {"GET": _HUB_READ},
    "/connect/{connector:path}/{action}": {"POST": _HUB_OPERATED},
    "/sinks": {"GET": _HUB_READ},
    "/api/sinks": {"GET": _HUB_READ},
    "/mirrors": {"GET": _HUB_READ},
    "/api/mirrors": {"GET": _HUB_READ},
    "/regions": {"GET": _HUB_READ},
    "/api/regions": {"GET": _HUB_READ},
    "/api/mirrors/{mirror}/translate": {"GET": _HUB_READ},
    "/mirrors/{mirror}/{action}": {"GET": _HUB_OPERATED, "POST": _HUB_OPERATED},
    "/api/mirrors/{mirror}/{action}": {"GET": _HUB_OPERATED, "POST": _HUB_OPERATED},
    # alerts on visible objects, silences of objects that the caller may operate: hub/api/visibility.py
    "/alerts": {"GET": LISTED},
    "/api/alerts": {"GET": LISTED},
    "/api/alerts/rules": {"GET": LISTED},
    "/alerts/runbooks/{name}": {"GET": LISTED},
    "/api/alerts/runbooks/{name}": {"GET": LISTED},
    "/alerts/silences": {"POST": LISTED},
    "/alerts/silences/{id}/end": {"POST": LISTED},
    "/api/alerts/silences": {"GET": LISTED, "POST": LISTED},
    "/api/alerts/silences/{id}": {"DELETE": LISTED},
    "/api/alerts/channels/{channel}/test": {"POST": _HUB_OPERATED},
}


def _compiled() -> Mapping[str, list[tuple[re.Pattern[str], str]]]:
    found: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for template in ROUTES:
        found.setdefault(first_label(template), []).append((compile_path(template)[0], template))
    return found


def first_label(path: str) -> str:
    """Return the part between the first two slashes.

    >>> first_label("/topics/{topic}"), first_label("/")
    ('topics', '')
    """
    return path[1:].partition("/")[0]


_BY_FIRST: Final = _compiled()


def templates(path: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Return the templates that match a path, with its parameters."""
    for pattern, template in _BY_FIRST.get(first_label(path), ()):
        if found := pattern.match(path):
            yield template, found.groupdict()


def rule_of(
    path: str, method: str, *, metrics_open: bool = False
) -> tuple[RouteRule, Mapping[str, str], str] | None:
    """Return the rule of the first template that matches path and method, the path's parameters, and the
    template; None: refuse.

    ``method`` may be ``WEBSOCKET``.
    """
    for template, given in templates(path):
        rule = ROUTES[template].get(method)
        if rule is not None:
            return (METRICS_OPEN if rule is METRICS and metrics_open else rule), given, template
    return None
