"""[edge] FastAPI: sign-in page, sign-in and sign-out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from hub.access.authenticate import COOKIE, SESSION_S
from hub.api.guard import AuthenticationContext
from hub.errors import CallerError, HubError
from hub.observability.web.forms import posted
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html
from hub.observability.web.refusals import MOST_NEXT


def create_router(door: AuthenticationContext) -> APIRouter:
    """Return the routes over one authentication context."""
    router = APIRouter()

    @router.get("/sign-in", include_in_schema=False)
    def page(next: str = "/") -> Response:
        if door.access.rules is None:
            return RedirectResponse("/", 303)
        return html("frame/sign_in.html", next=own_path(next), name="", error=None)

    @router.post("/sign-in", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        rules = door.access.rules
        if rules is None:
            return RedirectResponse("/", 303)
        said, name, status = {}, "", 400
        try:
            said = dict(await posted(request))
            name = said.get("name", "")
            address = request.client.host if request.client else ""
            session = await door.authenticator.signed_in(name, said.get("password", ""), address, rules)
        except HubError as error:
            status = 400 if type(error) is CallerError else status_of(error)
            return html(
                "frame/sign_in.html",
                status,
                next=own_path(said.get("next", "/")),
                name=name[:100],
                error=error,
            )
        secure = request.url.scheme == "https"
        response = RedirectResponse(own_path(said.get("next", "/")), 303, {"Cache-Control": "no-store"})
        response.set_cookie(
            COOKIE, session, max_age=SESSION_S, path="/", httponly=True, samesite="lax", secure=secure
        )
        return response

    @router.post("/sign-out", include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        await posted(request)
        rules, session = door.access.rules, request.cookies.get(COOKIE)
        if rules is not None and session:
            await run_in_threadpool(door.authenticator.sign_out, session, rules)
        response = RedirectResponse("/sign-in", 303, {"Cache-Control": "no-store"})
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax")
        return response

    return router


def own_path(text: str) -> str:
    r"""Return the address if it is one of this server; else the front page.

    >>> own_path("/topics?q=a"), own_path("//evil.example"), own_path("/\\evil.example"), own_path("https://evil.example")
    ('/topics?q=a', '/', '/', '/')
    """
    harmless = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    leads = harmless and len(text) <= MOST_NEXT and not text.startswith(("/sign-in", "/sign-out", "/ui/"))
    return text if leads else "/"
