"""[edge] ASGI: Confluent's ``/dek-registry/v1``, with the paths, status codes and bodies that clients expect.

Source: Confluent Schema Registry's API reference 8.x, and confluent-kafka's DekRegistryClient. Answers to
writes have ``Hub-Position``, as those of the schema registry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from hub.caller import CALLER, HUB, Action, Forbidden, Unauthenticated, require
from hub.errors import HubError, PeerError
from hub.schema_registry.dek_registry.bodies import checked_subject
from hub.schema_registry.dek_registry.handlers import DekHandlers, KeyService
from hub.schema_registry.dek_registry.node import DekNode
from hub.schema_registry.dek_registry.records import KEYS_TOPIC
from hub.schema_registry.http.access_rules import On, place_of
from hub.schema_registry.http.asgi import (
    NOT_FOUND,
    UNSUPPORTED,
    ClientGone,
    HttpAnswer,
    HttpCall,
    Receive,
    Scope,
    Send,
    media_type_is_known,
    read_body,
    respond,
)
from hub.schema_registry.http.path_table import Methods, PathTable, denied, not_allowed
from hub.schema_registry.registry.errors import RequestRefused

log = logging.getLogger(__name__)

ROOT: Final = "/dek-registry/v1"

_LISTED = (Action.describe, On.listed)
_OPERATED = (Action.operate, On.hub)
_ADMIN = (Action.admin, On.hub)
_DESCRIBED = (Action.describe, On.subject)
_GONE = (Action.admin, On.subject)

# Required action of each path. A KEK decides which key of which KMS is used, so it is the hub's; a DEK
# belongs to its subject. The handler requires read or write for a DEK, and write to create one.
RULES: Mapping[str, Mapping[str, tuple[Action, On]]] = {
    "keks": {"GET": _LISTED, "POST": _OPERATED},
    "keks/": {"GET": _LISTED, "PUT": _OPERATED, "DELETE": _ADMIN},
    "keks//undelete": {"POST": _ADMIN},
    "keks//deks": {"GET": _LISTED, "POST": _LISTED},
    "keks//deks/": {"GET": _DESCRIBED, "POST": _DESCRIBED, "DELETE": _GONE},
    "keks//deks//undelete": {"POST": _GONE},
    "keks//deks//versions": {"GET": _DESCRIBED},
    "keks//deks//versions/": {"GET": _DESCRIBED, "DELETE": _GONE},
    "keks//deks//versions//undelete": {"POST": _GONE},
}


def create_router(node: DekNode, keys: KeyService, writable: Callable[[str | None], None]) -> APIRouter:
    """Return the routes of one node. ``writable``: see DekHandlers."""
    router = APIRouter()
    api = DekApi(DekHandlers(node, keys, writable))
    router.routes.append(Route(f"{ROOT}/{{rest:anything}}", api, include_in_schema=False))
    return router


class DekApi:
    """The ASGI app. Answers in a thread: each request looks at the log's end."""

    def __init__(self, handlers: DekHandlers) -> None:
        self.paths = PathTable(self._table(handlers))

    @staticmethod
    def _table(does: DekHandlers) -> Iterator[tuple[str, Methods]]:
        """Yield (path with variable parts empty, handlers by method)."""
        yield "keks", {"GET": does.kek_names, "POST": does.create_kek}
        yield "keks/", {"GET": does.kek, "PUT": does.update_kek, "DELETE": does.delete_kek}
        yield "keks//undelete", {"POST": does.undelete_kek}
        yield "keks//deks", {"GET": does.dek_subjects, "POST": does.create_dek}
        yield "keks//deks/", {"GET": does.dek, "POST": does.create_dek, "DELETE": does.delete_deks}
        yield "keks//deks//undelete", {"POST": does.undelete_deks}
        yield "keks//deks//versions", {"GET": does.dek_versions}
        yield "keks//deks//versions/", {"GET": does.dek, "DELETE": does.delete_deks}
        yield "keks//deks//versions//undelete", {"POST": does.undelete_deks}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["hub.route"] = f"{ROOT}/…"
        try:
            answer = await self._answer(scope, receive)
        except ClientGone:
            return
        # A key may not be stored by a cache between hub and client.
        kept_nowhere = (*answer.headers, (b"cache-control", b"no-store"))
        await respond(scope, send, replace(answer, headers=kept_nowhere), KEYS_TOPIC)

    async def _answer(self, scope: Scope, receive: Receive) -> HttpAnswer:
        try:
            call = HttpCall.of(scope)
            call.segments = call.segments[2:]
            found = self.paths.find(call)
            if found is None:
                return NOT_FOUND
            pattern, methods = found
            handler = methods.get(call.method)
            if handler is None:
                return not_allowed(methods)
            _allow(call, pattern)
            if call.method in ("POST", "PUT"):
                if not media_type_is_known(call):
                    return UNSUPPORTED
                await read_body(call, receive)
            return await run_in_threadpool(handler, call)
        except HubError as error:
            return _refused(error)
        except Exception:
            log.exception("%s %s", scope["method"], ROOT)
            return HttpAnswer.error(500, 500, "HTTP 500 Internal Server Error")


def _allow(call: HttpCall, pattern: str) -> None:
    """Check access to a path. Raises Forbidden, Unauthenticated; RequestRefused for an invalid subject."""
    if CALLER.get() is None:
        return
    action, on = RULES[pattern][call.method]
    if on is On.subject:
        require(action, place_of(checked_subject(call.params[1])))
    elif on is On.hub:
        require(action, HUB)


def _refused(error: HubError) -> HttpAnswer:
    """Return Confluent's answer for an error."""
    if isinstance(error, RequestRefused):
        return HttpAnswer.error(error.status, error.error_code, error.message)
    if isinstance(error, Forbidden | Unauthenticated):
        return denied(error)
    if isinstance(error, PeerError):
        return HttpAnswer.error(500, 50001, f"Error in the backend data store: {error.message}")
    log.error("%s: %s", ROOT, error.message)
    return HttpAnswer.error(500, 500, error.message)
