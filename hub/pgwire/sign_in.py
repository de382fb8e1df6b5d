"""[shell] Sign-in of a connection: the hub's users and tokens by password, over TLS or from this machine.

access.yaml keeps scrypt and SHA-256 hashes, from which SCRAM's keys cannot be made, so the password itself is
asked for (docs/adr/0039). A connection is checked again with each message.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from hub.access.authenticate import AuthenticatedCaller, Authenticator, AuthRequest, neighbourhood
from hub.access.decide import ANONYMOUS, Principal, has_any
from hub.access.live_config import AccessRules, LiveAccess
from hub.caller import CALLER, Unauthenticated
from hub.pgwire.sqlstates import PgError
from hub.shares import ASKER

DATABASE = "hub"
NOBODY = "anonymous"


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Identity of a connection. ``rules`` None: access was not controlled when it began. ``caller``: how it
    signed in; None: without a password.
    """

    user: str
    address: str
    who: Principal
    rules: AccessRules | None
    caller: AuthenticatedCaller | None = None

    def enter(self) -> None:
        """Make this the caller of the current task, and of the tasks and threads that it starts."""
        CALLER.set(None if self.rules is None else self.rules.caller(self.who))
        named = (
            f"{self.who.kind} {self.who.name}" if self.who.name else f"address {neighbourhood(self.address)}"
        )
        ASKER.set("" if self.who.kind == "own" else named)


def checked_database(database: str, user: str) -> None:
    """Raise PgError for a database that does not exist. Clients name the user's by default."""
    if database not in (DATABASE, user, "postgres"):
        raise PgError(
            "3D000", f'database "{database[:63]}" does not exist', f'the hub is database "{DATABASE}"'
        )


class DatabaseSignIn:
    """Signs connections in by the access.yaml of a server."""

    def __init__(self, access: LiveAccess, authenticator: Authenticator) -> None:
        self._access, self._authenticator = access, authenticator

    def without_password(self, user: str, address: str) -> SignedIn | None:
        """Return the identity where no password is needed: access is not controlled, or everybody has
        grants and the user is ``anonymous``; None: ask for one.
        """
        rules = self._access.rules
        if rules is None or (user == NOBODY and has_any(rules.policy, ANONYMOUS)):
            return SignedIn(user, address, ANONYMOUS, rules)
        return None

    async def by_password(self, user: str, password: str, address: str) -> SignedIn:
        """Return the identity of a user or token. Raises Unauthenticated, TooManyFailures, PeerError."""
        rules = self._access.rules
        if rules is None:
            return SignedIn(user, address, ANONYMOUS, None)
        given = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        asked = AuthRequest({"authorization": [given]}, {}, address)
        known = await self._authenticator.known(asked, rules)
        if not has_any(rules.policy, known.who):
            raise Unauthenticated("this user has no grant", hint="docs/how-to/control-access.md")
        return SignedIn(user, address, known.who, rules, known)

    def still(self, known: SignedIn) -> SignedIn:
        """Return the identity under the access.yaml of now. Raises PgError when it has lost access, or when
        its token was revoked or has expired.
        """
        if known.caller is not None and not self._authenticator.goes_on(known.caller):
            raise PgError("28000", "the token was revoked or has expired: sign in again")
        now = self._access.rules
        if now is known.rules or now is None:
            return known
        who = None if known.rules is None else now.same_principal(known.who, known.rules)
        if who is None or not has_any(now.policy, who):
            raise PgError("28000", "access.yaml has changed: sign in again")
        return SignedIn(known.user, known.address, who, now, known.caller)
