"""[edge] ASGI: Confluent's REST API, with the paths, status codes, error codes and bodies that clients
expect.

Source: Confluent Schema Registry API reference 8.x, and observed answers. Every path also exists below
``/contexts/{ctx}``. Answers to writes have ``Hub-Offset``, their offset in the log, and ``Hub-Position``, the
token to read one's own write with; a registration's ``Hub-Warnings`` lists violated rules that only warn.
Answers by id and by version are cached as bytes; consumers request nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.routing import Route

from hub.caller import CALLER, HUB, Forbidden, Unauthenticated, require
from hub.errors import CallerError, HubError, PeerError
from hub.schema_registry.formats import known
from hub.schema_registry.http.access_rules import RULES, On, place_of
from hub.schema_registry.http.answers import Answers
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
from hub.schema_registry.http.calls import in_context, schema_id_of
from hub.schema_registry.http.path_table import Methods, PathTable, denied, not_allowed
from hub.schema_registry.http.schema_routes import SchemaRoutes
from hub.schema_registry.http.settings_routes import SettingsRoutes
from hub.schema_registry.http.subject_routes import SubjectRoutes
from hub.schema_registry.registry.state_machine import RequestRefused
from hub.schema_registry.server.node import RegistryNode

log = logging.getLogger(__name__)

SERVER_VERSION: Final = "8.1.0-hub"


def create_router(node: RegistryNode) -> APIRouter:
    """Return the routes of one node, at the root of the app, where Confluent's clients expect them."""
    api = Api(node)
    router = APIRouter()
    for path in ("/subjects", "/schemas", "/config", "/mode", "/contexts"):
        router.routes.append(Route(path, api, include_in_schema=False))
    for path in ("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/metadata"):
        router.routes.append(Route(f"{path}/{{rest:anything}}", api, include_in_schema=False))
    return router


class Api:
    """The ASGI app. Answers from memory directly, everything else in a thread."""

    def __init__(self, node: RegistryNode) -> None:
        self.node = node
        self._answers = Answers(node)
        self._subjects = SubjectRoutes(self._answers)
        self._schemas = SchemaRoutes(self._answers)
        self._settings = SettingsRoutes(self._answers)
        self.paths = PathTable(self._table())

    def _table(self) -> Iterator[tuple[str, Methods]]:
        """Yield (path with variable parts empty, handlers by method). The first match is used.

        ``openapi.yaml`` describes each.
        """
        subjects, schemas, settings = self._subjects, self._schemas, self._settings
        yield "subjects", {"GET": subjects.subjects}
        yield "subjects//versions", {"GET": subjects.versions, "POST": subjects.register}
        yield "subjects//metadata", {"GET": subjects.version_with_metadata}
        yield "subjects/", {"POST": subjects.lookup, "DELETE": subjects.delete_subject}
        yield "subjects//versions/", {"GET": subjects.version, "DELETE": subjects.delete_version}
        yield "subjects//versions//schema", {"GET": subjects.schema_of_version}
        yield "subjects//versions//referencedby", {"GET": subjects.referenced_by}
        yield "subjects//versions//tags", {"POST": subjects.tag}
        yield "schemas", {"GET": schemas.schemas}
        yield "schemas/types", {"GET": lambda _: HttpAnswer.of(known.types())}
        yield "schemas/ids/", {"GET": schemas.schema_of_id}
        yield "schemas/ids//schema", {"GET": schemas.text_of_id}
        yield "schemas/ids//subjects", {"GET": schemas.subjects_of_id}
        yield "schemas/ids//versions", {"GET": schemas.versions_of_id}
        yield "schemas/guids/", {"GET": schemas.schema_of_guid}
        yield "schemas/guids//ids", {"GET": schemas.ids_of_guid}
        for path in ("config", "config/"):
            yield (
                path,
                {"GET": settings.settings, "PUT": settings.set_settings, "DELETE": settings.unset_settings},
            )
        for path in ("mode", "mode/"):
            yield path, {"GET": settings.mode, "PUT": settings.set_mode, "DELETE": settings.unset_mode}
        yield "compatibility/subjects//versions", {"POST": subjects.compatible}
        yield "compatibility/subjects//versions/", {"POST": subjects.compatible}
        yield "contexts", {"GET": settings.contexts}
        yield "contexts/", {"DELETE": settings.delete_context}
        yield "v1/metadata/id", {"GET": settings.cluster_id}
        yield (
            "v1/metadata/version",
            {"GET": lambda _: HttpAnswer.of({"version": SERVER_VERSION, "commitId": ""})},
        )
        yield "v1/metadata/deployment", {"GET": lambda _: HttpAnswer.of({"attributes": []})}

    # ---- from a request to an answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Name of the route in traces: its first segment. The whole path would give one name per subject.
        scope["hub.route"] = f"/{scope['path'].split('/', 2)[1]}/…"
        try:
            answer = self._at_hand(scope) or await self._answer(scope, receive)
        except ClientGone:
            return
        await respond(scope, send, answer)

    def _at_hand(self, scope: Scope) -> HttpAnswer | None:
        """Return the answer to a consumer's request if it needs no waiting; otherwise None."""
        if scope["method"] != "GET" or scope["query_string"] or not self.node.ready:
            return None
        try:
            call = HttpCall.of(scope)
            match call.segments:
                case ["schemas", "ids", schema_id]:
                    return self._answers.by_id(call, schema_id_of(schema_id), None)
                case ["subjects", subject, "versions", version]:
                    call.params = [subject, version]
                    self._allow(call, "subjects//versions/")
                    return self._subjects.version(call)
        except RequestRefused as refused:
            if refused.is_missing:  # another node may know it, which requires waiting
                return None
            return HttpAnswer.error(refused.status, refused.error_code, refused.message)
        except (Forbidden, Unauthenticated) as error:
            return denied(error)
        return None

    async def _answer(self, scope: Scope, receive: Receive) -> HttpAnswer:
        writes = scope["method"] in ("POST", "PUT", "DELETE")
        try:
            call = HttpCall.of(scope)
            in_context(call)
            found = self.paths.find(call)
            if found is None:
                return NOT_FOUND
            pattern, methods = found
            handler = methods.get(call.method)
            if handler is None:
                return not_allowed(methods)
            self._allow(call, pattern)
            if call.method in ("POST", "PUT"):
                if not media_type_is_known(call):
                    return UNSUPPORTED
                await read_body(call, receive)
            reads = call.method == "GET" or handler in (self._subjects.lookup, self._subjects.compatible)
            if reads:
                return await run_in_threadpool(self.node.caught_up, partial(handler, call))
            return await run_in_threadpool(handler, call)
        except RequestRefused as refused:
            return HttpAnswer.error(refused.status, refused.error_code, refused.message)
        except (Forbidden, Unauthenticated) as error:
            return denied(error)
        except PeerError as error:
            if writes:
                return HttpAnswer.error(500, 50002, f"Register operation timed out: {error.message}")
            return HttpAnswer.error(500, 50001, f"Error in the backend data store: {error.message}")
        except CallerError as error:  # Kafka refused a record that exceeds the topic's limit
            return HttpAnswer.error(422, 42209, f"Write failed: {error.message}")
        except HubError as error:
            log.error("%s %s: %s", scope["method"], scope["path"], error.message)
            return HttpAnswer.error(500, 500, error.message)
        except Exception:
            log.exception("%s %s", scope["method"], scope["path"])
            return HttpAnswer.error(500, 500, "HTTP 500 Internal Server Error")

    def _allow(self, call: HttpCall, pattern: str) -> None:
        """Check access to a path. Raises Forbidden, Unauthenticated.

        For the schema of an id, its handler checks access.
        """
        if CALLER.get() is None:
            return
        rule = RULES.get(pattern, {}).get(call.method)
        if rule is None:
            raise Forbidden("nobody has access to this path")
        action, on = rule
        if on is On.subject:
            # Check both names: an alias requires a grant itself, and does not bypass its subject's grants.
            require(action, place_of(call.params[0]))
            require(action, place_of(self._answers.subject(call)))
        elif on is On.place:
            require(action, place_of(call.params[0]))
        elif on is On.hub:
            require(action, HUB)
