"""[core] Password and token hashes of access.yaml, and browser sessions. Salt, tokens and time are arguments.

A password is stored as ``scrypt$<log2 n>$<r>$<p>$<salt>$<hash>`` (RFC 7914). A token is random, so it is
stored as ``sha256$<hash>``. A session is ``<name>.<ends at, s>-<nonce>.<signature>``, signed (HMAC-SHA256)
with the key of the hub's home and with the user's password hash: a new password ends every session. A session
of a login by OpenID Connect has the person's groups before the signature:
``<name>.<ends>-<nonce>.<groups>.<…>``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable

TOKEN_PREFIX = "hubt_"
SALT_BYTES = 16
TOKEN_BYTES = 32
_LOG2_N, _R, _P = 14, 8, 5  # 16 MiB; about 150 ms of one core, as OWASP recommends for 2^14
_MOST_LOG2_N, _MOST_RP = 18, 32
_MOST_PASSWORD = 1_000
MOST_SESSION = 3_800  # browsers keep cookies of 4,096 bytes
_SCRYPT = re.compile(r"scrypt\$(\d{1,2})\$(\d{1,2})\$(\d{1,2})\$([A-Za-z0-9_-]{11,64})\$([A-Za-z0-9_-]{43})")
_SHA256 = re.compile(r"sha256\$([0-9a-f]{64})")


def hash_of_password(password: str, salt: bytes) -> str:
    """Return the line for access.yaml."""
    return f"scrypt${_LOG2_N}${_R}${_P}${_text(salt)}${_text(_scrypt(password, salt, _LOG2_N, _R, _P))}"


def hash_of_token(token: str) -> str:
    """Return the line for access.yaml. Use it for random tokens only: a chosen word could be guessed."""
    return f"sha256${hashlib.sha256(token.encode()).hexdigest()}"


def token_of(random: bytes) -> str:
    """Make a token from ``TOKEN_BYTES`` random bytes."""
    return TOKEN_PREFIX + _text(random)


def checked_password_hash(line: str) -> str:
    """Return the line unchanged if it is valid. Raises ValueError."""
    match = _SCRYPT.fullmatch(line)
    if match is None:
        raise ValueError("no hash of a password; make one: hub access hash")
    log2_n, r, p = (int(each) for each in match.groups()[:3])
    if not 14 <= log2_n <= _MOST_LOG2_N or not 1 <= r * p <= _MOST_RP * 8 or r == 0:
        raise ValueError("scrypt with these costs is too weak or too dear; make one: hub access hash")
    return line


def checked_token_hash(line: str) -> str:
    """Return the line unchanged if it is valid. Raises ValueError."""
    if not _SHA256.fullmatch(line):
        raise ValueError("no hash of a token; make a token: hub access hash --token")
    return line


def fits_password(password: str, line: str) -> bool:
    """Return True if the password matches the line. Takes about 100 ms either way."""
    match = _SCRYPT.fullmatch(line)
    if match is None or len(password) > _MOST_PASSWORD:
        return False
    log2_n, r, p = (int(each) for each in match.groups()[:3])
    return hmac.compare_digest(_text(_scrypt(password, _bytes(match[4]), log2_n, r, p)), match[5])


def session_of(
    name: str,
    ends_at_s: int,
    proof: str,
    key: bytes,
    nonce: str = "0",
    groups: Iterable[str] | None = None,
) -> str:
    """Build a session text. ``proof`` is the user's password hash, or the provider of a login with
    ``groups``.
    ``nonce`` is hexadecimal; it distinguishes sessions of one user with the same end, of which one may be
    signed out.
    """
    signed = f"{_text(name.encode())}.{ends_at_s}-{nonce}"
    if groups is not None:
        signed += f".{_text(json.dumps(sorted(groups)).encode())}"
    return f"{signed}.{_signature(signed, proof, key)}"


def name_in_session(text: str) -> str | None:
    """Return the unverified user name in a session, None if the text is malformed."""
    parts = text.split(".")
    if len(parts) not in (3, 4) or len(text) > MOST_SESSION:
        return None
    try:
        return _bytes(parts[0]).decode()
    except ValueError:
        return None


def session_holds(text: str, now_s: float, proof: str, key: bytes) -> bool:
    """Return True if the session has a valid signature and has not expired."""
    signed, _, signature = text.rpartition(".")
    ends = signed.partition(".")[2].partition("-")[0]
    if not hmac.compare_digest(signature.encode(), _signature(signed, proof, key).encode()):
        return False
    return ends.isascii() and ends.isdecimal() and now_s < int(ends)


def ends_at_s(session: str) -> int:
    """Return the expiry of a valid session, epoch seconds."""
    return int(session.split(".")[1].partition("-")[0])


def groups_in_session(session: str) -> frozenset[str] | None:
    """Return the groups of a session that ``session_holds`` verified; None for one of a password."""
    parts = session.split(".")
    return frozenset(json.loads(_bytes(parts[2]))) if len(parts) == 4 else None


def _signature(signed: str, proof: str, key: bytes) -> str:
    return _text(hmac.new(key, f"session\n{signed}\n{proof}".encode(), hashlib.sha256).digest())


def _scrypt(password: str, salt: bytes, log2_n: int, r: int, p: int) -> bytes:
    n = 1 << log2_n
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=32)


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
