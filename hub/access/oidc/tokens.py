"""[core] Signed tokens (JWS, RFC 7515): the form of a token, the key that it names, and its signature.

The header of a token is input from outside. Only ``alg`` and ``kid`` of it are used, and ``alg`` only within
the list of access.yaml; keys and addresses in it (``jwk``, ``jku``, ``x5u``) are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError

from hub.access.oidc.claims import Claims, RefusedToken

MOST_TOKEN = 16_000
_MOST_KEYS = 100
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey


class UnknownKey(RefusedToken):
    """The token names a key that is not among the known ones; the issuer may have a new one."""


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """The unverified header of a token."""

    algorithm: str
    kid: str | None


def is_jwt(text: str) -> bool:
    """Return whether a bearer token has the form of a signed JWT, not of the hub's own tokens."""
    return text.startswith("ey") and text.count(".") >= 2


def header_of(token: str, algorithms: Collection[str]) -> TokenHeader:
    """Return the header. Raises RefusedToken for a token of another form or another algorithm."""
    if len(token) > MOST_TOKEN:
        raise RefusedToken(f"it is longer than {MOST_TOKEN:,} characters")
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise RefusedToken("it is not a signed token of three parts")
    try:
        header = json.loads(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        raise RefusedToken("its header is not JSON") from None
    if not isinstance(header, dict) or header.get("alg") not in algorithms:
        raise RefusedToken(f"it is not signed with {', '.join(algorithms)}")
    if "cty" in header or "crit" in header:
        raise RefusedToken("it contains another token, or extensions that the hub does not know")
    kid = header.get("kid")
    if kid is not None and (not isinstance(kid, str) or len(kid) > 300):
        raise RefusedToken("the id of its key is not a text")
    return TokenHeader(str(header["alg"]), kid)


def keys_of(jwks: object) -> tuple[Key, ...]:
    """Return the public signing keys of a JSON Web Key Set (RFC 7517). Keys of other kinds are left out.

    Raises ValueError for what is not a key set.
    """
    listed = jwks.get("keys") if isinstance(jwks, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")  # noqa: TRY004
    return tuple(key for each in listed[:_MOST_KEYS] if (key := _key_of(each)) is not None)


def _key_of(entry: object) -> Key | None:
    if not isinstance(entry, Mapping) or entry.get("use", "sig") != "sig":
        return None
    public: dict[str, Any] = {name: value for name, value in entry.items() if name not in ("key_ops", "x5c")}
    kinds: Mapping[object, type[Key]] = {"RSA": jwk.RSAKey, "EC": jwk.ECKey, "OKP": jwk.OKPKey}
    kind = kinds.get(public.get("kty"))
    try:
        return None if kind is None else kind.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        return None  # of a curve or form that is not known here: it signs nothing that is accepted


def key_for(header: TokenHeader, keys: Sequence[Key]) -> Key:
    """Return the key that a token names, or the only one that fits. Raises UnknownKey, RefusedToken."""
    if header.kid is not None:
        keys = [each for each in keys if each.kid == header.kid]
        if not keys:
            raise UnknownKey("its key is not one of the issuer's")
    kind = _KEY_TYPES[header.algorithm[:2]]
    fitting = [each for each in keys if each.key_type == kind and _may_sign(each, header.algorithm)]
    if len(fitting) != 1:
        raise RefusedToken("its key is not one for this algorithm" if keys else "the issuer has no keys")
    return fitting[0]


def _may_sign(key: Key, algorithm: str) -> bool:
    bound = key.as_dict(private=False).get("alg")
    return bound is None or bound == algorithm or {bound, algorithm} == {"EdDSA", "Ed25519"}


def verified(token: str, header: TokenHeader, key: Key) -> Claims:
    """Return the claims of a token with a valid signature. Raises RefusedToken."""
    try:
        claims: Claims = jwt.decode(token, key, algorithms=[header.algorithm]).claims
    except (JoseError, ValueError, RecursionError):
        raise RefusedToken("its signature or form is wrong") from None
    return claims
