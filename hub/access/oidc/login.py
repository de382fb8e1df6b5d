"""[core] Login of people by authorization code with PKCE (RFC 6749, 4.1; RFC 7636; RFC 9207).

What a login must remember is in a cookie of the browser that began it, signed with the home's key: no other
browser can end that login (state), no other token fits it (nonce), and no other client can use its code
(verifier).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlencode

from hub.access.oidc.settings import OidcNode
from hub.errors import CallerError

COOKIE = "hub_login"
LOGIN_S = 600
_MOST_COOKIE = 8_000
_AGAIN = "begin again at the sign-in page"


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A login that has begun. ``next``: path of the page that it leads back to."""

    state: str
    nonce: str
    verifier: str
    next: str
    ends_at_s: int


class LoginFailed(CallerError):
    """The provider's answer does not belong to a login of this browser, or is an error."""

    code = "HUB-1706"

    def __init__(self, message: str, hint: str = _AGAIN) -> None:
        super().__init__(message, hint=hint)


def sealed(attempt: LoginAttempt, key: bytes) -> str:
    """Return the attempt as a signed cookie."""
    body = _text(json.dumps(asdict(attempt)).encode())
    return f"{body}.{_signature(body, key)}"


def unsealed(cookie: str, key: bytes, now_s: float) -> LoginAttempt:
    """Return the attempt in a cookie. Raises LoginFailed for a changed, missing or expired one."""
    body, _, signature = cookie.partition(".")
    fits = hmac.compare_digest(signature.encode(), _signature(body, key).encode())
    if len(cookie) > _MOST_COOKIE or not fits:
        raise LoginFailed("this browser has not begun a login, or began another one since")
    attempt = LoginAttempt(**json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))))
    if now_s >= attempt.ends_at_s:
        raise LoginFailed(f"the login took longer than {LOGIN_S // 60} minutes")
    return attempt


def authorization_url(endpoint: str, oidc: OidcNode, attempt: LoginAttempt, redirect_uri: str) -> str:
    """Return the address of the provider's sign-in page for this attempt."""
    challenge = hashlib.sha256(attempt.verifier.encode()).digest()
    query = urlencode(
        {
            "response_type": "code",
            "client_id": oidc.client_id or "",
            "redirect_uri": redirect_uri,
            "scope": " ".join(oidc.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _text(challenge),
            "code_challenge_method": "S256",
        }
    )
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"


def code_in(answer: Mapping[str, str], attempt: LoginAttempt, oidc: OidcNode) -> str:
    """Return the authorization code in the provider's answer. Raises LoginFailed."""
    if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
        raise LoginFailed("this answer belongs to another login")
    if answer.get("iss", oidc.issuer) != oidc.issuer:
        raise LoginFailed("this answer is from another identity provider")
    if error := answer.get("error"):
        reason = error if error.isprintable() else "an error"
        raise LoginFailed(f"the identity provider refuses the login: {reason[:100]}")
    code = answer.get("code", "")
    if not code or len(code) > 4_000:
        raise LoginFailed("the identity provider's answer has no code")
    return code


def exchange_form(code: str, attempt: LoginAttempt, redirect_uri: str) -> dict[str, str]:
    """Return the form that exchanges the code for tokens."""
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": attempt.verifier,
    }


def _signature(body: str, key: bytes) -> str:
    return _text(hmac.new(key, f"login\n{body}".encode(), hashlib.sha256).digest())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
