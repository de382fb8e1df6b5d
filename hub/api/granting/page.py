"""[edge] FastAPI: the page of requests for access: those that wait for the caller, theirs, and the form."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from hub.access_requests.asking import AccessRequests, AskedAccess
from hub.access_requests.model import WAITING
from hub.caller import CALLER
from hub.errors import CallerError, HubError
from hub.observability.web.forms import PostedForm, posted
from hub.observability.web.http_status import status_of
from hub.observability.web.page import html

PATH = "/access-requests"
_FIELDS = ("partitions", "retention", "owner", "config")


def create_router(requests: AccessRequests) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter()

    @router.get(PATH, include_in_schema=False)
    def page(what: str = "read", object: str = "", done: str = "") -> Response:
        return _page(requests, {"what": what[:20], "object": object[:300]}, done=done[:40])

    @router.post(PATH, include_in_schema=False)
    async def make(request: Request) -> Response:
        return await _acted(requests, request, "requested", lambda form: requests.make(request_of(form)))

    @router.post(f"{PATH}/{{id}}/approve", include_in_schema=False)
    async def approve(request: Request, id: str) -> Response:
        return await _acted(
            requests, request, "approved", lambda form: requests.approve(id, form.get("reason", ""), "")
        )

    @router.post(f"{PATH}/{{id}}/refuse", include_in_schema=False)
    async def refuse(request: Request, id: str) -> Response:
        return await _acted(
            requests, request, "refused", lambda form: requests.refuse(id, form.get("reason", ""), "")
        )

    @router.post(f"{PATH}/{{id}}/withdraw", include_in_schema=False)
    async def withdraw(request: Request, id: str) -> Response:
        return await _acted(requests, request, "withdrawn", lambda _form: requests.withdraw(id, ""))

    return router


def request_of(form: PostedForm) -> AskedAccess:
    """Return the request of a form. Raises CallerError.

    >>> request_of({"what": "read", "object": "view:customers", "reason": "a report", "days": "3"}).view
    'customers'
    """
    what, name = form.get("what", ""), form.get("object", "").strip()
    kind, _, grantee = form.get("grantee", "").strip().rpartition(":")
    body: dict[str, Any] = {
        "role": None if what == "topic" else what,
        "view" if name.startswith("view:") else "topic": name.removeprefix("view:"),
        "reason": form.get("reason", ""),
        "days": form.get("days") or None,
        **{each: form.get(each, "") for each in _FIELDS},
    }
    if grantee:
        body |= {"grantee_kind": kind or "user", "grantee": grantee}
    try:
        return AskedAccess.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{step}: " for step in first["loc"])
        raise CallerError(f"{place}{first['msg'].removeprefix('Value error, ')}", code="HUB-1850") from None


async def _acted(requests: AccessRequests, request: Request, done: str, act: Any) -> Response:
    """Carry out a form, and lead to the page; an error is shown on it."""
    form: PostedForm = {}
    try:
        form = await posted(request)
        await run_in_threadpool(act, form)
    except HubError as error:
        return await run_in_threadpool(_page, requests, dict(form), error)
    return RedirectResponse(f"{PATH}?{urlencode({'done': done})}", 303)


def _page(
    requests: AccessRequests, form: dict[str, str], error: HubError | None = None, done: str = ""
) -> Response:
    status = 200 if error is None else 400 if type(error) is CallerError else status_of(error)
    rows: list[dict[str, Any]] = []
    try:
        rows = requests.rows()
    except HubError as failed:
        error, status = failed, status_of(failed)
    rows.reverse()
    caller = CALLER.get()
    return html(
        "frame/access_requests.html",
        status,
        section="access-requests",
        waiting=[each for each in rows if each["waits_for_me"]],
        mine=[each for each in rows if each["mine"]],
        others=[each for each in rows if not each["mine"] and not each["waits_for_me"]],
        form=form,
        error=error,
        done=done,
        open_states=WAITING,
        may_ask=caller is not None and bool(caller.name),
        now_ms=requests.now_ms(),
    )
