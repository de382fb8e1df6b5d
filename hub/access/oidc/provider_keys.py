"""[shell] The issuer of tokens: its discovery document (OpenID Connect Discovery 1.0), its keys, and its
endpoint for tokens.

Use it from one event loop. Requests are made in threads, one fetch of keys at a time; each answer is at most
1 MiB and takes at most 10 s.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hub.access.oidc.claims import Claims
from hub.access.oidc.key_refresh import Fetches, may_refresh, must_fetch, usable
from hub.access.oidc.settings import OidcNode, checked_url
from hub.access.oidc.tokens import Key, UnknownKey, header_of, key_for, keys_of, verified
from hub.errors import PeerError
from hub.security import secret_value

log = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
_MOST_ANSWER = 1 << 20
_TIMEOUT_S, _LONGEST_S = 5.0, 10.0

Ask = Callable[[str, Mapping[str, str] | None, tuple[str, str] | None], object]
"""(address, form to post or None for GET, user and password) → JSON. Raises OSError, ValueError."""


class NoAnswer(OSError):
    """The issuer answered with an error; ``body`` is its JSON, if it sent some."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(f"status {status}")
        self.body = body


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the issuer."""

    authorization: str
    token: str
    keys: str
    posts_secret: bool  # the client's secret goes into the form, not into the header


@dataclass
class Provider:
    """One issuer. ``keys`` and ``endpoints`` are cached; see key_refresh.py for how long."""

    oidc: OidcNode
    folder: Path
    ask: Ask | None = None
    steady_s: Callable[[], float] = time.monotonic
    _keys: tuple[Key, ...] = ()
    _endpoints: Endpoints | None = None
    _fetches: Fetches = field(default_factory=Fetches)
    _error: str = ""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _background: asyncio.Task[None] | None = None

    async def claims(self, token: str) -> Claims:
        """Return the claims of a token that the issuer signed. Raises RefusedToken; PeerError (HUB-3074)
        while its keys cannot be had.
        """
        header = header_of(token, self.oidc.algorithms)
        await self._fetched(unknown=False)
        try:
            key = key_for(header, self._keys)
        except UnknownKey:
            await self._fetched(unknown=True)
            try:
                key = key_for(header, self._keys)
            except UnknownKey:
                if self._fetches.failing:
                    raise self._away() from None
                raise
        return verified(token, header, key)

    async def endpoints(self) -> Endpoints:
        """Return the issuer's addresses. Raises PeerError (HUB-3074)."""
        await self._fetched(unknown=False)
        if self._endpoints is None:
            raise self._away()
        return self._endpoints

    async def exchange(self, form: Mapping[str, str]) -> str:
        """Return the ID token for an authorization code.
        Raises PeerError, ConfigError for a missing secret."""
        endpoints = await self.endpoints()
        secret = client_secret(self.oidc)
        client = self.oidc.client_id or ""
        form = {**form, "client_id": client}
        auth = None
        if secret is not None and endpoints.posts_secret:
            form["client_secret"] = secret
        elif secret is not None:
            auth = (client, secret)
        try:
            answer = await asyncio.to_thread(self._request, endpoints.token, form, auth)
            token = answer.get("id_token") if isinstance(answer, Mapping) else None
            if not isinstance(token, str):
                raise ValueError("the answer has no id_token")  # noqa: TRY004
        except (OSError, ValueError) as error:
            body = getattr(error, "body", None)
            reason = body.get("error") if isinstance(body, Mapping) else error
            log.error("%s does not exchange a code: %.200r", endpoints.token, reason)
            raise PeerError(
                f"the identity provider {self.oidc.issuer} refuses the sign-in ({str(reason)[:100]})",
                hint="begin again; invalid_client: check client_id and client_secret of oidc in access.yaml",
                code="HUB-3075",
            ) from None
        return token

    async def _fetched(self, *, unknown: bool) -> None:
        now = self.steady_s()
        if must_fetch(self._fetches, now, unknown=unknown):
            async with self._lock:  # who waited for another's fetch finds that it was made
                if must_fetch(self._fetches, self.steady_s(), unknown=unknown):
                    await self._fetch()
        elif may_refresh(self._fetches, now) and (self._background is None or self._background.done()):
            self._background = asyncio.create_task(self._refreshed())
        if not usable(self._fetches, self.steady_s()):
            raise self._away()

    async def _refreshed(self) -> None:
        async with self._lock:
            if may_refresh(self._fetches, self.steady_s()):
                await self._fetch()

    async def _fetch(self) -> None:
        self._fetches = replace(self._fetches, tried_at=self.steady_s())
        try:
            endpoints = endpoints_of(
                await asyncio.to_thread(self._request, self.oidc.issuer.rstrip("/") + DISCOVERY), self.oidc
            )
            keys = keys_of(await asyncio.to_thread(self._request, endpoints.keys))
        except (OSError, ValueError) as error:
            self._error = str(error)[:200] or type(error).__name__
            log.error("keys of %s cannot be fetched: %s", self.oidc.issuer, self._error)
            return
        self._keys, self._endpoints, self._error = keys, endpoints, ""
        self._fetches = replace(self._fetches, got_at=self._fetches.tried_at)
        log.info("%s has %d keys", self.oidc.issuer, len(keys))

    def _request(
        self, url: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None
    ) -> object:
        ca = None if self.oidc.ca is None else self.folder / self.oidc.ca
        return self.ask(url, form, auth) if self.ask is not None else ask_over_http(url, form, auth, ca)

    def _away(self) -> PeerError:
        return PeerError(
            f"the identity provider {self.oidc.issuer} does not answer: {self._error}",
            hint="tokens cannot be checked without its keys; try again, and check issuer "
            "and ca in access.yaml",
            code="HUB-3074",
        )


def endpoints_of(document: object, oidc: OidcNode) -> Endpoints:
    """Return the addresses in a discovery document. Raises ValueError."""
    if not isinstance(document, Mapping):
        raise ValueError(f"{DISCOVERY} is not a JSON object")  # noqa: TRY004
    if document.get("issuer") != oidc.issuer:
        raise ValueError(f"it names itself {str(document.get('issuer'))[:200]}: write exactly that as issuer")
    named = [document.get(each) for each in ("authorization_endpoint", "token_endpoint", "jwks_uri")]
    if oidc.client_id is None:
        named = [named[2]] * 3  # services alone: the others are not used
    urls = [checked_url(each) for each in named if isinstance(each, str)]
    if len(urls) < len(named):
        raise ValueError(f"{DISCOVERY} lacks an address")
    ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    posts = isinstance(ways, list) and "client_secret_basic" not in ways
    return Endpoints(urls[0], urls[1], urls[2], posts_secret=posts)


def client_secret(oidc: OidcNode) -> str | None:
    """Return the secret; None for a public client. Raises ConfigError if its variable is not set."""
    if oidc.client_secret is None:
        return None
    hint = "set {} to the client's secret and restart the server"
    return secret_value(oidc.client_secret, os.environ, "access.yaml: oidc", hint)


def ask_over_http(
    url: str, form: Mapping[str, str] | None, auth: tuple[str, str] | None, ca: Path | None = None
) -> object:
    """Return the JSON at an address. Follows no redirect. Blocks for at most 15 s.
    Raises OSError, ValueError."""
    import httpx2

    ends_at = time.monotonic() + _LONGEST_S
    context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    try:
        with (
            httpx2.Client(
                verify=context, timeout=_TIMEOUT_S, headers={"Accept": "application/json"}
            ) as client,
            client.stream("GET" if form is None else "POST", url, data=form, auth=auth) as answer,
        ):
            body = b""
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > _MOST_ANSWER or time.monotonic() > ends_at:
                    raise ValueError("the answer is too large or too slow")
            status = answer.status_code
    except httpx2.HTTPError as error:
        raise OSError(f"{type(error).__name__} {error}".strip()) from None
    if status != 200:
        try:
            raise NoAnswer(status, json.loads(body))
        except ValueError:
            raise NoAnswer(status, None) from None
    found: object = json.loads(body)
    return found
