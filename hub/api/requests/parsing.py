"""[edge] Method, host, address, credentials and origin of an ASGI request."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.requests import cookie_parser

from hub.access.authenticate import AuthRequest, Proxies
from hub.observability.web.page import is_of

Scope = MutableMapping[str, Any]


def method_of(scope: Scope) -> str:
    return str(scope.get("method", "WEBSOCKET"))


def come_through(scope: Scope, proxies: Proxies) -> None:
    """Set the scope's client and scheme from the headers of a trusted proxy.

    Otherwise all clients behind a proxy would be one address and share its limit of ten wrong passwords.
    """
    peer = scope["client"][0] if scope.get("client") else ""
    if not proxies.trusts(peer):  # else anyone may have set the headers
        return
    headers = scope["headers"]
    forwarded = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
    scope["hub.peer"], scope["client"] = peer, (proxies.client_of(peer, forwarded), 0)
    by = next((value for name, value in headers if name == b"x-forwarded-proto"), b"").strip().lower()
    if by in (b"http", b"https"):
        secure = by == b"https"
        scope["scheme"] = ("wss" if secure else "ws") if scope["type"] == "websocket" else by.decode()


def host_of(scope: Scope) -> str:
    """Return the header Host; "" for a request without one, and for /health, which is not checked."""
    if scope["path"] == "/health":
        return ""
    found = next((value for name, value in scope["headers"] if name == b"host"), b"")
    return str(found.decode("latin-1"))


def auth_request_of(scope: Scope) -> AuthRequest:
    """Return the request's headers, cookies and address."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    cookies: dict[str, str] = {}
    for line in headers.get("cookie", ()):
        # Not http.cookies: all programs of a host share cookies, and a malformed one would hide those after
        # it.
        cookies |= cookie_parser(line)
    client = scope.get("client")
    return AuthRequest(
        headers,
        cookies,
        client[0] if client else "",
        scope.get("hub.peer", ""),
        scope.get("hub.certificate", ()),
    )


def of_this_site(auth_request: AuthRequest, way: str) -> bool:
    """Return whether a request that changes something was intended: browsers attach credentials to any page's
    requests.

    A token is sent on purpose. A session must show that the request comes from a page of this server.
    """
    if way == "token":
        return True
    site, origin, host = (
        auth_request.headers.get(name, [""])[0] for name in ("sec-fetch-site", "origin", "host")
    )
    if site:
        return site == "same-origin"
    if origin:
        return is_of(origin, host)
    return way != "session"  # over TLS, where certificates are, browsers say where a request is from
