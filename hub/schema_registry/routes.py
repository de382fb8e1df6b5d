"""[edge] FastAPI: Confluent's REST API, for Avro. Paths, status codes, error codes and bodies as its clients expect them.

Source: Confluent Schema Registry API reference 8.x; errors are exactly ``{"error_code", "message"}``, because older
Java clients fail on any other field. Answers to writes carry ``Hub-Position``, their place in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from hub.errors import PeerError
from hub.schema_registry.facts import SCHEMAS_TOPIC, Reference, SchemaStored
from hub.schema_registry.node import Node
from hub.schema_registry.registry import (
    DeleteSubject,
    DeleteVersion,
    Refused,
    RegisterSchema,
    Registry,
    SetLevel,
    SetMode,
    schema_not_found,
    subject_not_found,
)

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPTED = (
    MEDIA_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
    "application/octet-stream",
)


class ReferenceBody(BaseModel):
    name: str
    subject: str
    version: int


class SchemaBody(BaseModel):
    """A schema as clients send it. Newer clients send more: what is not known is ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    text: str = Field(alias="schema")
    schema_type: str | None = Field(None, alias="schemaType")
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = Field(None, alias="ruleSet")

    def command(self, subject: str) -> RegisterSchema:
        return RegisterSchema(
            subject,
            self.text,
            self.schema_type or "AVRO",
            tuple(Reference(each.name, each.subject, each.version) for each in self.references or ()),
            self.metadata,
            self.rule_set,
        )


class LevelBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    compatibility: str


class ModeBody(BaseModel):
    model_config = ConfigDict(extra="ignore")

    mode: str


class _Route(APIRoute):
    """Errors of these routes in Confluent's shape, whatever the app around them does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            content_type = request.headers.get("content-type", MEDIA_TYPE).split(";")[0].strip()
            if request.method in ("POST", "PUT") and content_type not in _ACCEPTED:
                return _error(415, 415, "HTTP 415 Unsupported Media Type")
            try:
                return await handle(request)
            except Refused as refused:
                return _error(refused.status, refused.error_code, refused.message)
            except RequestValidationError as invalid:
                first = invalid.errors()[0]
                return _error(422, 422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
            except PeerError as error:
                return _error(500, 50002, f"Register operation timed out: {error.message}")

        return handled


def _error(status: int, code: int, message: str) -> Response:
    return _json({"error_code": code, "message": message}, status)


def _json(body: Any, status: int = 200, position: int | None = None) -> Response:
    headers = {} if position is None else {"Hub-Position": f"{SCHEMAS_TOPIC}:0:{position}"}
    return Response(orjson.dumps(body), status, headers, MEDIA_TYPE)


def _described(stored: SchemaStored) -> dict[str, Any]:
    body: dict[str, Any] = {"subject": stored.subject, "version": stored.version, "id": stored.schema_id}
    return {**body, **_schema(stored)}


def _schema(stored: SchemaStored) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if stored.schema_type != "AVRO":
        body["schemaType"] = stored.schema_type
    if stored.references:
        body["references"] = [each.as_json() for each in stored.references]
    if stored.metadata is not None:
        body["metadata"] = stored.metadata
    if stored.rule_set is not None:
        body["ruleSet"] = stored.rule_set
    return {**body, "schema": stored.schema}


Flag = Annotated[bool, Query()]
Paging = Annotated[int, Query()]


def create_router(node: Node) -> APIRouter:
    """The routes of one node. They sit at the root of the app, where Confluent's clients look."""
    router = APIRouter(route_class=_Route, tags=["schema registry"])
    _subjects(router, node)
    _schemas(router, node)
    _settings(router, node)
    _compatibility(router, node)
    return router


def _subjects(router: APIRouter, node: Node) -> None:
    @router.get("/subjects")
    def subjects(
        subjectPrefix: str = "",
        deleted: Flag = False,
        deletedOnly: Flag = False,
        offset: Paging = 0,
        limit: Paging = -1,
    ) -> Response:
        prefix = subjectPrefix.removeprefix(":*:")

        def names(registry: Registry) -> list[str]:
            return sorted(
                name
                for name, versions in registry.subjects.items()
                if name.startswith(prefix)
                and (
                    all(each.deleted for each in versions.values())
                    if deletedOnly
                    else deleted or any(not each.deleted for each in versions.values())
                )
            )

        return _json(_page(node.read(names), offset, limit))

    @router.get("/subjects/{subject:path}/versions/{version}/schema")
    def schema_of_version(subject: str, version: str, deleted: Flag = False) -> Response:
        stored = node.read(lambda registry: registry.version(subject, version, deleted=deleted))
        return Response(stored.schema, media_type=MEDIA_TYPE)

    @router.get("/subjects/{subject:path}/versions/{version}/referencedby")
    def referenced_by(subject: str, version: str) -> Response:
        stored = node.read(lambda registry: registry.version(subject, version, deleted=True))
        return _json(node.read(lambda registry: registry.referenced_by(stored.subject, stored.version)))

    @router.get("/subjects/{subject:path}/versions/{version}")
    def version(subject: str, version: str, deleted: Flag = False) -> Response:
        return _json(
            _described(node.read(lambda registry: registry.version(subject, version, deleted=deleted)))
        )

    @router.delete("/subjects/{subject:path}/versions/{version}")
    def delete_version(subject: str, version: str, permanent: Flag = False) -> Response:
        answer, position = node.submit(DeleteVersion(subject, version, permanent))
        return _json(answer, position=position)

    @router.get("/subjects/{subject:path}/versions")
    def versions(
        subject: str, deleted: Flag = False, deletedOnly: Flag = False, offset: Paging = 0, limit: Paging = -1
    ) -> Response:
        def numbers(registry: Registry) -> list[int]:
            every = registry.subjects.get(subject, {})
            found = [
                number
                for number, each in sorted(every.items())
                if (each.deleted if deletedOnly else deleted or not each.deleted)
            ]
            if not found:
                raise subject_not_found(subject)
            return found

        return _json(_page(node.read(numbers), offset, limit))

    @router.post("/subjects/{subject:path}/versions")
    def register(subject: str, body: SchemaBody, normalize: Flag = False) -> Response:
        stored, position = node.submit(body.command(subject))
        return _json(
            {"id": stored.schema_id, "version": stored.version, **_schema(stored)}, position=position
        )

    @router.post("/subjects/{subject:path}")
    def lookup(subject: str, body: SchemaBody, normalize: Flag = False, deleted: Flag = False) -> Response:
        def found(registry: Registry) -> SchemaStored:
            every = registry.subjects.get(subject, {})
            if not every or (not deleted and not registry.live(subject)):
                raise subject_not_found(subject)
            command = body.command(subject)
            _, text = registry.parsed(command.schema, command.schema_type, command.references)
            stored = registry.find(subject, text, command.schema_type, command.references, deleted=deleted)
            if stored is None:
                raise schema_not_found()
            return stored

        return _json(_described(node.read(found)))

    @router.delete("/subjects/{subject:path}")
    def delete_subject(subject: str, permanent: Flag = False) -> Response:
        answer, position = node.submit(DeleteSubject(subject, permanent))
        return _json(answer, position=position)


def _schemas(router: APIRouter, node: Node) -> None:
    def by_id(schema_id: int) -> SchemaStored:
        stored = node.read(lambda registry: registry.ids.get(schema_id))
        if stored is None:
            raise schema_not_found(schema_id)
        return stored

    @router.get("/schemas/types")
    def types() -> Response:
        return _json(["AVRO"])

    @router.get("/schemas/ids/{schema_id}")
    def schema(schema_id: int, fetchMaxId: Flag = False) -> Response:
        body = _schema(by_id(schema_id))
        if fetchMaxId:
            body["maxId"] = node.read(lambda registry: registry.highest_id)
        return _json(body)

    @router.get("/schemas/ids/{schema_id}/schema")
    def schema_text(schema_id: int) -> Response:
        return Response(by_id(schema_id).schema, media_type=MEDIA_TYPE)

    @router.get("/schemas/ids/{schema_id}/subjects")
    def subjects_of(schema_id: int, deleted: Flag = False) -> Response:
        by_id(schema_id)
        uses = node.read(lambda registry: registry.uses_of(schema_id, deleted=deleted))
        return _json(sorted({each.subject for each in uses}))

    @router.get("/schemas/ids/{schema_id}/versions")
    def versions_of(schema_id: int, deleted: Flag = False) -> Response:
        by_id(schema_id)
        uses = node.read(lambda registry: registry.uses_of(schema_id, deleted=deleted))
        return _json([{"subject": each.subject, "version": each.version} for each in uses])

    @router.get("/schemas")
    def schemas(
        subjectPrefix: str = "",
        deleted: Flag = False,
        latestOnly: Flag = False,
        offset: Paging = 0,
        limit: Paging = -1,
    ) -> Response:
        prefix = subjectPrefix.removeprefix(":*:")

        def every(registry: Registry) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for name, versions in sorted(registry.subjects.items()):
                kept = [each for _, each in sorted(versions.items()) if deleted or not each.deleted]
                if name.startswith(prefix):
                    found += [_described(each) for each in (kept[-1:] if latestOnly else kept)]
            return found

        return _json(_page(node.read(every), offset, limit))

    @router.get("/contexts")
    def contexts() -> Response:
        return _json(["."])

    @router.get("/v1/metadata/id")
    def cluster_id() -> Response:
        return _json(
            {
                "id": "",
                "scope": {"path": [], "clusters": {"kafka-cluster": "", "schema-registry-cluster": "hub"}},
            }
        )

    @router.get("/v1/metadata/version")
    def server_version() -> Response:
        return _json({"version": "8.1.0-hub", "commitId": ""})


def _settings(router: APIRouter, node: Node) -> None:
    @router.get("/config")
    def global_level() -> Response:
        return _json({"compatibilityLevel": node.read(lambda registry: registry.level_of(None))})

    @router.put("/config")
    def set_global_level(body: LevelBody) -> Response:
        _, position = node.submit(SetLevel(None, body.compatibility.upper()))
        return _json({"compatibility": body.compatibility.upper()}, position=position)

    @router.delete("/config")
    def unset_global_level() -> Response:
        level = node.read(lambda registry: registry.level_of(None))
        _, position = node.submit(SetLevel(None, None))
        return _json({"compatibilityLevel": level}, position=position)

    @router.get("/config/{subject:path}")
    def level(subject: str, defaultToGlobal: Flag = False) -> Response:
        def effective(registry: Registry) -> str:
            own = registry.levels.get(subject)
            if own is not None and own.level is not None:
                return own.level
            if defaultToGlobal:
                return registry.level_of(None)
            raise Refused(
                404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
            )

        return _json({"compatibilityLevel": node.read(effective)})

    @router.put("/config/{subject:path}")
    def set_level(subject: str, body: LevelBody) -> Response:
        _, position = node.submit(SetLevel(subject, body.compatibility.upper()))
        return _json({"compatibility": body.compatibility.upper()}, position=position)

    @router.delete("/config/{subject:path}")
    def unset_level(subject: str) -> Response:
        was = node.read(lambda registry: registry.level_of(subject))
        _, position = node.submit(SetLevel(subject, None))
        return _json({"compatibilityLevel": was}, position=position)

    @router.get("/mode")
    def global_mode() -> Response:
        return _json({"mode": node.read(lambda registry: registry.mode_of(None))})

    @router.put("/mode")
    def set_global_mode(body: ModeBody) -> Response:
        _, position = node.submit(SetMode(None, body.mode.upper()))
        return _json({"mode": body.mode.upper()}, position=position)

    @router.get("/mode/{subject:path}")
    def mode(subject: str, defaultToGlobal: Flag = False) -> Response:
        def effective(registry: Registry) -> str:
            if subject not in registry.modes and not defaultToGlobal:
                raise Refused(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")
            return registry.mode_of(subject)

        return _json({"mode": node.read(effective)})

    @router.put("/mode/{subject:path}")
    def set_mode(subject: str, body: ModeBody) -> Response:
        _, position = node.submit(SetMode(subject, body.mode.upper()))
        return _json({"mode": body.mode.upper()}, position=position)

    @router.delete("/mode/{subject:path}")
    def unset_mode(subject: str) -> Response:
        was = node.read(lambda registry: registry.mode_of(subject))
        _, position = node.submit(SetMode(subject, None))
        return _json({"mode": was}, position=position)


def _compatibility(router: APIRouter, node: Node) -> None:
    def verdict(subject: str, body: SchemaBody, version: str | None, verbose: bool) -> Response:
        reasons = node.read(
            lambda registry: registry.incompatibilities(subject, body.command(subject), version)
        )
        answer: dict[str, Any] = {"is_compatible": not reasons}
        if verbose:
            answer["messages"] = [str(reason) for reason in reasons]
        return _json(answer)

    @router.post("/compatibility/subjects/{subject:path}/versions/{version}")
    def against_one(
        subject: str, version: str, body: SchemaBody, verbose: Flag = False, normalize: Flag = False
    ) -> Response:
        return verdict(subject, body, version, verbose)

    @router.post("/compatibility/subjects/{subject:path}/versions")
    def against_all(
        subject: str, body: SchemaBody, verbose: Flag = False, normalize: Flag = False
    ) -> Response:
        return verdict(subject, body, None, verbose)


def _page(items: list[Any], offset: int, limit: int) -> list[Any]:
    return items[max(0, offset) :][: limit if limit >= 0 else None]
