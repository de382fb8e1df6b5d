"""[edge] Register pages: a function that returns the facts of a page becomes two routes, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from dataclasses import asdict, dataclass
from functools import wraps
from typing import Annotated, Any
from urllib.parse import quote

import anyio.to_thread
import orjson
from fastapi import APIRouter, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from hub.errors import CallerError, HubError
from hub.observability.web.forms import PostedForm, posted
from hub.observability.web.http_status import status_of
from hub.observability.web.layout import breadcrumbs
from hub.observability.web.page import html, takes_html
from hub.observability.web.pages.estate import PageSources

Facts = Callable[..., Any]
# Values that only the template needs.
TemplateValues = Callable[[Request, Any], Mapping[str, Any]]
Text = Annotated[str, Query(max_length=500)]
# Registry addresses that look like a subject's page.
_PROGRAMS = ("/schemas/ids/", "/schemas/guids/", "/schemas/types")


class ForBrowsers(APIRoute):
    """Route that matches only requests that accept HTML, so that programs reach the API route at the same
    address."""

    def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, Any]:
        if scope["type"] != "http" or not wants_html(scope) or scope["path"].startswith(_PROGRAMS):
            return Match.NONE, {}
        return super().matches(scope)


def wants_html(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request accepts HTML, as browsers do."""
    return any(name == b"accept" and takes_html(value.decode("latin-1")) for name, value in scope["headers"])


@dataclass(frozen=True)
class Frame:
    """Renderer of pages with their frame: health, navigation, own address and address of the JSON."""

    sources: PageSources

    def shown(self, template: str, request: Request, status: int = 200, /, **values: Any) -> Response:
        """Return a page."""
        overview = self.sources.topics.overview()
        path = request.url.path
        query = f"?{request.url.query}" if request.url.query else ""
        common = {
            "overview": overview,
            "now_ms": overview.at_ms,
            "path": path,
            "params": request.query_params,
            "has_charts": self.sources.series is not None,
            "here": f"{quote(path)}{query}",
            "json_url": f"/api{quote(path)}{query}",
            "found_by": request.query_params.get("q", "") if path == "/search" else "",
        }
        values = {**common, **values}
        place = request.query_params.get("under") or request.query_params.get("of") or ""
        return html(template, status, crumbs=breadcrumbs(values["section"], path, place), **values)

    def failed(self, request: Request, error: HubError, section: str) -> Response:
        """Return an error as a page, or as a part of one, with status 200 since htmx shows no other."""
        if request.url.path.startswith("/ui/"):
            return html("frame/trouble.html", error=error)
        status = status_of(error)
        return self.shown("frame/error.html", request, status, error=error, status=status, section=section)


class PageRouter:
    """Router of one section of the navigation ("": of none)."""

    def __init__(self, sources: PageSources, section: str) -> None:
        self.sources, self.section = sources, section
        self.routes = APIRouter()
        self.frame = Frame(sources)
        self._route_class = _pages_with_errors(self.frame, section)

    def page(
        self,
        path: str,
        template: str,
        *,
        has_json: bool = True,
        for_programs: bool = False,
        more: TemplateValues = lambda _request, _facts: {},
    ) -> Callable[[Facts], Facts]:
        """Register two routes for a function that returns facts: the page, and its JSON below ``/api``.

        ``has_json`` False: another route serves the JSON. ``for_programs``: serve JSON at the page's own
        address too. ``more``: values that only the template needs.
        """

        def register(facts: Facts) -> Facts:
            @wraps(facts)
            def as_html(request: Request, **given: Any) -> Response:
                found = facts(request, **given)
                values = {"facts": found, "section": self.section, **more(request, found)}
                return self.frame.shown(template, request, **values)

            @wraps(facts)
            def as_json(request: Request, **given: Any) -> Response:
                return json_of(facts(request, **given))

            add = self.routes.add_api_route
            add(
                path,
                as_html,
                route_class_override=self._route_class,
                include_in_schema=False,
                response_model=None,
            )
            if has_json:
                add(f"/api{path}", as_json, tags=["pages"], response_model=None)
            if for_programs:
                add(path, as_json, include_in_schema=False, response_model=None)
            return facts

        return register

    def failed(self, request: Request, error: HubError) -> Response:
        """Return an error as a page, or as a part of one."""
        return self.frame.failed(request, error, self.section)

    async def carried_out(self, request: Request, act: Callable[[PostedForm], object], page: str) -> Response:
        """Carry out what a form asks for, in a thread, and lead to a page; an error is a page."""
        try:
            values = await posted(request)
            await anyio.to_thread.run_sync(act, values)
        except HubError as error:
            return self.failed(request, error)
        return Response(status_code=303, headers={"Location": page})


def _pages_with_errors(frame: Frame, section: str) -> type[APIRoute]:
    """Return the route class of a section: errors of its pages are pages."""

    class Route(ForBrowsers):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handled(request: Request) -> Response:
                try:
                    return await handle(request)
                except HubError as error:
                    return frame.failed(request, error, section)
                except RequestValidationError as error:
                    first = error.errors()[0]
                    wrong = CallerError(f"{first['loc'][-1]}: {first['msg']}")
                    return frame.failed(request, wrong, section)

            return handled

    return Route


def json_of(facts: Any) -> Response:
    """Return the facts as JSON. Strings that are not valid Unicode (lone surrogates in a schema) are
    escaped."""
    try:
        body = orjson.dumps(facts, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        body = json.dumps(facts, default=lambda each: asdict(each)).encode()
    return Response(body, media_type="application/json")


def split_values(values: list[str] | None) -> tuple[str, ...]:
    """Return the values of a parameter that may be repeated, separated by commas, or both.

    >>> split_values(["OK,LOST", "BEHIND"]), split_values(None)
    (('OK', 'LOST', 'BEHIND'), ())
    """
    return tuple(each for text in values or () for each in text.split(",") if each)
