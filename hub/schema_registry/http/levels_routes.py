"""[edge] FastAPI: the compatibility level of every subject in one answer, which Confluent's API lacks."""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Response

from hub.caller import sees_subject
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server.node import RegistryNode


def create_router(node: RegistryNode) -> APIRouter:
    """Return the route for a registry node."""
    router = APIRouter(tags=["schema registry"])

    @router.get("/api/levels")
    def levels() -> Response:
        """The effective compatibility level of each subject that has a version."""

        def read_levels(registry: Registry) -> dict[str, str]:
            return {
                each: registry.level_of(each)
                for each in sorted(registry.subjects)
                if registry.numbers(each) and sees_subject(each)
            }

        return Response(orjson.dumps({"levels": node.read(read_levels)}), media_type="application/json")

    return router
