"""[core] Chain of hashes over the records of one process, with signed checkpoints.

Each record has the id of its chain, its number in it (``sequence``, from 0), and ``previous``: the SHA-256 of
the value of the record before it in the chain, "" for the first. The first record, checkpoints and the last
one are signed with Ed25519 over chain, sequence, previous, and ``after``: place and hash of the record that
was the topic's last when the chain began. So chains hold each other: a chain that is removed as a whole is
missed by the next one.

An append with an unknown outcome ends its chain, because nobody knows whether ``previous`` is in the log.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.entry import Entry, StoredEntry, Who, encode

SIGNED: Final = (LoggedAction.log_open, LoggedAction.log_checkpoint, LoggedAction.log_close)


class LogSigner:
    """Signs checkpoints with a key that is derived from the key of the home."""

    def __init__(self, home_key: bytes) -> None:
        seed = hmac.new(home_key, b"checkpoints of the access log", hashlib.sha256).digest()
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()

    def sign(self, text: bytes) -> str:
        return self._key.sign(text).hex()


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Offset and hash of a record of the topic."""

    offset: int
    hash: str

    def __str__(self) -> str:
        return f"{self.offset}:{self.hash}"


@dataclass
class Chain:
    """The chain that a process writes. ``seal`` moves it on; nothing else does."""

    id: str
    signer: LogSigner
    process: str
    after: LogPlace | None = None
    sequence: int = 0
    previous: str = ""
    unsigned: int = 0

    def seal(self, entries: Sequence[Entry], now_ms: int) -> list[bytes]:
        """Return the values of the next records; those of a new chain begin with its signed opening."""
        values = [] if self.sequence else [self.sign(LoggedAction.log_open, now_ms)]
        for entry in entries:
            values.append(self._next(entry))
            self.unsigned += 1
        return values

    def sign(self, action: LoggedAction, now_ms: int) -> bytes:
        """Return the value of the next record: an opening, a checkpoint or an end, signed."""
        after = "" if self.after is None else str(self.after)
        text = signed_text(self.id, self.sequence, self.previous, after)
        detail = {
            "process": self.process,
            "after": after,
            "key": self.signer.public,
            "signature": self.signer.sign(text),
        }
        self.unsigned = 0
        return self._next(Entry(action, Outcome.ok, Who("_hub", "own"), now_ms, detail=detail))

    def _next(self, entry: Entry) -> bytes:
        value = encode(entry, self.id, self.sequence, self.previous)
        self.sequence, self.previous = self.sequence + 1, hash_of(value)
        return value


def hash_of(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def signed_text(chain: str, sequence: int, previous: str, after: str) -> bytes:
    return f"hub access log\n{chain}\n{sequence}\n{previous}\n{after}".encode()


def signature_holds(stored: StoredEntry, detail: Mapping[str, Any]) -> bool:
    """Return whether a signed record has the signature of the key that it names."""
    after = str(detail.get("after"))
    text = signed_text(stored.chain, stored.sequence, stored.previous, after)
    return "after" in detail and is_signed(detail, text)


def is_signed(signed: Mapping[str, Any], text: bytes) -> bool:
    """Return whether ``signature`` is that of ``key`` over a text; False where one is missing or invalid."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(signed["key"])))
        key.verify(bytes.fromhex(str(signed["signature"])), text)
    except (KeyError, ValueError, InvalidSignature):
        return False
    return True


def place_of(text: str) -> LogPlace | None:
    """Parse ``offset:hash``; None for "" and for anything else."""
    offset, _, hashed = text.partition(":")
    return LogPlace(int(offset), hashed) if offset.isascii() and offset.isdigit() and hashed else None
