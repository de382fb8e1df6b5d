"""[shell] Make, answer, withdraw and list requests for access as the caller, for HTTP and the page."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from hub.access.access_yaml import AccessFile, Pattern
from hub.access.live_config import LiveAccess
from hub.access_requests.access_file import AccessEditor, reason_of
from hub.access_requests.log import RequestLog, as_json
from hub.access_requests.model import (
    AccessRequest,
    AccessRequestRefused,
    Grantee,
    NoRequest,
    approve,
    checked_request,
    find_request,
    refuse,
    withdraw,
)
from hub.access_requests.owners import OwnerFacts, is_visible, may_answer, owners_of
from hub.access_requests.runner import change_of
from hub.approvals.second_person import is_own, needs_second
from hub.caller import CALLER, Forbidden, Unauthenticated, done_by
from hub.errors import HubError, NotFound, did_you_mean
from hub.topics.editing.change import TopicChangePlan
from hub.topics.editing.editor import TopicEditor
from hub.topics.tree.tree import reserved_for

Role = Literal["read", "write", "operate"]
MOST_TEXT = 1_000


class AskedAccess(BaseModel, extra="forbid"):
    """Body of a request for a grant, or without ``role`` for a new topic. ``topic``: a name, or NODE.** for
    a node with everything below. ``grantee`` and its kind: by default the caller. ``by``: the account that
    asks; a signed-in name takes its place."""

    role: Role | None = None
    topic: Pattern | None = None
    view: str | None = Field(None, min_length=1, max_length=249, pattern=r"[A-Za-z0-9_-]+$")
    grantee_kind: Grantee | None = None
    grantee: str = Field("", max_length=100)
    days: float | None = Field(None, gt=0, le=366)
    reason: str = Field(min_length=1, max_length=MOST_TEXT)
    partitions: str = Field("", max_length=100)
    retention: str = Field("", max_length=100)
    owner: str = Field("", max_length=500)
    config: str = Field("", max_length=10_000, description="KEY=VALUE, one a line")
    by: str = Field("", max_length=200)

    @model_validator(mode="after")
    def _one_object(self) -> AskedAccess:
        if (self.topic is None) == (self.view is None):
            raise ValueError("name one topic or one view")
        if self.role is None and self.view is not None:
            raise ValueError("a view is asked for with a role")
        if (self.grantee == "") != (self.grantee_kind is None):
            raise ValueError("grantee and grantee_kind belong together")
        return self

    @property
    def settings(self) -> dict[str, str]:
        settings = {name: getattr(self, name) for name in ("partitions", "retention", "owner", "config")}
        return {name: value for name, value in settings.items() if value}


@dataclass(frozen=True)
class AccessRequests:
    """Requests of one cluster over the files of one project. ``open_ms``: how long a request waits for an
    answer; ``most_days``: of a grant. ``facts``: the owners as of now."""

    log: RequestLog
    live: LiveAccess
    access: AccessEditor
    topics: TopicEditor
    facts: Callable[[], OwnerFacts]
    open_ms: int
    most_days: int
    now_ms: Callable[[], int]

    def rows(self, *, waiting: bool = False) -> list[dict[str, Any]]:
        """Return the requests that the caller sees, oldest first. ``waiting``: without those that are
        over."""
        facts = self.facts()
        shown = (self._row(each, facts) for each in self.log.all().values())
        return [
            row
            for row in shown
            if row is not None and (not waiting or row["status"] in ("requested", "approved"))
        ]

    def row(self, id: str) -> dict[str, Any]:
        """Return a request with its difference of the file, for those who may answer. Raises NoRequest."""
        request, shown = self._visible(id)
        if shown["may_answer"] and request.status == "approved":
            shown["diff"] = self._diff(request)
        return shown

    def make(self, body: AskedAccess) -> dict[str, Any]:
        """Make a request. Raises RequestRefused, NotFound, Unauthenticated, PeerError."""
        file, by = self._controlled(), done_by(body.by)
        kind, grantee = self._grantee(body, file, by)
        now_ms = self.now_ms()
        new = AccessRequest(
            secrets.token_hex(6),
            body.role or "",
            body.topic or "",
            body.view or "",
            kind,
            grantee,
            min(body.days or 7.0, self.most_days),
            body.settings,
            body.reason,
            by,
            now_ms,
            now_ms + self.open_ms,
        )
        self._check(new, body)
        return self._shown(self.log.submit(lambda requests: checked_request(new, requests)))

    def approve(self, id: str, answer: str, by: str) -> dict[str, Any]:
        """Approve a request as its owner or as an admin. Raises NoRequest, RequestRefused, Forbidden."""
        self._answering(id)
        name, second, now_ms = done_by(by), needs_second(), self.now_ms()
        return self._shown(
            self.log.submit(
                lambda requests: approve(
                    find_request(requests, id), name, answer, now_ms, needs_second=second
                )
            )
        )

    def refuse(self, id: str, answer: str, by: str) -> dict[str, Any]:
        """Refuse a request as its owner or as an admin. Raises as ``approve`` does."""
        self._answering(id)
        name, now_ms = done_by(by), self.now_ms()
        return self._shown(
            self.log.submit(lambda requests: refuse(find_request(requests, id), name, answer, now_ms))
        )

    def withdraw(self, id: str, by: str) -> dict[str, Any]:
        """Withdraw the caller's own request. Raises NoRequest, RequestRefused, Forbidden."""
        request, _ = self._visible(id)
        if CALLER.get() is not None and request.requested_by != done_by(by):
            raise Forbidden(
                f"access request {id} is of {request.requested_by}, who alone withdraws it",
                hint="an owner or admin refuses it: hub access requests refuse",
            )
        now_ms = self.now_ms()
        return self._shown(self.log.submit(lambda requests: withdraw(find_request(requests, id), now_ms)))

    def _controlled(self) -> AccessFile:
        rules, caller = self.live.rules, CALLER.get()
        if rules is None or caller is None:
            raise AccessRequestRefused(
                "access is not controlled here, so everybody may do everything",
                hint="write access.yaml first (docs/tutorials/closed-in-ten-minutes.md)",
            )
        if not caller.name and not caller.for_others:
            raise Unauthenticated("sign in to ask for access", hint="docs/how-to/control-access.md")
        return rules.file

    def _grantee(self, body: AskedAccess, file: AccessFile, by: str) -> tuple[Grantee, str]:
        """Return who gets the grant. Raises NotFound for a name that access.yaml does not have."""
        if body.grantee_kind is None:
            caller = CALLER.get()
            name = by if caller is None or caller.for_others else caller.name
            kind: Grantee = "token" if name in file.tokens else "user"
            if body.role is not None and caller is not None and caller.for_others and name not in file.users:
                raise AccessRequestRefused(
                    f'"{name}" is not a user of access.yaml, so nobody would get the grant',
                    hint="name somebody: --for user:NAME, --for group:NAME or --for token:NAME",
                )
            return kind, name
        every: Mapping[Grantee, Mapping[str, object]] = {
            "user": file.users,
            "group": file.groups,
            "token": file.tokens,
        }
        names = every[body.grantee_kind]
        named_elsewhere = body.grantee_kind == "user" and (file.oidc is not None or body.grantee == by)
        taken = body.grantee_kind == "user" and body.grantee in file.tokens
        if taken or (body.grantee not in names and not named_elsewhere):
            raise NotFound(
                f'{body.grantee_kind} "{body.grantee[:100]}" does not exist',
                hint=did_you_mean(body.grantee, names, "hub access ls lists them"),
                code="HUB-1714",
            )
        return body.grantee_kind, body.grantee

    def _check(self, new: AccessRequest, body: AskedAccess) -> None:
        """Raise RequestRefused if nobody could grant this; a new topic raises the errors of its plan."""
        if body.days is not None and body.days > self.most_days:
            raise AccessRequestRefused(
                f"{body.days:g} days are more than the {self.most_days} that a grant may last",
                hint="ask for less, or set access_request_most_days in hub.yaml",
            )
        if new.is_grant and body.settings:
            raise AccessRequestRefused(
                f"{', '.join(body.settings)} belong to a new topic",
                hint="hub access request topic NAME asks for one",
            )
        owned = reserved_for(new.topic) if new.topic else None
        if owned is not None or new.topic.startswith("_"):
            raise AccessRequestRefused(
                f'topic "{new.topic}" belongs to {owned[0] if owned else "the hub"}',
                hint="ask for the view: view:NAME" if new.topic.startswith("views.") else "ask an admin",
            )
        wild = new.topic.removesuffix(".**") if new.is_grant else new.topic
        if "*" in wild:
            raise AccessRequestRefused(
                f'"{new.topic}" is not a topic or a node of the tree',
                hint="write shop.orders, or shop.** for a node with everything below",
            )
        if not new.is_grant and not self._plan(new).changes:
            raise AccessRequestRefused(
                f'topic "{new.topic}" exists already', hint=f"hub access request read {new.topic}"
            )

    def _answering(self, id: str) -> None:
        """Raise NoRequest, or Forbidden if the caller may not answer the request."""
        request, row = self._visible(id)
        if row["may_answer"]:
            return
        named = " or ".join(row["owners"]) or "an admin"
        raise Forbidden(
            f"access request {id} for {request.text} is not yours to answer",
            hint=f"its owner answers ({named}), or an admin of the hub",
        )

    def _visible(self, id: str) -> tuple[AccessRequest, dict[str, Any]]:
        """Return a request and its row. Raises NoRequest, also if the caller does not see it."""
        request = find_request(self.log.all(), id)
        row = self._row(request, self.facts())
        if row is None:
            raise NoRequest(f'access request "{id[:40]}" does not exist', hint="hub access requests ls")
        return request, row

    def _shown(self, request: AccessRequest) -> dict[str, Any]:
        return self._row(request, self.facts()) or as_json(request)

    def _row(self, request: AccessRequest, facts: OwnerFacts) -> dict[str, Any] | None:
        """Return a request as the caller sees it; None if they do not."""
        caller, owners = CALLER.get(), owners_of(request, facts)
        answers = may_answer(request, caller, owners)
        if not is_visible(request, caller, answers):
            return None
        name = "" if caller is None else caller.name
        first = [request.requested_by, *([] if request.grantee_kind == "group" else [request.grantee])]
        is_open = request.status == "requested" and self.now_ms() < request.open_until_ms
        return {
            **as_json(request),
            "text": request.text,
            "owners": sorted(owners - {""}),
            "mine": caller is not None and bool(name) and request.requested_by == name,
            "may_answer": answers,
            "waits_for_me": answers and is_open and not is_own(name, first, second=bool(name)),
        }

    def _plan(self, request: AccessRequest) -> TopicChangePlan:
        """Return the plan of a new topic as the hub makes it: the requester may not change topics."""
        before = CALLER.set(None)
        try:
            return self.topics.plan(change_of(request))
        finally:
            CALLER.reset(before)

    def _diff(self, request: AccessRequest) -> str:
        try:
            if request.is_grant:
                return self.access.diff(request)
            return self._plan(request).diff
        except HubError as error:
            return f"not known: {reason_of(error)}"
