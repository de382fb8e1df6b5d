"""[core] Signatures of webhooks: whether a request is its sender's.

Each sender signs the bytes of the body, most of them with the time, by HMAC with a shared secret. The schemes
are in the senders' documentation: GitHub (X-Hub-Signature-256), Stripe (Stripe-Signature), Slack
(X-Slack-Signature), Shopify (X-Shopify-Hmac-SHA256), GitLab (X-Gitlab-Token), and Standard Webhooks
(webhook-signature). Comparisons take the same time for every wrong value.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Scheme = Literal["github", "stripe", "slack", "shopify", "gitlab", "standard", "hmac", "token"]
TOLERANCE_S = 300.0
_WHSEC = "whsec_"


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Request with its signature. ``headers``: names in lower case.
    ``now_s``: the server's clock, epoch seconds."""

    headers: Mapping[str, str]
    body: bytes
    now_s: float


@dataclass(frozen=True, slots=True)
class Verification:
    """Settings of the check: the scheme, its secrets (the present one and those before it),
    and, for ``hmac`` and ``token``, the header, how the signature is written in it, and what precedes it.
    """

    scheme: Scheme
    secrets: Sequence[str]
    header: str = ""
    encoding: Literal["hex", "base64"] = "hex"
    prefix: str = ""
    algorithm: Literal["sha256", "sha512", "sha1"] = "sha256"


def refusal(how: Verification, request: SignedRequest) -> str | None:
    """Return why a request is not the sender's, without a secret; None: it is."""
    return _SCHEMES[how.scheme](how, request)


def _digest(secret: bytes, signed: bytes, algorithm: str = "sha256") -> bytes:
    return hmac.new(secret, signed, getattr(hashlib, algorithm)).digest()


def _matches(
    signatures: Iterable[bytes], secrets: Iterable[bytes], signed: bytes, algorithm: str = "sha256"
) -> bool:
    expected = [_digest(secret, signed, algorithm) for secret in secrets]
    # All are compared, so the duration does not reveal which of them matched.
    return sum(hmac.compare_digest(one, other) for one in signatures for other in expected) > 0


def _decoded(text: str, encoding: str) -> bytes:
    """Return the bytes of a signature; b"", which matches none, for another text."""
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def _plain(how: Verification, request: SignedRequest) -> str | None:
    """A signature of the body alone."""
    signature_header = request.headers.get(how.header.lower())
    if signature_header is None:
        return f"the header {how.header} is missing"
    if not signature_header.startswith(how.prefix):
        return f'the header {how.header} does not begin with "{how.prefix}"'
    signature = _decoded(signature_header.removeprefix(how.prefix).strip(), how.encoding)
    secrets = [secret.encode() for secret in how.secrets]
    if _matches([signature], secrets, request.body, how.algorithm):
        return None
    return f"the signature in {how.header} is not that of the body with the secret of this webhook"


def _fixed(header: str, encoding: Literal["hex", "base64"], prefix: str = "") -> Callable[..., str | None]:
    def check(how: Verification, request: SignedRequest) -> str | None:
        return _plain(Verification(how.scheme, how.secrets, header, encoding, prefix), request)

    return check


def _token(how: Verification, request: SignedRequest) -> str | None:
    """The secret itself, in a header."""
    header = how.header or "X-Gitlab-Token"
    token = request.headers.get(header.lower())
    if token is None:
        return f"the header {header} is missing"
    shown = token.removeprefix(how.prefix).encode()
    same = sum(hmac.compare_digest(shown, each.encode()) for each in how.secrets)
    if token.startswith(how.prefix) and same:
        return None
    return f"the token in {header} is not that of this webhook"


def _timed(header: str, at: str, signatures: Sequence[bytes], secrets: Sequence[bytes], signed: bytes,
           now_s: float) -> str | None:  # fmt: skip
    """A signature that covers its time, in epoch seconds: one that is too old may be a recorded request."""
    if not at.isascii() or not at.isdecimal() or len(at) > 12:
        return f"{header} has no time in seconds"
    if not _matches(signatures, secrets, signed):
        return f"the signature in {header} is not that of the body with the secret of this webhook"
    if abs(now_s - int(at)) > TOLERANCE_S:
        return (
            f"the request was signed {now_s - int(at):.0f} s ago by this server's clock; at most "
            f"{TOLERANCE_S:.0f} s are accepted"
        )
    return None


def _stripe(how: Verification, request: SignedRequest) -> str | None:
    signature_header = request.headers.get("stripe-signature")
    if signature_header is None:
        return "the header Stripe-Signature is missing"
    parts = [part.strip().partition("=") for part in signature_header.split(",")[:20]]
    at = next((value for name, _, value in parts if name == "t"), "")
    signatures = [_decoded(value, "hex") for name, _, value in parts if name == "v1"]
    secrets = [each.encode() for each in how.secrets]
    signed = at.encode() + b"." + request.body
    return _timed("Stripe-Signature", at, signatures, secrets, signed, request.now_s)


def _slack(how: Verification, request: SignedRequest) -> str | None:
    signature_header, at = (
        request.headers.get(name) for name in ("x-slack-signature", "x-slack-request-timestamp")
    )
    if signature_header is None or at is None:
        return "the headers X-Slack-Signature and X-Slack-Request-Timestamp are missing"
    signature = (
        _decoded(signature_header.removeprefix("v0="), "hex") if signature_header.startswith("v0=") else b""
    )
    secrets = [each.encode() for each in how.secrets]
    signed = b"v0:" + at.encode() + b":" + request.body
    return _timed("X-Slack-Signature", at, [signature], secrets, signed, request.now_s)


def _standard(how: Verification, request: SignedRequest) -> str | None:
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    values = [
        request.headers.get(name) or request.headers.get(name.replace("webhook", "svix")) for name in names
    ]
    if None in values:
        return "the headers webhook-id, webhook-timestamp and webhook-signature are needed"
    id_, at, shown = (each or "" for each in values)
    parts = [part.partition(",") for part in shown.split(" ")[:20]]
    signatures = [_decoded(value, "base64") for version, _, value in parts if version == "v1"]
    secrets = [_standard_secret(each) for each in how.secrets]
    signed = f"{id_}.{at}.".encode() + request.body
    return _timed("webhook-signature", at, signatures, secrets, signed, request.now_s)


def _standard_secret(secret: str) -> bytes:
    """Return the key of ``whsec_`` and base64; another text is the key itself."""
    return _decoded(secret.removeprefix(_WHSEC), "base64") if secret.startswith(_WHSEC) else secret.encode()


_SCHEMES: Mapping[Scheme, Callable[[Verification, SignedRequest], str | None]] = {
    "github": _fixed("X-Hub-Signature-256", "hex", "sha256="),
    "shopify": _fixed("X-Shopify-Hmac-SHA256", "base64"),
    "stripe": _stripe,
    "slack": _slack,
    "standard": _standard,
    "gitlab": _token,
    "hmac": _plain,
    "token": _token,
}
DELIVERY_IDS: Mapping[Scheme, str] = {
    "github": "X-GitHub-Delivery",
    "shopify": "X-Shopify-Webhook-Id",
    "gitlab": "X-Gitlab-Event-UUID",
    "standard": "webhook-id",
    "stripe": "$.id",
    "slack": "$.event_id",
}
"""Where each sender names a delivery, so that a repeated one is known: a header, or ``$.`` and a field."""


def signed_headers(how: Verification, body: bytes, now_s: float, delivery: str) -> dict[str, str]:
    """Return the headers with which a sender would sign this body: for a trial request."""
    secret, at = how.secrets[0], str(int(now_s))
    headers: dict[str, str] = {}
    match how.scheme:
        case "github":
            headers["X-Hub-Signature-256"] = "sha256=" + _digest(secret.encode(), body).hex()
        case "shopify":
            headers["X-Shopify-Hmac-SHA256"] = base64.b64encode(_digest(secret.encode(), body)).decode()
        case "stripe":
            signature = _digest(secret.encode(), at.encode() + b"." + body).hex()
            headers["Stripe-Signature"] = f"t={at},v1={signature}"
        case "slack":
            headers["X-Slack-Request-Timestamp"] = at
            headers["X-Slack-Signature"] = "v0=" + _digest(secret.encode(), f"v0:{at}:".encode() + body).hex()
        case "standard":
            signed = _digest(_standard_secret(secret), f"{delivery}.{at}.".encode() + body)
            headers["webhook-timestamp"] = at
            headers["webhook-signature"] = "v1," + base64.b64encode(signed).decode()
        case "hmac":
            digest = _digest(secret.encode(), body, how.algorithm)
            shown = digest.hex() if how.encoding == "hex" else base64.b64encode(digest).decode()
            headers[how.header] = how.prefix + shown
        case "gitlab" | "token":
            headers[how.header or "X-Gitlab-Token"] = how.prefix + secret
    named = DELIVERY_IDS.get(how.scheme, "")
    return headers if not named or named.startswith("$.") else headers | {named: delivery}
