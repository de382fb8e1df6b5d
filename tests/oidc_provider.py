"""A small OpenID Connect provider with real keys: discovery, JWKS, authorization code with PKCE, and client
credentials. Its keys rotate, and it can be away or lie.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwk, jwt

AUDIENCE, CLIENT, SECRET = "event-hub", "hub-page", "oidc-canary-7731"


@dataclass
class OidcProvider:
    """One issuer. ``people``: claims by user name. ``asked``: paths of the requests that it got."""

    issuer: str
    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: list[jwk.RSAKey] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    away: bool = False
    lies: dict[str, Any] = field(default_factory=dict)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rotate()

    def rotate(self) -> None:
        """Sign with a new key from now on; the last two are published."""
        kid = f"key-{secrets.token_hex(4)}"
        self.keys = [jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}), *self.keys[:1]]

    def token(self, key: jwk.RSAKey | None = None, /, **changed: Any) -> str:
        """Return a signed token of a service; a claim that is None is left out."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": AUDIENCE, "sub": "checkout", "iat": now, "exp": now + 300}
        return self.signed({**claims, **changed}, key)

    def signed(self, claims: Mapping[str, Any], key: jwk.RSAKey | None = None) -> str:
        by = key or self.keys[0]
        header = {"alg": "RS256", "kid": by.kid or ""}
        return jwt.encode(header, {name: each for name, each in claims.items() if each is not None}, by)

    def get(self, path: str, query: Mapping[str, str]) -> tuple[int, object]:
        if path.endswith("/.well-known/openid-configuration"):
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            } | self.lies
        if path.endswith("/keys"):
            return 200, {"keys": [each.as_dict(private=False) for each in self.keys]}
        return 404, {}

    def authorize(self, query: Mapping[str, str]) -> str:
        """Return the address that leads back with a code, for the user who has signed in."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'iss': self.issuer})}"  # noqa: E501

    def exchange(self, form: Mapping[str, str], authorization: str) -> tuple[int, object]:
        if form.get("grant_type") == "client_credentials":
            return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": 300}
        if authorization != "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            return 401, {"error": "invalid_client"}
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or challenge != asked["code_challenge"]
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        who = self.people[asked["user"]]
        return 200, {
            "token_type": "Bearer",
            "access_token": self.token(),
            "id_token": self.token(aud=CLIENT, nonce=asked["nonce"], sub=f"id-{asked['user']}", **who),
        }


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    """Yield a provider at an address of this machine."""
    made: OidcProvider

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = urlsplit(self.path).path, dict(parse_qsl(urlsplit(self.path).query))
            made.asked.append(path)
            if made.away:
                return self.answer(503, b"{}")
            if path.endswith("/authorize") and "user" in query:
                return self.answer(303, b"", {"Location": made.authorize(query)})
            if path.endswith("/authorize"):
                hidden = "".join(f'<input type="hidden" name="{k}" value="{v}">' for k, v in query.items())
                page = (
                    f"<form>{hidden}<label>Account <input "
                    'name="user"></label><button>Continue</button></form>'
                )
                return self.answer(200, page.encode(), {"Content-Type": "text/html"})
            status, body = made.get(path, query)
            return self.answer(status, json.dumps(body).encode())

        def do_POST(self) -> None:
            made.asked.append(self.path)
            form = dict(parse_qsl(self.rfile.read(int(self.headers.get("content-length", 0))).decode()))
            status, body = made.exchange(form, self.headers.get("authorization", ""))
            self.answer(503 if made.away else status, json.dumps(body).encode())

        def answer(self, status: int, body: bytes, headers: Mapping[str, str] = {}) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    made = OidcProvider(f"http://127.0.0.1:{server.server_address[1]}/realms/shop")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
