"""[edge] ASGI: access control of every request. The only place that authenticates a request and selects its
rule.

A request without a rule is refused, even if a route would answer it. Without an ``access.yaml`` all requests
pass except those that another site's page makes a browser send. Streams are checked again when the file
changes or appears, and are ended when their caller no longer has access.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from fastapi.websockets import WebSocket

from hub.access.authenticate import AuthenticatedCaller, Authenticator, AuthRequest, Proxies, neighbourhood
from hub.access.decide import Principal, has_any
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.open_sessions import OpenSessions
from hub.access.personal_tokens import PersonalTokens
from hub.access.quotas.principals import asker_of
from hub.access.signed_out_sessions import EndedSessions
from hub.access_log.writer import NotLogged
from hub.api.auditing.request_log import NOBODY, LoggedRequest, RequestLog, answer, noting
from hub.api.quotas.requests import admit, counted, paused
from hub.api.requests.parsing import Scope, auth_request_of, come_through, host_of, method_of, of_this_site
from hub.api.route_rules import RouteRule, rule_of
from hub.caller import CALLER, Forbidden, Unauthenticated, require
from hub.errors import HubError, NotFound
from hub.home_key import make_key
from hub.hosts import Hosts, UnknownHost
from hub.observability.web.http_status import status_of
from hub.observability.web.refusals import refusal
from hub.quotas.shares import ASKER
from hub.quotas.spending import QuotaExceeded

log = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

# Rule, path parameters and template of a request.
MatchedRoute = tuple[RouteRule, Mapping[str, str], str]

READ_EVERY_S = 1.0
_SAFE = ("GET", "HEAD", "OPTIONS")


class AuthenticationContext:
    """State shared by the guard and the sign-in page: the current access.yaml and the authenticator."""

    def __init__(
        self,
        access: LiveAccess,
        home: Path,
        proxies: Proxies = Proxies(),
        metrics_open: bool = False,
        hosts: Hosts | None = None,
        *,
        has_hosts: bool = False,
    ) -> None:
        self.access, self.metrics_open = access, metrics_open
        self._hosts, self._has_hosts = hosts, has_hosts
        self._home, self.proxies = home, proxies
        self.request_log: RequestLog | None = None  # while the server has no access log
        self.tokens = PersonalTokens(home)
        self.sessions, self.ended = OpenSessions(home), EndedSessions(home)

    @cached_property
    def authenticator(self) -> Authenticator:
        return Authenticator(self.access, make_key(self._home), self.proxies, self.ended, self.tokens)

    def require_host(self, host: str) -> None:
        """Raise UnknownHost for a request to another host name.

        With an access.yaml a page of another name has no session; names are then checked only if the settings
        list some.
        """
        if self._hosts is not None and (self.access.rules is None or self._has_hosts):
            self._hosts.require(host)

    @property
    def active_log(self) -> RequestLog | None:
        log = self.request_log
        return log if log is not None and (log.always or self.access.rules is not None) else None

    def ready(self) -> None:
        """Load the key and everything slow before the first request. Blocks; raises ConfigError."""
        _ = self.authenticator

    async def watch(self) -> None:
        """Read the file when it changes, forever."""
        while True:
            await asyncio.sleep(READ_EVERY_S)
            try:
                await asyncio.to_thread(self.access.refresh)
            except Exception:
                log.exception("access.yaml could not be looked at")


class _StreamRevoked(Exception):
    """The caller has lost access while they were answered. ``unsent``: the answer, if none had begun."""

    def __init__(self, unsent: HubError | None) -> None:
        super().__init__()
        self.unsent = unsent


class Guard:
    """ASGI middleware that authenticates and authorizes every request."""

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], door: AuthenticationContext
    ) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        come_through(scope, self.door.proxies)
        rules = self.door.access.rules
        try:
            self.door.require_host(host_of(scope))
        except UnknownHost as error:
            return await self._refuse(error, NOBODY, rules, scope, receive, send)
        if rules is None:
            return await self._uncontrolled(scope, receive, send)
        matched = self._rule(scope)
        auth_request = auth_request_of(scope)
        authenticated = NOBODY
        try:
            if matched is None or not matched[0].is_open:
                authenticated = await self.door.authenticator.authenticate(auth_request, rules)
            rule, given, template = self._admitted(matched, authenticated, scope, auth_request, rules)
        except HubError as error:
            logged = self._log(matched, authenticated, auth_request, scope)
            return await self._refuse(error, authenticated, rules, scope, receive, send, logged)
        logged = self._log(matched, authenticated, auth_request, scope)
        caller = None if rule.whole else rules.caller(authenticated.who, way=authenticated.way)
        if logged is not None and caller is not None:
            caller = noting(caller, rules)
        asker = asker_of(authenticated.who, neighbourhood(auth_request.address))
        share, before = ASKER.set(asker), CALLER.set(caller)
        try:
            watched = self._watched(send, rule, given, authenticated, rules, method_of(scope))
            with counted(rule, given, authenticated.who, asker, rules, self.door.access.ledger) as spender:
                await admit(spender, rule, template, given, scope)
                await answer(self.app, logged, scope, receive, paused(spender, watched))
        except _StreamRevoked as revoked:
            log.info(
                "a stream of %r was ended: access.yaml has changed, or they signed out",
                authenticated.who.name,
            )
            if revoked.unsent is not None:
                await self._refuse(revoked.unsent, authenticated, rules, scope, receive, send, logged)
        except (NotLogged, QuotaExceeded) as error:
            await self._refuse(error, authenticated, rules, scope, receive, send, logged)
        finally:
            CALLER.reset(before)
            ASKER.reset(share)

    def _log(
        self,
        matched: MatchedRoute | None,
        authenticated_caller: AuthenticatedCaller,
        auth_request: AuthRequest,
        scope: Scope,
    ) -> LoggedRequest | None:
        log = self.door.active_log
        return None if log is None else log.request(matched, authenticated_caller, auth_request, scope)

    async def _uncontrolled(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request without an access.yaml: refuse only forged cross-site requests of browsers."""
        auth_request = auth_request_of(scope)
        logged = self._log(self._rule(scope), NOBODY, auth_request, scope)
        share = ASKER.set(asker_of(NOBODY.who, neighbourhood(auth_request.address)))
        try:
            if method_of(scope) not in _SAFE:
                _sent_here(auth_request, NOBODY.way)
            await answer(self.app, logged, scope, receive, self._until_controlled(send, scope))
        except (Forbidden, NotLogged) as error:
            await self._refuse(error, NOBODY, None, scope, receive, send, logged)
        except _StreamRevoked as revoked:
            log.info("an anonymous stream was ended: access.yaml exists now")
            if revoked.unsent is not None:
                await self._refuse(
                    revoked.unsent, NOBODY, self.door.access.rules, scope, receive, send, logged
                )
        finally:
            ASKER.reset(share)

    def _until_controlled(self, send: Send, scope: Scope) -> Send:
        """Return a ``send`` that checks access from the moment at which an access.yaml appears."""
        watched: Send | None = None

        async def sent(message: Any) -> None:
            nonlocal watched
            rules = self.door.access.rules
            if watched is None and rules is not None:
                try:
                    auth_request = auth_request_of(scope)
                    authenticated = await self.door.authenticator.authenticate(auth_request, rules)
                    rule, given, _ = self._admitted(
                        self._rule(scope), authenticated, scope, auth_request, rules
                    )
                except HubError as error:
                    await _revoke(message, send, error)
                if rules.masks.rules and not rule.is_open:  # it began with everything shown
                    await _revoke(message, send)
                watched = self._watched(send, rule, given, authenticated, rules, method_of(scope))
            await (watched or send)(message)

        return sent

    def _rule(self, scope: Scope) -> MatchedRoute | None:
        return rule_of(scope["path"], method_of(scope), metrics_open=self.door.metrics_open)

    def _admitted(
        self,
        matched: MatchedRoute | None,
        authenticated_caller: AuthenticatedCaller,
        scope: Scope,
        auth_request: AuthRequest,
        rules: AccessRules,
    ) -> MatchedRoute:
        """Return the rule if it admits the request. Raises Unauthenticated, Forbidden, NotFound."""
        method = method_of(scope)
        if matched is None:
            if not authenticated_caller.who.name:
                raise Unauthenticated(
                    "sign in first", hint="a user and password, or a token: docs/how-to/control-access.md"
                )
            raise NotFound(f'there is nothing at {method} "{scope["path"][:200]}"')
        rule, given, _ = matched
        if method not in _SAFE:
            _sent_here(auth_request, authenticated_caller.way)
        _granted(rule, given, authenticated_caller.who, rules)
        return matched

    def _watched(
        self,
        send: Send,
        rule: RouteRule,
        given: Mapping[str, str],
        authenticated_caller: AuthenticatedCaller,
        rules: AccessRules,
        method: str,
    ) -> Send:
        """Return a ``send`` that ends the stream when its caller loses access."""
        judged = [rules]
        # A request that ends its own session or token is answered; only reads take long.
        is_stream = method in _SAFE or method == "WEBSOCKET"

        async def sent(message: Any) -> None:
            now = self.door.access.rules
            if now is not None and now is not judged[0]:
                if not still_granted(rule, given, authenticated_caller, rules, now):
                    await _revoke(message, send)
                judged[0] = now
            if is_stream and not self.door.authenticator.goes_on(authenticated_caller):
                await _revoke(message, send)
            if message["type"] == "http.response.start" and not rule.is_open:
                # The next reader of a cache may be another caller.
                message = {
                    **message,
                    "headers": [*message.get("headers", ()), (b"vary", b"Authorization, Cookie")],
                }
            await send(message)

        return sent

    async def _refuse(
        self,
        error: HubError,
        authenticated_caller: AuthenticatedCaller,
        rules: AccessRules | None,
        scope: Scope,
        receive: Receive,
        send: Send,
        logged: LoggedRequest | None = None,
    ) -> None:
        if logged is not None:
            logged.refused(error, status_of(error))
        response = refusal(error, scope, auth_request_of(scope).headers, authenticated_caller, rules)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)


def _sent_here(auth_request: AuthRequest, way: str) -> None:
    """Raise Forbidden for a request from another site's page."""
    if not of_this_site(auth_request, way):
        raise Forbidden(
            "this request was sent from another site's page",
            hint="open the hub's own page and send it there; a proxy in front has to pass on the header Host",
        )


def _granted(rule: RouteRule, given: Mapping[str, str], who: Principal, rules: AccessRules) -> None:
    """Raise Unauthenticated or Forbidden if the rule does not admit the principal."""
    if rule.is_open:
        return
    needs = rule.needs(given)
    if needs is None:
        if not has_any(rules.policy, who):
            raise Unauthenticated(
                "sign in first", hint="a user and password, or a token: docs/how-to/control-access.md"
            )
        return
    before = CALLER.set(rules.caller(who))
    try:
        require(*needs)
    finally:
        CALLER.reset(before)


def still_granted(
    rule: RouteRule,
    given: Mapping[str, str],
    authenticated_caller: AuthenticatedCaller,
    then: AccessRules,
    now: AccessRules,
) -> bool:
    """Return whether a caller admitted under ``then`` would be under ``now``: authenticated by the same
    secret, and granted."""
    who = now.same_principal(authenticated_caller.who, then)
    if who is None or not now.sees_the_same(who, authenticated_caller.who, then):
        return False
    try:
        _granted(rule, given, who, now)
    except (Unauthenticated, Forbidden):
        return False
    return True


async def _revoke(message: Mapping[str, Any], send: Send, why: HubError | None = None) -> NoReturn:
    """Close a response or WebSocket that has begun, instead of its next message. Raises _StreamRevoked, with
    the answer where none has begun: a request without any answer would look like a failed server.
    """
    if message["type"] in ("http.response.start", "websocket.accept"):
        raise _StreamRevoked(
            why or Forbidden("access has changed while this was answered", hint="ask again, or sign in")
        )
    if message["type"] == "http.response.body":
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    elif message["type"] == "websocket.send":
        await send({"type": "websocket.close", "code": 1008, "reason": "access has changed"})
    raise _StreamRevoked(None)
