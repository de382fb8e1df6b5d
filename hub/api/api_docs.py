"""[edge] ``/docs``: the server's OpenAPI document as a page that loads nothing from other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from hub.observability.web.page import html

_METHODS = ("get", "post", "put", "delete", "patch")
_OTHERS = "server"


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One method of one path. ``parameters``: (name, location, type, required, doc); ``answers``: (status,
    doc)."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str, str, bool, str], ...]
    example: str
    answers: tuple[tuple[str, str], ...]


def add_docs(app: FastAPI) -> None:
    """Add the page ``/docs``. ``/openapi.json`` is FastAPI's own."""

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        document = app.openapi()
        abouts = {each["name"]: each.get("description", "") for each in document.get("tags", ())}
        groups = [(tag, abouts.get(tag, ""), found) for tag, found in grouped(document).items()]
        return html("frame/docs.html", section="api", title=document["info"]["title"], groups=groups)


def grouped(document: Mapping[str, Any]) -> dict[str, list[ApiOperation]]:
    """Group operations by their first tag, in the document's order."""
    groups: dict[str, list[ApiOperation]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or [_OTHERS])[0]
                groups.setdefault(tag, []).append(_operation(document, method, path, methods))
    return groups


def _operation(document: Mapping[str, Any], method: str, path: str, item: Mapping[str, Any]) -> ApiOperation:
    operation = item[method]
    parameters = [
        _followed(document, each) for each in (*item.get("parameters", ()), *operation.get("parameters", ()))
    ]
    summary, description = operation.get("summary", ""), operation.get("description", "")
    if description and operation.get("operationId", "").startswith(summary.lower().replace(" ", "_")):
        # FastAPI's default summary is the function's name.
        summary, _, description = description.partition("\n")
    return ApiOperation(
        method.upper(),
        path,
        summary,
        description.strip(),
        tuple(
            (
                each["name"],
                each["in"],
                " or ".join(_types(document, each.get("schema", {}))),
                each.get("required", False),
                each.get("description", ""),
            )
            for each in parameters
        ),
        _example(document, operation.get("requestBody", {})),
        tuple(
            (status, _followed(document, answer).get("description", ""))
            for status, answer in sorted(operation.get("responses", {}).items())
        ),
    )


def _types(document: Mapping[str, Any], schema: Any) -> Iterator[str]:
    schema = _followed(document, schema)
    if not isinstance(schema, Mapping):
        return
    for each in schema.get("anyOf", ()):
        yield from _types(document, each)
    if "enum" in schema:
        yield ", ".join(map(str, schema["enum"][:12]))
    elif "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        yield from (str(each) for each in kinds if each != "null")


def _example(document: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    """Return the first example of a request body, as text."""
    for media in _followed(document, body).get("content", {}).values():
        examples = [each["value"] for each in media.get("examples", {}).values() if "value" in each]
        for each in (
            media.get("example"),
            *examples,
            _followed(document, media.get("schema", {})).get("example"),
        ):
            if each is not None:
                return json.dumps(each, indent=2, ensure_ascii=False)
    return ""


def _followed(document: Mapping[str, Any], part: Any) -> Any:
    """Return the target of a ``$ref`` of this document; without one, the part itself."""
    for _ in range(10):
        if not isinstance(part, Mapping) or not str(part.get("$ref", "")).startswith("#/"):
            break
        target: Any = document
        for step in part["$ref"][2:].split("/"):
            target = target[step.replace("~1", "/").replace("~0", "~")]
        part = target
    return part
