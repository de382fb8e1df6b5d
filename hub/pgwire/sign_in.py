"""[shell] Sign-in of a connection: the hub's users and tokens by password, over TLS or from this machine.

access.yaml keeps scrypt and SHA-256 hashes, from which SCRAM's keys cannot be made, so the password itself is
asked for (docs/adr/0039). A connection is checked again with each message.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hub.access.authenticate import AuthenticatedCaller, Authenticator, AuthRequest, neighbourhood
from hub.access.decide import ANONYMOUS, Principal, has_any
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.quotas.principals import asker_of, spender_of
from hub.caller import CALLER, Unauthenticated
from hub.errors import HubError
from hub.pgwire.sqlstates import PgError
from hub.pgwire.statement_log import STATEMENT, StatementLog
from hub.quotas.ledger import Ledger
from hub.quotas.shares import ASKER
from hub.quotas.spending import SPENDER

DATABASE = "hub"
NOBODY = "anonymous"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Identity of a connection. ``rules`` None: access was not controlled when it began. ``caller``: how it
    signed in; None: without a password. ``ledger``: of quotas.
    """

    user: str
    address: str
    who: Principal
    rules: AccessRules | None
    caller: AuthenticatedCaller | None = None
    log: StatementLog | None = None
    ledger: Ledger | None = None

    def enter(self) -> None:
        """Make this the caller of the current task, and of the tasks and threads that it starts."""
        caller = None if self.rules is None else self.rules.caller(self.who)
        if self.log is not None:
            authenticated = self.caller or AuthenticatedCaller(self.who, "nobody")
            STATEMENT.set(partial(self.log.statement, authenticated, AuthRequest({}, {}, self.address)))
            if caller is not None and self.rules is not None:
                caller = self.log.caller(caller, self.rules)
        CALLER.set(caller)
        asker = asker_of(self.who, neighbourhood(self.address))
        ASKER.set(asker)
        if self.rules is not None and self.ledger is not None:
            SPENDER.set(spender_of(self.who, asker, self.rules.quotas, self.ledger))


def checked_database(database: str, user: str) -> None:
    """Raise PgError for a database that does not exist. Clients name the user's by default."""
    if database not in (DATABASE, user, "postgres"):
        raise PgError(
            "3D000", f'database "{database[:63]}" does not exist', f'the hub is database "{DATABASE}"'
        )


class DatabaseSignIn:
    """Signs connections in by the access.yaml of a server."""

    def __init__(
        self,
        access: LiveAccess,
        authenticator: Authenticator,
        log: Callable[[], StatementLog | None] = lambda: None,
    ) -> None:
        """``log`` returns the access log, None while there is none."""
        self._access, self._authenticator, self._log = access, authenticator, log

    def without_password(self, user: str, address: str) -> SignedIn | None:
        """Return the identity where no password is needed: access is not controlled, or everybody has
        grants and the user is ``anonymous``; None: ask for one.
        """
        rules = self._access.rules
        if rules is None or (user == NOBODY and has_any(rules.policy, ANONYMOUS)):
            return SignedIn(user, address, ANONYMOUS, rules, log=self._log(), ledger=self._access.ledger)
        return None

    async def by_password(self, user: str, password: str, address: str) -> SignedIn:
        """Return the identity of a user or token. Raises Unauthenticated, TooManyFailures, PeerError."""
        rules = self._access.rules
        if rules is None:
            return SignedIn(user, address, ANONYMOUS, None, log=self._log())
        authorization = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        request = AuthRequest({"authorization": [authorization]}, {}, address)
        log = self._log()
        try:
            authenticated = await self._authenticator.authenticate(request, rules)
            if not has_any(rules.policy, authenticated.who):
                raise Unauthenticated("this user has no grant", hint="docs/how-to/control-access.md")
        except HubError as error:
            if log is not None:
                log.refused(request, error)
            raise
        if log is not None:
            log.signed_in(authenticated, request)
        return SignedIn(user, address, authenticated.who, rules, authenticated, log, self._access.ledger)

    def recheck(self, signed_in: SignedIn) -> SignedIn:
        """Return the identity under the access.yaml of now. Raises PgError when it has lost access, or when
        its token was revoked or has expired.
        """
        if signed_in.caller is not None and not self._authenticator.goes_on(signed_in.caller):
            raise PgError("28000", "the token was revoked or has expired: sign in again")
        now = self._access.rules
        if now is signed_in.rules or now is None:
            return signed_in
        who = None if signed_in.rules is None else now.same_principal(signed_in.who, signed_in.rules)
        if who is None or not has_any(now.policy, who):
            raise PgError("28000", "access.yaml has changed: sign in again")
        return SignedIn(
            signed_in.user, signed_in.address, who, now, signed_in.caller, signed_in.log, signed_in.ledger
        )
