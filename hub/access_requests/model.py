"""[core] A request for a grant or a new topic as a value, and the commands that change it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from hub.approvals.second_person import is_own
from hub.errors import CallerError, NotFound

Status = Literal["requested", "approved", "done", "refused", "withdrawn", "expired", "ended"]
Grantee = Literal["user", "group", "token"]
WAITING: Final = ("requested", "approved")
DAY_MS: Final = 86_400_000
MOST_OPEN, MOST_OPEN_OF_ONE = 1_000, 50


class AccessRequestRefused(CallerError):
    """A request for access cannot be made, answered or withdrawn."""

    code = "HUB-1850"


class NoRequest(NotFound):
    """A request with this id does not exist, or the caller may not see it."""

    code = "HUB-1851"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A request. ``role`` "": for a new topic. ``topic``: a name, or NODE.** for a node with everything
    below; ``view``: a name; one of both is empty. ``grantee``: gets the grant. ``settings``: of a new
    topic, as topics.yaml names them. ``open_until_ms``: it expires then without an answer. ``until_ms``: end
    of the grant, known when it is approved. ``detail``: state of the effect.
    """

    id: str
    role: str
    topic: str
    view: str
    grantee_kind: Grantee
    grantee: str
    days: float
    settings: Mapping[str, str]
    reason: str
    requested_by: str
    requested_at_ms: int
    open_until_ms: int
    status: Status = "requested"
    answered_by: str = ""
    answered_at_ms: int | None = None
    answer: str = ""
    until_ms: int | None = None
    detail: str = ""
    ended_at_ms: int | None = field(default=None)

    @property
    def is_grant(self) -> bool:
        return bool(self.role)

    @property
    def object(self) -> str:
        return f"view {self.view}" if self.view else f"topic {self.topic}"

    @property
    def text(self) -> str:
        """Return what is requested, in words."""
        if not self.is_grant:
            return f"new topic {self.topic}"
        return f"{self.role} on {self.object} for {self.grantee_kind} {self.grantee}"

    def asks_the_same(self, other: AccessRequest) -> bool:
        """Return whether both ask for the same thing."""
        return (self.role, self.topic, self.view, self.grantee_kind, self.grantee) == (
            *(other.role, other.topic, other.view, other.grantee_kind, other.grantee),
        )

    def grant(self) -> dict[str, Any]:
        """Return the grant as access.yaml has it. Call it for an approved request."""
        assert self.until_ms is not None
        scope = {"views": [self.view]} if self.view else {"topics": [self.topic]}
        until = datetime.fromtimestamp(self.until_ms / 1_000, UTC)
        return {"role": self.role, **scope, "until": until}


Requests = Mapping[str, AccessRequest]


def find_request(known: Requests, id: str) -> AccessRequest:
    """Return a request. Raises NoRequest."""
    if id not in known:
        raise NoRequest(f'access request "{id[:40]}" does not exist', hint="hub access requests ls")
    return known[id]


def checked_request(new: AccessRequest, known: Requests) -> AccessRequest:
    """Return a new request. Raises RequestRefused if the same one waits, or too many wait."""
    waiting = [each for each in known.values() if each.status in WAITING]
    for each in waiting:
        if each.asks_the_same(new):
            raise AccessRequestRefused(
                f"access request {each.id} for the same ({new.text}) is {each.status}",
                hint=f"hub access requests show {each.id}",
            )
    own = sum(each.requested_by == new.requested_by for each in waiting)
    if len(waiting) >= MOST_OPEN or own >= MOST_OPEN_OF_ONE:
        raise AccessRequestRefused(
            f"{own} access requests of {new.requested_by} and {len(waiting)} of everybody wait; "
            f"at most {MOST_OPEN_OF_ONE} and {MOST_OPEN} may",
            hint="withdraw one: hub access requests withdraw ID",
        )
    return new


def approve(
    request: AccessRequest, by: str, answer: str, now_ms: int, *, needs_second: bool
) -> AccessRequest:
    """Approve a request. The grant ends ``days`` from now, at a whole second. Raises RequestRefused."""
    _open(request, now_ms)
    first = [request.requested_by, *([request.grantee] if request.grantee_kind != "group" else [])]
    if is_own(by, first, second=needs_second):
        raise AccessRequestRefused(
            f"access request {request.id} is of {by}, or for {by}, and somebody else answers",
            hint=f"hub access requests show {request.id} names who may",
        )
    until_ms = None
    if request.is_grant:
        until_ms = -(-(now_ms + int(request.days * DAY_MS)) // 1_000) * 1_000
    return replace(
        request,
        status="approved",
        answered_by=by,
        answered_at_ms=now_ms,
        answer=answer,
        until_ms=until_ms,
        detail="its effect is about to begin",
    )


def refuse(request: AccessRequest, by: str, answer: str, now_ms: int) -> AccessRequest:
    """Refuse a request with a reason. Raises RequestRefused."""
    _open(request, now_ms)
    if not answer:
        raise AccessRequestRefused(
            f"access request {request.id} is refused with a reason", hint="name it: --reason"
        )
    return _over(replace(request, answered_by=by, answered_at_ms=now_ms, answer=answer), "refused", now_ms)


def withdraw(request: AccessRequest, now_ms: int) -> AccessRequest:
    """Withdraw a request that has no answer. Raises RequestRefused."""
    _open(request, now_ms)
    return _over(request, "withdrawn", now_ms)


def _open(request: AccessRequest, now_ms: int) -> None:
    if passed(request, now_ms, request.open_until_ms).status != "requested":
        state = "expired" if request.status == "requested" else request.status
        raise AccessRequestRefused(
            f"access request {request.id} is {state}", hint=f"hub access requests show {request.id}"
        )


def passed(request: AccessRequest, now_ms: int, effect_until_ms: int) -> AccessRequest:
    """Return the request as time alone leaves it. ``effect_until_ms``: an approved one without its effect
    expires then.
    """
    over = request.until_ms is not None and now_ms >= request.until_ms
    if request.status == "requested" and now_ms >= request.open_until_ms:
        return _over(replace(request, detail="nobody answered in time"), "expired", now_ms)
    if request.status == "approved" and (over or now_ms >= effect_until_ms):
        return _over(replace(request, detail=f"without effect: {request.detail}"), "expired", now_ms)
    if request.status == "done" and over:
        return _over(replace(request, detail="the grant has ended"), "ended", now_ms)
    return request


def put(request: AccessRequest, detail: str, *, done: bool, now_ms: int) -> AccessRequest:
    """Return an approved request with the state of its effect."""
    if request.status != "approved":
        return request
    if not done:
        return replace(request, detail=detail)
    made = replace(request, status="done", detail=detail)
    return made if request.is_grant else replace(made, ended_at_ms=now_ms)


def _over(request: AccessRequest, status: Status, now_ms: int) -> AccessRequest:
    return replace(request, status=status, ended_at_ms=now_ms)


def outdated(known: Requests, now_ms: int, kept_ms: int) -> Collection[str]:
    """Return the ids of requests that were over for longer than they are kept."""
    return [
        each.id
        for each in known.values()
        if each.ended_at_ms is not None and now_ms - each.ended_at_ms > kept_ms
    ]
