"""The routes of the server, as OpenAPI describes them.
Nothing is opened: the routers get stand-ins for their parts."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import MagicMock

from fastapi import FastAPI

from hub.api.api_docs import ApiOperation, grouped
from hub.schema_registry.http.openapi import registry_document, with_registry

from .text import noted_table, prose, sentence, table

_INTRO = """# HTTP API

The server listens on one port (`http_port`, 8088). `/openapi.json` is the same description for programs, `/docs` the same page
live. Errors have the body `{"error_code": "HUB-1410", "message": "…", "hint": "…"}`: [error catalog](errors.md). A caller
needs the grants of [access](access.md). A write answers with its position in `Hub-Position`; a read that carries it waits for it.
"""  # noqa: E501
ROUTERS = (
    "hub.topics.browse.routes",
    "hub.topics.gateway.routes",
    "hub.topics.conformance.routes",
    "hub.topics.dead_letters.routes",
    "hub.completeness.routes",
    "hub.completeness.canary.routes",
    "hub.materializers.serving.routes",
    "hub.materializers.versions.routes",
    "hub.materializers.queries.http.routes",
    "hub.observability.export.routes",
    "hub.observability.latency.routes",
    "hub.alerts.routes",
    "hub.api.sign_in",
)


def document() -> dict[str, Any]:
    """Return the OpenAPI document of all routers."""
    app = FastAPI(title="Event hub", version="1")
    for name in ROUTERS:
        make = importlib.import_module(name).create_router
        needed = [
            each
            for each in inspect.signature(make).parameters.values()
            if each.default is inspect.Parameter.empty
        ]
        app.include_router(make(**{each.name: MagicMock() for each in needed}))
    return with_registry(app.openapi())


def page() -> str:
    """Return the page."""
    lines = [_INTRO]
    for tag, operations in grouped(document()).items():
        lines += [f"## {tag[:1].upper()}{tag[1:]}", ""]
        for each in operations:
            lines += _operation(each)
    codes: Mapping[str, str] = registry_document()["x-errors"]
    rows = [(code, sentence(text)) for code, text in codes.items()]
    lines += ["## Error codes of the schema registry", "", *table(("error_code", "meaning"), rows)]
    return "\n".join(lines)


def _operation(each: ApiOperation) -> Iterator[str]:
    yield from (f"### {each.method} `{each.path}`", "")
    text = sentence(f"{each.summary} {each.description}".strip())
    if text:
        yield from (prose(text).replace("|", "\\|"), "")
    rows = [
        (f"`{name}`", place, kind, "required" if required else "", prose(sentence(text)))
        for name, place, kind, required, text in each.parameters
    ]
    yield from noted_table(("parameter", "in", "type", "", "meaning"), rows)
