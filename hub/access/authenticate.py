"""[shell] Identify the caller of a request: by password, token, browser session, or a trusted proxy's header.

Tokens and logins of an OpenID Connect provider are checked by oidc_callers.py.

Checking a password takes about 100 ms, so a correct one is cached (as a keyed hash) until the file changes.
Two passwords are checked at a time, and an address with too many failures has to wait. Wrong tokens are
counted separately: tokens cannot be guessed, and a service with an expired token must not block sign-in for
other users at its address.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from hub.access.decide import ANONYMOUS, Principal
from hub.access.live_config import AccessRules, LiveAccess
from hub.access.oidc.claims import Identity, RefusedToken
from hub.access.oidc.login import LoginFailed
from hub.access.oidc.tokens import MOST_TOKEN, is_jwt
from hub.access.oidc_callers import OidcCallers, not_accepted
from hub.access.personal_tokens import PersonalTokens
from hub.access.secrets import (
    MOST_SESSION,
    SALT_BYTES,
    TOKEN_PREFIX,
    ends_at_s,
    fits_password,
    groups_in_session,
    hash_of_password,
    hash_of_token,
    name_in_session,
    session_holds,
    session_of,
)
from hub.access.signed_out_sessions import EndedSessions
from hub.access.throttle import Throttle
from hub.caller import TooManyFailures, Unauthenticated
from hub.errors import PeerError
from hub.home_key import OWN, own_password

log = logging.getLogger(__name__)

COOKIE = "hub_session"
SESSION_S = 12 * 3600
_AT_ONCE, _WAITING = 2, 64
_MOST_REMEMBERED = 10_000
_MOST_HEADER = MOST_TOKEN + 100
_MOST_ADDRESS = 64
_WRONG = "wrong user, password or token"
_HINT = "hub access ls shows who there is; hub access hash makes a new password or token"


@dataclass(frozen=True, slots=True)
class Proxies:
    """Trusted proxies: connections from ``addresses`` (hosts or networks). Their ``X-Forwarded-For`` gives
    the client's address, and ``header``, if set, the user.
    """

    header: str = ""
    addresses: Sequence[str] = ()

    def trusts(self, address: str) -> bool:
        return bool(self.addresses) and _is_among(address, tuple(self.addresses))

    def client_of(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the client address of a request from ``peer`` with these ``X-Forwarded-For`` headers.

        Each proxy appends the address it received the request from. Entries are therefore trusted from the
        end, as long as the previous one is a trusted proxy.

        >>> Proxies(addresses=["10.0.0.0/8"]).client_of("10.0.0.7", ["1.1.1.1, 192.0.2.9, 10.0.0.8"])
        '192.0.2.9'
        """
        client = peer
        for entry in reversed(",".join(forwarded).split(",")):
            address = _without_port(entry.strip())
            if not self.trusts(client) or len(address) > _MOST_ADDRESS or _parsed(address) is None:
                break
            client = address
        return client


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """Authentication data of a request. ``headers`` maps lower-case names to all values. ``address`` is the
    client's; ``peer`` is the connected proxy's, if there is one. ``certificate``: verified names of the
    client's certificate.
    """

    headers: Mapping[str, Sequence[str]]
    cookies: Mapping[str, str]
    address: str
    peer: str = ""
    certificate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuthenticatedCaller:
    """An authenticated caller and the method: ``password``, ``token``, ``session`` (with its text),
    ``certificate``, ``proxy`` or ``nobody``. ``ends_at_s``: end of the token, epoch seconds. ``token_id``: of
    a person's token.
    """

    who: Principal
    way: str
    session: str = ""
    ends_at_s: float | None = None
    token_id: str = ""


@dataclass
class Authenticator:
    """Authenticator for one access.yaml and one home key. Use it from one event loop."""

    access: LiveAccess
    key: bytes
    proxies: Proxies = Proxies()
    ended: EndedSessions | None = None
    tokens: PersonalTokens | None = None
    now_s: Callable[[], float] = time.time
    # monotonic clock, independent of changes to the system time
    steady_s: Callable[[], float] = time.monotonic
    oidc: OidcCallers = field(init=False)
    _passwords: Throttle = field(default_factory=Throttle)
    _tokens: Throttle = field(default_factory=Throttle)
    _gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    _waiting: int = 0
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _remembered: dict[bytes, Principal] = field(default_factory=dict)
    _of: AccessRules | None = None
    _decoy: str = field(default_factory=lambda: hash_of_password("", secrets.token_bytes(SALT_BYTES)))

    def __post_init__(self) -> None:
        self.oidc = OidcCallers(self.access, self.key, now_s=lambda: self.now_s())

    async def authenticate(self, auth_request: AuthRequest, rules: AccessRules) -> AuthenticatedCaller:
        """Authenticate a request. Raises Unauthenticated, TooManyFailures, PeerError if too many sign-ins are
        in progress.
        """
        if (name := self._named_by_proxy(auth_request, rules)) is not None:
            return AuthenticatedCaller(rules.user(name, "proxy"), "proxy")
        given = auth_request.headers.get("authorization", ())
        if given:
            if len(given) > 1 or len(given[0]) > _MOST_HEADER:
                raise Unauthenticated("one Authorization header, please", hint=_HINT)
            scheme, _, value = given[0].strip().partition(" ")
            if scheme.lower() == "bearer" and is_jwt(value.strip()):
                return await self._by_provider(value.strip(), auth_request.address, rules)
            if scheme.lower() == "bearer":
                return self._by_token(value.strip(), auth_request.address, rules)
            if scheme.lower() == "basic":
                return await self._by_basic(value.strip(), auth_request.address, rules)
            raise Unauthenticated(f'"{scheme[:20]}" is not spoken here: Basic and Bearer are', hint=_HINT)
        session = auth_request.cookies.get(COOKIE)
        if session and (who := self._in_session(session, rules)) is not None:
            return AuthenticatedCaller(who, "session", session)
        name = next(
            (rules.certificates[each] for each in auth_request.certificate if each in rules.certificates),
            None,
        )
        if name is not None:
            return AuthenticatedCaller(rules.user(name), "certificate")
        return AuthenticatedCaller(ANONYMOUS, "nobody")

    async def signed_in(self, name: str, password: str, address: str, rules: AccessRules) -> str:
        """Check a password and return a new session. Raises like ``authenticate``."""
        who = await self._by_password(name, password, address, rules)
        ends_at = int(self.now_s()) + SESSION_S
        return session_of(who.name, ends_at, self._proof(who.name, rules), self.key, secrets.token_hex(8))

    def logged_in(self, identity: Identity, rules: AccessRules) -> tuple[str, int]:
        """Return a new session for a login by the provider, and its length in seconds. Raises LoginFailed."""
        lasts_s = SESSION_S if rules.file.oidc is None else int(rules.file.oidc.session_h * 3600)
        proof, nonce = self._provider_proof(rules), secrets.token_hex(8)
        ends_at = int(self.now_s()) + lasts_s
        session = session_of(identity.name, ends_at, proof, self.key, nonce, identity.groups)
        if len(session) > MOST_SESSION:
            raise LoginFailed(
                f'"{identity.name}" is in {len(identity.groups)} groups of access.yaml, '
                "more than a session holds",
                "let access.yaml map the provider's groups to fewer ones (oidc: groups:)",
            )
        return session, lasts_s

    def sign_out(self, session: str, rules: AccessRules) -> None:
        """End the session on all servers. Ignores invalid sessions. Blocks; raises PeerError."""
        if self.ended is None or self._in_session(session, rules) is None:
            return
        try:
            self.ended.end(session, ends_at_s(session), self.now_s())
        except OSError as error:
            raise PeerError(
                f"the session ended on this server only: {error.strerror}",
                hint="the hub's home cannot be written; sign out again when it can",
                code="HUB-3073",
            ) from None

    def goes_on(self, authenticated_caller: AuthenticatedCaller) -> bool:
        """Return False if the caller's session was signed out since, or the provider's token has ended."""
        if authenticated_caller.ends_at_s is not None and self.now_s() >= authenticated_caller.ends_at_s:
            return False
        if (
            authenticated_caller.token_id
            and self.tokens is not None
            and not self.tokens.holds(authenticated_caller.token_id)
        ):
            return False
        return (
            not authenticated_caller.session
            or self.ended is None
            or not self.ended.has(authenticated_caller.session)
        )

    # ---- authentication methods

    def _named_by_proxy(self, auth_request: AuthRequest, rules: AccessRules) -> str | None:
        if not self.proxies.header or not self.proxies.trusts(auth_request.peer or auth_request.address):
            return None
        names = auth_request.headers.get(self.proxies.header.lower(), ())
        if not names:
            return None
        name = names[0].strip()
        if len(names) > 1 or not name or len(name) > 100 or name == OWN or name in rules.file.tokens:
            raise Unauthenticated(f"the proxy's header {self.proxies.header} names no user")
        return name

    def _by_token(self, token: str, address: str, rules: AccessRules) -> AuthenticatedCaller:
        # Looked up by hash, so timing reveals nothing about the token itself.
        hashed = hash_of_token(token)
        name = rules.tokens.get(hashed)
        if name is None and self.tokens is not None:
            own = self.tokens.find(hashed, self.now_s())
            if own is not None and own.owner in rules.file.users:
                who = replace(rules.user(own.owner), limits=own.limits(), by_token=True)
                return AuthenticatedCaller(who, "token", ends_at_s=own.expires_at_s, token_id=own.id)
        if name is None:
            self._may_try(address, self._tokens)
            raise self._wrong("a token", address, self._tokens)
        who = Principal(name, "token", frozenset(rules.file.tokens[name].groups))
        return AuthenticatedCaller(who, "token")

    async def _by_provider(self, token: str, address: str, rules: AccessRules) -> AuthenticatedCaller:
        try:
            who, ends_at_s = await self.oidc.by_bearer(token, rules)
        except RefusedToken as reason:
            self._may_try(address, self._tokens)
            self._wrong(f"a provider's token: {reason}", address, self._tokens)
            raise not_accepted(reason) from None
        return AuthenticatedCaller(who, "token", ends_at_s=ends_at_s)

    async def _by_basic(self, value: str, address: str, rules: AccessRules) -> AuthenticatedCaller:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            raise Unauthenticated(
                "the Authorization header is not Basic's user:password in Base64", hint=_HINT
            ) from None
        if not colon:
            raise Unauthenticated("Basic credentials are user:password", hint=_HINT)
        if name == OWN:
            if not hmac.compare_digest(password.encode(), own_password(self.key).encode()):
                self._may_try(address, self._tokens)
                raise self._wrong("the hub's own processes: is it another home?", address, self._tokens)
            return AuthenticatedCaller(Principal(OWN, "own"), "password")
        if password.startswith(TOKEN_PREFIX):
            authenticated = self._by_token(password, address, rules)
            if name not in ("", "token", authenticated.who.name):
                raise self._wrong(f'"{name[:100]}": the token is another\'s', address, self._tokens)
            return authenticated
        return AuthenticatedCaller(await self._by_password(name, password, address, rules), "password")

    async def _by_password(self, name: str, password: str, address: str, rules: AccessRules) -> Principal:
        if self._of is not rules:
            self._remembered.clear()
            self._of = rules
        mark = hashlib.blake2b(f"{name}\n{password}".encode(), key=self._secret).digest()
        if (authenticated := self._remembered.get(mark)) is not None:
            return authenticated
        if self._waiting >= _WAITING:
            raise PeerError("too many sign in at this moment", hint="try again in a second", code="HUB-3072")
        self._waiting += 1
        try:
            async with self._gate:
                if (authenticated := self._remembered.get(mark)) is not None:
                    return authenticated  # another request checked the same password meanwhile
                self._may_try(address, self._passwords)
                user = rules.file.users.get(name)
                line = (user.password if user is not None else None) or self._decoy
                fits = await asyncio.to_thread(fits_password, password, line)
        finally:
            self._waiting -= 1
        if not fits or line is self._decoy:
            raise self._wrong(f'user "{name[:100]}"', address, self._passwords)
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        if self._of is rules:
            self._remembered[mark] = rules.user(name)
        return rules.user(name)

    def _in_session(self, text: str, rules: AccessRules) -> Principal | None:
        """Return the owner of a valid session."""
        name = name_in_session(text)
        if name is None:
            return None
        by_provider = text.count(".") == 3
        if not by_provider and name not in rules.file.users:
            return None
        if by_provider and (rules.file.oidc is None or rules.belongs_to_others(name)):
            return None
        proof = self._provider_proof(rules) if by_provider else self._proof(name, rules)
        if not session_holds(text, self.now_s(), proof, self.key):
            return None
        if self.ended is not None and self.ended.has(text):
            return None
        groups = groups_in_session(text)
        if groups is None:
            return rules.user(name)
        return rules.oidc_user(name, frozenset(groups & rules.file.groups.keys()))

    def _proof(self, name: str, rules: AccessRules) -> str:
        user = rules.file.users.get(name)
        return (user.password if user is not None else None) or ""

    def _provider_proof(self, rules: AccessRules) -> str:
        """Return the proof in sessions of the provider: another provider, client or mapping ends them."""
        oidc = rules.file.oidc
        if oidc is None:
            return ""
        mapping = sorted((oidc.groups or {}).items())
        return repr((oidc.issuer, oidc.client_id, oidc.name_claim, oidc.groups_claim, mapping))

    # ---- failures

    def _may_try(self, address: str, throttle: Throttle) -> None:
        wait_s = throttle.wait_s(neighbourhood(address), self.steady_s())
        if wait_s:
            error = TooManyFailures(
                "too many wrong passwords or tokens from this address", hint=f"try again in {wait_s} s"
            )
            error.details = {"retry_after": str(wait_s)}
            raise error

    def _wrong(self, whom: str, address: str, throttle: Throttle) -> Unauthenticated:
        throttle.failed(neighbourhood(address), self.steady_s())
        log.warning("sign-in refused for %r from %s", whom, address)
        return Unauthenticated(_WRONG, hint=_HINT)


def neighbourhood(address: str) -> str:
    """Return the unit that failures are counted by: the IPv4 address, or the IPv6 /64 network, which one
    customer has.
    """
    parsed = _parsed(address)
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, 64), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(maxsize=1_000)
def _is_among(address: str, networks: tuple[str, ...]) -> bool:
    parsed = _parsed(address)
    return parsed is not None and any(parsed in ip_network(each) for each in networks)


def _without_port(address: str) -> str:
    """Remove a port that some proxies append: ``192.0.2.9:4711``, ``[2001:db8::9]:4711``."""
    if address.startswith("[") and "]" in address:
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    """Parse an address; None if invalid. An IPv4-mapped IPv6 address (``::ffff:10.0.0.1``) becomes IPv4."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, IPv6Address) else parsed
