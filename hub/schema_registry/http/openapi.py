"""[edge] The registry's routes as OpenAPI 3.1, from ``openapi.yaml`` in this folder.

The routes are served without a framework that could derive a description, so the file is written by hand.
Tests compare it with the table of routes and with the code's enums, and run it against the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import orjson

from hub.yaml import load_resource

TAG: Final = "schema registry"

Json = dict[str, Any]


def registry_document() -> Json:
    """Return the content of the file, with what its aliases stand for."""
    found: Json = orjson.loads(_loaded())
    return found


@cache
def _loaded() -> bytes:
    content = load_resource("hub.schema_registry.http", "openapi.yaml")
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS)


def with_registry(document: Mapping[str, Any]) -> Json:
    """Return a copy of an OpenAPI document (the app's) with the registry's paths and schemas added."""
    ours = registry_document()
    paths: Json = dict(document.get("paths", {}))
    for path, methods in ours["paths"].items():
        paths[path] = {**paths.get(path, {}), **methods}
    components: Json = dict(document.get("components", {}))
    components["schemas"] = {**components.get("schemas", {}), **ours["components"]["schemas"]}
    tags = [each for each in document.get("tags", []) if each["name"] != TAG]
    return {**document, "paths": paths, "components": components, "tags": [*tags, *ours["tags"]]}
