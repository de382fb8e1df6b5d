"""[core] Fields of a person, encrypted with a key of that person: without the key nobody can read them.

A field holds this text, in a schema of any format::

    hub:erasable:1:KEK:PERSON:KEY:CIPHERTEXT

``PERSON`` is a hash of topic and id, which names the data key in the DEK registry. ``KEY`` is a fingerprint
of the data key: a person who returns after an erasure has a new key, and values of the former key stay
unreadable. The ciphertext is AES-256-GCM with the key's subject as associated data, so it opens for no other
topic or person.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Final

from hub.errors import CallerError
from hub.schema_registry.dek_registry.data_keys import KeyQuestion
from hub.schema_registry.dek_registry.records import DEFAULT_ALGORITHM
from hub.schema_registry.model.subject_names import person_subject

PREFIX: Final = "hub:erasable:1:"
ERASED: Final = "[erased]"
TAG: Final = "PII"
_PARTS: Final = 4


class NotErasable(CallerError):
    """A record of an erasable topic cannot be written, because its fields cannot be encrypted."""

    code = "HUB-1219"


@dataclass(frozen=True, slots=True)
class ErasableFields:
    """Declaration of an erasable topic. ``by``: path of the field with the person's id. ``names``: fields
    that are encrypted, by name at any depth; without names those with the tag PII.
    """

    by: str
    names: frozenset[str] = frozenset()

    def covers(self, name: str, tags: frozenset[str]) -> bool:
        """Return whether a field is encrypted."""
        return name in self.names if self.names else TAG in tags


@dataclass(frozen=True, slots=True)
class SealedText:
    """A parsed field. ``person`` and ``key``: see the module."""

    kek: str
    person: str
    key: str
    ciphertext: bytes

    def text(self) -> str:
        """Return the field's text."""
        coded = base64.b64encode(self.ciphertext).decode()
        return f"{PREFIX}{self.kek}:{self.person}:{self.key}:{coded}"

    def question(self, topic: str) -> KeyQuestion:
        """Return the question for the key, in a record of a topic."""
        return KeyQuestion(self.kek, person_subject(topic, self.person), DEFAULT_ALGORITHM, 1)


def parse_sealed(value: object) -> SealedText | None:
    """Parse a field's value, text or bytes; None for any other value."""
    if isinstance(value, bytes):
        value = value.decode("ascii", "replace")
    if not isinstance(value, str) or not value.startswith(PREFIX):
        return None
    parts = value.removeprefix(PREFIX).split(":")
    if len(parts) != _PARTS:
        return None
    try:
        return SealedText(parts[0], parts[1], parts[2], base64.b64decode(parts[3], validate=True))
    except (binascii.Error, ValueError):
        return None


def person_hash(topic: str, person: str) -> str:
    """Return the hash that stands for a person in names of keys.

    >>> person_hash("crm.people", "C-1") == person_hash("crm.people", "C-2")
    False
    """
    return hashlib.sha256(f"{topic}\0{person}".encode()).hexdigest()[:32]


def fingerprint(key: bytes) -> str:
    """Return the fingerprint of a data key, which shows nothing of it."""
    return hashlib.sha256(b"hub erasable key\0" + key).hexdigest()[:12]
