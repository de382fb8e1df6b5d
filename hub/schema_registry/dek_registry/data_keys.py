"""[core] Questions for the data key of a field, and where they are answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """Question of a rule for a data key. ``version`` None: the key of new records, the newest one, which is
    replaced after ``expiry_days`` (0: never). ``kms_type`` and ``kms_key_id`` must be those of the KEK,
    unless they are "".
    """

    kek: str
    subject: str
    algorithm: str
    version: int | None = None
    expiry_days: int = 0
    kms_type: str = ""
    kms_key_id: str = ""


@dataclass(frozen=True, slots=True)
class DataKey:
    """A data key in Tink's form. It is never part of a text."""

    version: int
    key: bytes

    def __repr__(self) -> str:
        return f"DataKey(version={self.version})"


class KeySource(Protocol):
    """Source of data keys."""

    def key(self, question: KeyQuestion) -> DataKey:
        """Return the key. Raises CallerError if there is none, PeerError if it cannot be had now."""

    def forget(self, question: KeyQuestion) -> None:
        """Ask the registry for this key the next time."""
