"""[edge] Answers to requests that the guard refuses, each in the format that its caller expects."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi.responses import JSONResponse, RedirectResponse, Response

from hub.access.authenticate import AuthenticatedCaller
from hub.access.live_config import AccessRules
from hub.caller import CALLER, TooMany
from hub.errors import HubError
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html, takes_html

# Longest address that the sign-in page leads back to, in characters. Other addresses may be longer.
MOST_NEXT = 4_000
# Routes whose clients expect numeric error codes.
_CONFLUENT = ("/subjects", "/schemas", "/config", "/mode", "/contexts", "/compatibility", "/v1/", "/v3/")


def refusal(
    error: HubError,
    scope: MutableMapping[str, Any],
    headers: Mapping[str, Sequence[str]],
    authenticated_caller: AuthenticatedCaller,
    rules: AccessRules | None,
) -> Response:
    """Return the response in the format that the caller expects: the sign-in page, a page, a part of one,
    or JSON."""
    status = status_of(error)
    path, query = scope["path"], scope.get("query_string", b"").decode("latin-1")
    more = {"Retry-After": error.details["retry_after"]} if isinstance(error, TooMany) else {}
    by_browser = "sec-fetch-mode" in headers
    if status == 401:
        # With Basic a browser would show its own password dialog, and never forget the password.
        more["WWW-Authenticate"] = (
            'Bearer realm="hub"' if by_browser else 'Basic realm="hub", charset="UTF-8"'
        )
    if scope["type"] == "http":
        if "hx-request" in headers:
            if status == 401:
                leads = sign_in(*shown_by(headers.get("hx-current-url", ["/"])[0]))
                return Response(status_code=401, headers={"HX-Redirect": leads})
            return html("frame/trouble.html", error=error)
        wants_page = any(map(takes_html, headers.get("accept", ())))
        if wants_page and scope["method"] == "GET":
            if status == 401 and "authorization" not in headers:
                return RedirectResponse(sign_in(path, query), 303, {"Cache-Control": "no-store"})
            return page_of(error, status, authenticated_caller, rules, more)
        if wants_page and by_browser:  # a form
            return page_of(error, status, authenticated_caller, rules, more)
    body: dict[str, Any] = {
        "error_code": error.code,
        "message": error.message,
        "hint": error.hint,
        **error.details,
    }
    if path.startswith(_CONFLUENT):
        hint = f": {error.hint}" if error.hint else ""
        body = {
            "error_code": status * 100 + 1 if status in (401, 403) else status,
            "message": f"{error.message}{hint}",
        }
    return JSONResponse(body, status, more)


def page_of(
    error: HubError,
    status: int,
    authenticated_caller: AuthenticatedCaller,
    rules: AccessRules | None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    asks = None if rules is None else rules.caller(authenticated_caller.who, way=authenticated_caller.way)
    before = CALLER.set(asks)
    try:
        response = html("frame/refused.html", status, error=error, status=status)
    finally:
        CALLER.reset(before)
    response.headers.update(headers or {})
    return response


def shown_by(address: str) -> tuple[str, str]:
    """Return path and query of the page that a browser reports as its current one; the front page if it is
    malformed.

    >>> shown_by("http://hub/topics?q=a"), shown_by("http://[")
    (('/topics', 'q=a'), ('/', ''))
    """
    try:
        parts = urlsplit(address)
    except ValueError:
        return "/", ""
    return parts.path, parts.query


def sign_in(path: str, query: str) -> str:
    """Return the address of the sign-in page that leads back; without the query if the address would be
    too long.

    >>> sign_in("/topics", "q=a")
    '/sign-in?next=%2Ftopics%3Fq%3Da'
    """
    here = path + (f"?{query}" if query else "")
    return f"/sign-in?next={quote(here if len(here) <= MOST_NEXT else path, safe='')}"
