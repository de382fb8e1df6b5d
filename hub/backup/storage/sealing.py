"""[core] One object of a backup as bytes: zstd, then AES-256-GCM if the backup has a key, then SHA-256.

The object's name is authenticated with its content, so an object in the place of another one is found.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field

import cramjam
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hub.backup.storage.manifest import UnreadableBackup
from hub.errors import ConfigError

CIPHER = "AES-256-GCM"
_LEVEL = 1  # batches are mostly compressed already
_NONCE_BYTES = 12
_KEY_BYTES = 32
WRONG_KEY = "HUB-1802"


@dataclass(frozen=True, slots=True)
class ObjectSealer:
    """Seals and opens the objects of one backup. ``key``: 32 bytes; None: no encryption."""

    key: bytes | None = field(default=None, repr=False)

    def seal(self, name: str, content: bytes | bytearray, nonce: bytes) -> bytes:
        """Return the object's bytes. ``nonce``: 12 random bytes, used once."""
        packed = bytes(cramjam.zstd.compress(content, _LEVEL))
        if self.key is None:
            return packed
        return nonce + AESGCM(self.key).encrypt(nonce, packed, name.encode())

    def open(self, name: str, sealed: bytes) -> bytearray:
        """Return the content. Raises UnreadableBackup when the object was changed."""
        packed: bytes = sealed
        if self.key is not None:
            try:
                packed = AESGCM(self.key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
            except (InvalidTag, ValueError):
                raise UnreadableBackup(
                    f'backup object "{name}" cannot be decrypted',
                    hint="it was changed, or sealed with another key: check it with hub backup verify",
                ) from None
        try:
            return bytearray(cramjam.zstd.decompress(packed))
        except (cramjam.DecompressionError, ValueError) as error:
            raise UnreadableBackup(
                f'backup object "{name}" cannot be unpacked: {error}',
                hint="it was changed: check the backup with hub backup verify",
            ) from None


def digest_of(sealed: bytes) -> str:
    """Return the SHA-256 of an object, as hex."""
    return hashlib.sha256(sealed).hexdigest()


def key_of(text: str) -> bytes:
    """Return the key that a text has: 32 bytes, as base64 or hex. Raises ConfigError (HUB-1802)."""
    compact = "".join(text.split())
    for decode in (_hex, _base64):
        found = decode(compact)
        if found is not None and len(found) == _KEY_BYTES:
            return found
    raise ConfigError(
        "the key of the backup is not 32 bytes in base64 or hex",
        hint="make one: openssl rand -base64 32",
        code=WRONG_KEY,
    )


def _hex(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _base64(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
