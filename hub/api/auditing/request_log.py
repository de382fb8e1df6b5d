"""[shell] Entries of requests. The guard runs each through a ``LoggedRequest``.

A change is logged twice: before it, which Kafka has acknowledged, and with its result. Everything else is
logged once, when the response begins.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

from hub.access.authenticate import AuthenticatedCaller, AuthRequest
from hub.access.decide import ANONYMOUS
from hub.access.live_config import AccessRules
from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.entry import ACCOUNT_HEADER, Entry, Who, new_id
from hub.access_log.request import NOTES, RequestNotes
from hub.access_log.writer import AccessLog, NotLogged
from hub.api.auditing.route_actions import LoggedRoute, logged_route, object_name
from hub.api.route_rules import RouteRule
from hub.caller import Caller, Resource
from hub.errors import HubError
from hub.masking.shape import Visibility
from hub.times import epoch_ms

Scope = MutableMapping[str, Any]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]
# Messages with which a response begins.
_BEGINS = ("http.response.start", "websocket.accept", "websocket.http.response.start")
_DENIED = (401, 403, 429)
NOBODY = AuthenticatedCaller(ANONYMOUS, "nobody")
_USE_EVERY_S = 600.0
_MOST_USES = 10_000
_SIGN_IN_WAYS = ("password", "certificate", "proxy")


@dataclass(slots=True)
class FirstUses:
    """Remembers which principals used a token, or signed in with each request, in the last ten minutes."""

    until_s: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def is_first(self, key: tuple[str, str, str], now_s: float) -> bool:
        """Return whether the key was not seen for ten minutes. ``now_s``: a monotonic time."""
        until = self.until_s.get(key, 0.0)
        if now_s < until:
            return False
        if len(self.until_s) >= _MOST_USES:
            self.until_s.clear()
        self.until_s[key] = now_s + _USE_EVERY_S
        return True


class RequestLog:
    """Log of a server's requests. ``always``: also while access is not controlled."""

    def __init__(self, log: AccessLog, *, always: bool = False) -> None:
        self.log, self.always = log, always
        self.uses = FirstUses()

    def request(
        self,
        found: tuple[RouteRule, Mapping[str, str], str] | None,
        authenticated_caller: AuthenticatedCaller,
        auth_request: AuthRequest,
        scope: Scope,
    ) -> LoggedRequest:
        """Return the log of one request. ``found``: its rule, path parameters and template."""
        method, path = str(scope.get("method", "WEBSOCKET")), str(scope["path"])
        if found is None:
            return LoggedRequest(self, None, "hub", "", "", method, authenticated_caller, auth_request)
        rule, given, template = found
        route = logged_route(template, method, path)
        if route is not None:
            kind, name = route.kind, object_name(route, path, given)
        else:
            kind, name = str(rule.kind), given.get(rule.named, "")
        return LoggedRequest(self, route, kind, name, template, method, authenticated_caller, auth_request)


@dataclass(slots=True)
class LoggedRequest:
    """The log of one request: ``run``, or ``refused`` by the guard."""

    owner: RequestLog
    route: LoggedRoute | None
    kind: str
    name: str
    template: str
    method: str
    known: AuthenticatedCaller
    auth_request: AuthRequest
    notes: RequestNotes = field(default_factory=RequestNotes)
    _id: str = ""
    _started: Entry | None = None
    _done: bool = False

    def __post_init__(self) -> None:
        self.notes.change = self._change

    async def run(self, app: App, scope: Scope, receive: Any, send: Send) -> None:
        """Let the app answer, and log the request. Raises NotLogged before anything happened."""
        if self.route is not None and self.route.is_change:
            await self._intend(self._entry(self.route.action, Outcome.started, self.kind, self.name))

        async def watched(message: Any) -> None:
            if message["type"] in _BEGINS:
                self.answered(int(message.get("status", 101)))
            await send(message)

        before = NOTES.set(self.notes)
        try:
            await app(scope, receive, watched)
        finally:
            NOTES.reset(before)
            self.answered(500)  # without a response it has failed

    def answered(self, status: int) -> None:
        """Log the request by its status. Only the first call counts."""
        if self._done:
            return
        self._done = True
        result = Outcome.denied if status in _DENIED else Outcome.ok if status < 400 else Outcome.failed
        if self._started is not None:
            self.owner.log.result(self._started.then(result, epoch_ms(), status=status))
            return
        for entry in self._entries(result, status):
            self.owner.log.note(entry)

    def refused(self, error: HubError, status: int) -> None:
        """Log a request that the guard refuses."""
        if self._done:
            return
        self._done = True
        if self._started is None and status not in _DENIED:
            return
        result = Outcome.denied if status in _DENIED else Outcome.failed
        detail = {"status": status, "error": error.code}
        if self._started is not None:
            self.owner.log.result(self._started.then(result, epoch_ms(), **detail))
            return
        wrong = status == 401 and bool(self.auth_request.headers.get("authorization"))
        action = self.route.action if self.route is not None else LoggedAction.request
        if wrong:
            action, detail["claimed"] = LoggedAction.sign_in, claimed_name(self.auth_request)
            result = Outcome.failed
        self.owner.log.note(self._entry(action, result, self.kind, self.name, **detail))

    # ---- entries

    def _entries(self, result: Outcome, status: int) -> list[Entry]:
        """Return the entries of a request that changed nothing by itself."""
        route, own = self.route, self.known.who.kind == "own"
        entries = [] if own else self.uses()
        for text, tables in self.notes.sql:
            detail = {"statement": text, "tables": list(tables), "status": status}
            entries.append(self._entry(LoggedAction.sql, result, "hub", "", **detail))
        for kind, name, part in sorted(self.notes.masked):
            entries.append(self._entry(LoggedAction.masked_read, result, kind, name, seen=part))
        if route is None:
            if result is Outcome.denied and not self.notes.sql:
                entries.append(self._entry(LoggedAction.request, result, self.kind, self.name, status=status))
        elif route.action is LoggedAction.sign_in or route.action is LoggedAction.sign_out:
            entries.append(self._sign_in(route.action, result, status))
        elif not own and not (route.action is LoggedAction.sql and self.notes.sql):
            entries.append(self._entry(route.action, result, self.kind, self.name, status=status))
        return entries

    def uses(self) -> list[Entry]:
        """Return the use of a token, or the sign-in by a password in each request; once in ten minutes."""
        who, way = self.known.who, self.known.way
        key = (way, self.known.token_id or who.name, self.auth_request.address)
        if not who.name or way == "session" or not self.owner.uses.is_first(key, time.monotonic()):
            return []
        if way in _SIGN_IN_WAYS:
            return [self._entry(LoggedAction.sign_in, Outcome.ok, "hub", "")]
        return [self._entry(LoggedAction.token_use, Outcome.ok, "token", self.known.token_id or who.name)]

    def _sign_in(self, action: LoggedAction, result: Outcome, status: int) -> Entry:
        """Return the entry of a sign-in or sign-out on the page, where the guard does not know who it is."""
        result = Outcome.failed if result is Outcome.denied else result
        entry = self._entry(action, result, "hub", "", status=status)
        way = "oidc" if "oidc" in self.template else "password"
        return replace(entry, who=replace(entry.who, name=self.notes.subject[:200], way=way))

    def _entry(self, action: LoggedAction, result: Outcome, kind: str, name: str, **detail: Any) -> Entry:
        self._id = self._id or new_id()
        who = Who(self.known.who.name, self.known.way, self.auth_request.address)
        about = {"method": self.method, "route": self.template, **detail}
        # The hub's own processes are trusted to name the account that runs a command.
        if self.known.who.kind == "own" and (named := self.auth_request.headers.get(ACCOUNT_HEADER.lower())):
            about["account"] = named[0][:200]
        return Entry(action, result, who, epoch_ms(), kind, name, self._id, about)

    # ---- changes

    async def _change(self, action: LoggedAction, kind: str, name: str) -> None:
        """Log a change that the route does not show, as RequestNotes.change."""
        await self._intend(self._entry(action, Outcome.started, kind, name))

    async def _intend(self, entry: Entry) -> None:
        log = self.owner.log
        future = log.change(entry)
        self._started = entry
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), log.timeout_s + 1)
        except TimeoutError:
            raise NotLogged("Kafka does not answer") from None


def noting(caller: Caller, rules: AccessRules) -> Caller:
    """Return the caller, who notes the masked objects that it reads."""
    if not caller.is_masked:
        return caller

    def shape(what: Resource) -> Visibility:
        visibility = caller.shape(what)
        notes = NOTES.get()
        # An object that hides nothing from nobody has no masks.
        if notes is not None and not (visibility.is_open and rules.shape(ANONYMOUS, what).is_open):
            notes.masked.add((str(what.kind), what.name, "everything" if visibility.is_open else "a part"))
        return visibility

    return replace(caller, shape=shape)


async def answer(app: App, logged: LoggedRequest | None, scope: Scope, receive: Any, send: Send) -> None:
    """Let the app answer, and log it if there is a log. Raises NotLogged before anything happened."""
    if logged is None:
        await app(scope, receive, send)
    else:
        await logged.run(app, scope, receive, send)


def claimed_name(auth_request: AuthRequest) -> str:
    """Return the user that a refused Authorization header names; "" if it names none."""
    scheme, _, value = (auth_request.headers.get("authorization") or [""])[0].partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        name = base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
    except (binascii.Error, ValueError):
        return ""
    # A token may stand in the place of the name.
    return "" if name.startswith("hubt_") else name[:100]
