"""[edge] FastAPI: sign-in by password and by the identity provider, sign-out,
and the page of tokens and sessions."""

from __future__ import annotations

import time
from functools import partial
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError

from hub.access import personal_token_routes, session_routes
from hub.access.authenticate import COOKIE, SESSION_S
from hub.access.live_config import AccessRules
from hub.access.oidc import login
from hub.access.personal_token_routes import NewToken, make, revoke, visible
from hub.access.personal_tokens import grant_of, shown_grants
from hub.access.secrets import ends_at_s, name_in_session
from hub.access.session_routes import end_session, visible_sessions
from hub.access_log.request import note_subject
from hub.api.guard import AuthenticationContext
from hub.api.masking import explain_routes
from hub.caller import CALLER
from hub.errors import CallerError, HubError
from hub.observability.web.forms import posted
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html
from hub.observability.web.refusals import MOST_NEXT

CALLBACK = "/sign-in/oidc/callback"


def create_router(door: AuthenticationContext) -> APIRouter:
    """Return the routes over one authentication context."""
    router = APIRouter()

    @router.get("/sign-in", include_in_schema=False)
    def page(next: str = "/") -> Response:
        rules = door.access.rules
        if rules is None:
            return RedirectResponse("/", 303)
        return _page(rules, own_path(next))

    @router.post("/sign-in", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        rules = door.access.rules
        if rules is None:
            return RedirectResponse("/", 303)
        form, name = {}, ""
        try:
            form = dict(await posted(request))
            name = form.get("name", "")
            note_subject(name)
            address = request.client.host if request.client else ""
            session = await door.authenticator.signed_in(name, form.get("password", ""), address, rules)
            await run_in_threadpool(_note, door, session, name, "password", address)
        except HubError as error:
            return _page(rules, own_path(form.get("next", "/")), name, error)
        return _with_session(request, session, SESSION_S, own_path(form.get("next", "/")))

    @router.post("/sign-out", include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        await posted(request)
        rules, session = door.access.rules, request.cookies.get(COOKIE)
        if rules is not None and session:
            note_subject(name_in_session(session) or "")
            await run_in_threadpool(door.authenticator.sign_out, session, rules)
        response = RedirectResponse("/sign-in", 303, {"Cache-Control": "no-store"})
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax")
        return response

    _add_login(router, door)
    _add_tokens(router, door)
    router.include_router(personal_token_routes.create_router(door.access, door.tokens))
    router.include_router(session_routes.create_router(door.sessions, door.ended))
    router.include_router(explain_routes.create_router(door.access))
    return router


def _add_login(router: APIRouter, door: AuthenticationContext) -> None:
    """Add the routes of the login by the identity provider."""

    @router.get("/sign-in/oidc", include_in_schema=False)
    async def begin(request: Request, next: str = "/") -> Response:
        rules = door.access.rules
        if rules is None:
            return RedirectResponse("/", 303)
        try:
            address, cookie = await door.authenticator.oidc.begin(
                rules, own_path(next), _redirect_uri(request, rules)
            )
        except HubError as error:
            return _page(rules, own_path(next), error=error)
        response = RedirectResponse(address, 303, {"Cache-Control": "no-store"})
        _set(response, request, login.COOKIE, cookie, login.LOGIN_S, path="/sign-in")
        return response

    @router.get(CALLBACK, include_in_schema=False)
    async def finish(request: Request) -> Response:
        rules = door.access.rules
        if rules is None:
            return RedirectResponse("/", 303)
        cookie, authenticator = request.cookies.get(login.COOKIE, ""), door.authenticator
        try:
            identity, then = await authenticator.oidc.finish(
                rules, request.query_params, cookie, _redirect_uri(request, rules)
            )
            note_subject(identity.name)
            session, lasts_s = authenticator.logged_in(identity, rules)
            address = request.client.host if request.client else ""
            await run_in_threadpool(_note, door, session, identity.name, "oidc", address)
            response = _with_session(request, session, lasts_s, own_path(then))
        except HubError as error:
            response = _page(rules, "/", error=error)
        response.delete_cookie(login.COOKIE, path="/sign-in", httponly=True, samesite="lax")
        return response


def _note(door: AuthenticationContext, session: str, name: str, way: str, address: str) -> None:
    door.sessions.begin(session, name, way, address, time.time(), ends_at_s(session))


def _add_tokens(router: APIRouter, door: AuthenticationContext) -> None:
    """Add the page of tokens that people make."""

    page = partial(_tokens_page, door)

    @router.get("/tokens", include_in_schema=False)
    def tokens() -> Response:
        return page()

    @router.post("/tokens", include_in_schema=False)
    async def create(request: Request) -> Response:
        form = await posted(request)
        try:
            new_token = NewToken.model_validate(
                {
                    "name": form.get("name", ""),
                    "expires_days": form.get("days") or 90,
                    "grants": [grant_of(each) for each in form.get("grants", "").split()],
                }
            )
            _, text = await run_in_threadpool(make, door.access, door.tokens, new_token)
        except ValidationError as error:
            first = error.errors()[0]
            return page(CallerError(f"{first['loc'][0]}: {first['msg']}", code="HUB-1707"))
        except HubError as error:
            return page(error)
        return page(made=text)

    @router.post("/tokens/{id}/revoke", include_in_schema=False)
    async def end(request: Request, id: str) -> Response:
        await posted(request)
        try:
            await run_in_threadpool(revoke, door.tokens, id)
        except HubError as error:
            return page(error)
        return RedirectResponse("/tokens", 303)

    @router.post("/sessions/{id}/end", include_in_schema=False)
    async def end_one(request: Request, id: str) -> Response:
        await posted(request)
        try:
            await run_in_threadpool(end_session, door.sessions, door.ended, id)
        except HubError as error:
            return page(error)
        return RedirectResponse("/tokens", 303)


def _tokens_page(door: AuthenticationContext, error: HubError | None = None, made: str = "") -> Response:
    """Return the page of tokens and sessions, with an error, or with the token ``made``: it is shown once."""
    status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
    tokens = [] if door.access.rules is None else visible(door.tokens)
    caller = CALLER.get()
    may_make = caller is not None and caller.is_person
    sessions = visible_sessions(door.sessions, door.ended)
    rows = [(each, shown_grants(each.grants)) for each in tokens]
    return html(
        "frame/tokens.html",
        status,
        rows=rows,
        error=error,
        made=made,
        may_make=may_make,
        now_s=time.time(),
        sessions=sessions,
    )


def _page(rules: AccessRules, next: str, name: str = "", error: HubError | None = None) -> Response:
    """Return the sign-in page, with the reason why a sign-in failed."""
    status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
    oidc = rules.file.oidc
    by_password = any(user.password for user in rules.file.users.values())
    provider = urlsplit(oidc.issuer).hostname if oidc is not None and oidc.client_id else None
    return html(
        "frame/sign_in.html",
        status,
        next=next,
        name=name[:100],
        error=error,
        provider=provider,
        by_password=by_password or provider is None,
    )


def _with_session(request: Request, session: str, lasts_s: int, then: str) -> Response:
    """Return the answer to a successful sign-in. The session is always new: earlier ones are not reused."""
    response = RedirectResponse(then, 303, {"Cache-Control": "no-store"})
    _set(response, request, COOKIE, session, lasts_s)
    return response


def _set(response: Response, request: Request, name: str, value: str, age_s: int, path: str = "/") -> None:
    secure = request.url.scheme == "https"
    response.set_cookie(name, value, max_age=age_s, path=path, httponly=True, samesite="lax", secure=secure)


def _redirect_uri(request: Request, rules: AccessRules) -> str:
    """Return the address that the provider leads back to; it accepts only registered ones."""
    public = rules.file.oidc.public_url if rules.file.oidc is not None else None
    return (public or str(request.base_url)).rstrip("/") + CALLBACK


def own_path(text: str) -> str:
    r"""Return the address if it is one of this server; else the front page.

    >>> own_path("/topics?q=a"), own_path("//evil.example")
    ('/topics?q=a', '/')
    >>> own_path("/\\evil.example"), own_path("https://evil.example")
    ('/', '/')
    """
    harmless = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    leads = harmless and len(text) <= MOST_NEXT and not text.startswith(("/sign-in", "/sign-out", "/ui/"))
    return text if leads else "/"
