"""[shell] Callers that an OpenID Connect provider vouches for: bearer tokens, and logins of people.

A name that signs in by a password or token of access.yaml is refused here, so that nobody becomes somebody
else by choosing a name at the provider.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hub.access.decide import Principal
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.oidc.claims import Identity, RefusedToken, check_claims, check_login, identity_of
from hub.access.oidc.login import (
    LOGIN_S,
    LoginAttempt,
    LoginFailed,
    authorization_url,
    code_in,
    exchange_form,
    sealed,
    unsealed,
)
from hub.access.oidc.provider_keys import Ask, Provider
from hub.access.oidc.settings import OidcNode
from hub.caller import Unauthenticated

log = logging.getLogger(__name__)


@dataclass
class OidcCallers:
    """Sign-in by the provider of access.yaml. ``key`` signs logins. Use it from one event loop."""

    access: LiveAccess
    key: bytes
    ask: Ask | None = None
    now_s: Callable[[], float] = time.time
    steady_s: Callable[[], float] = time.monotonic
    _provider: Provider | None = None

    async def by_bearer(self, token: str, rules: AccessRules) -> tuple[Principal, float]:
        """Return the owner of a token, and its end. Raises RefusedToken, PeerError (HUB-3074)."""
        oidc = rules.file.oidc
        if oidc is None or oidc.audience is None:
            raise RefusedToken("access.yaml has no oidc section with an audience")
        claims = await self._provider_of(oidc).claims(token)
        ends_at_s = check_claims(claims, oidc, oidc.audience, self.now_s())
        identity = identity_of(claims, oidc, rules.file.groups, ends_at_s)
        _refuse_taken(identity, rules)
        return rules.oidc_user(identity.name, identity.groups), ends_at_s

    async def begin(self, rules: AccessRules, then: str, redirect_uri: str) -> tuple[str, str]:
        """Begin a login that leads to the page ``then``. Returns the provider's address and the cookie."""
        oidc = _with_login(rules)
        endpoints = await self._provider_of(oidc).endpoints()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = LoginAttempt(state, nonce, verifier, then, int(self.now_s()) + LOGIN_S)
        return authorization_url(endpoints.authorization, oidc, attempt, redirect_uri), sealed(
            attempt, self.key
        )

    async def finish(
        self, rules: AccessRules, answer: Mapping[str, str], cookie: str, redirect_uri: str
    ) -> tuple[Identity, str]:
        """Return who has logged in, and the page to lead to. Raises LoginFailed, PeerError."""
        oidc = _with_login(rules)
        client_id = oidc.client_id or ""
        attempt = unsealed(cookie, self.key, self.now_s())
        code = code_in(answer, attempt, oidc)
        provider = self._provider_of(oidc)
        token = await provider.exchange(exchange_form(code, attempt, redirect_uri))
        try:
            claims = await provider.claims(token)
            ends_at_s = check_claims(claims, oidc, (client_id,), self.now_s())
            check_login(claims, client_id, attempt.nonce)
            identity = identity_of(claims, oidc, rules.file.groups, ends_at_s)
            _refuse_taken(identity, rules)
        except RefusedToken as reason:
            log.error("a login by %s is refused: its token: %s", oidc.issuer, reason)
            raise LoginFailed(f"the identity provider's token is not accepted: {reason}") from None
        log.info("%r has logged in by %s", identity.name, oidc.issuer)
        return identity, attempt.next

    def _provider_of(self, oidc: OidcNode) -> Provider:
        if self._provider is None or self._provider.oidc != oidc:
            self._provider = Provider(oidc, self.access.path.parent, self.ask, self.steady_s)
        return self._provider


def _with_login(rules: AccessRules) -> OidcNode:
    oidc = rules.file.oidc
    if oidc is None or oidc.client_id is None:
        raise LoginFailed("people do not sign in by an identity provider here", "sign in with a password")
    return oidc


def _refuse_taken(identity: Identity, rules: AccessRules) -> None:
    if rules.belongs_to_others(identity.name):
        raise RefusedToken(
            f'the name "{identity.name}" has a password or token in access.yaml; remove that, or rename it'
        )


def not_accepted(reason: RefusedToken) -> Unauthenticated:
    """Return the answer to a bearer token that is refused."""
    return Unauthenticated(
        f"the bearer token is not accepted: {reason}",
        hint="get a new one from the identity provider, for this hub's audience "
        "(docs/how-to/sign-in-with-oidc.md)",
    )
