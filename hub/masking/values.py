"""[core] Treatments of a value: shown, partly shown, hashed, nulled or refused."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from uuid import UUID

Form = Literal["shown", "partial", "hashed", "nulled", "refused"]
# From the most open to the strictest.
FORMS: Final[tuple[Form, ...]] = ("shown", "partial", "hashed", "nulled", "refused")
HASH_CHARACTERS: Final = 32
HIDDEN_PART: Final = "***"


@dataclass(frozen=True, slots=True)
class Treatment:
    """Treatment of a field. ``last``: characters that ``partial`` shows. ``why``: the rule behind it."""

    form: Form
    last: int = 0
    why: str = field(default="", compare=False)

    @property
    def is_text(self) -> bool:
        """Return whether the treated value is a text, whatever the value was."""
        return self.form in ("partial", "hashed")

    def __str__(self) -> str:
        return f"partial({self.last})" if self.form == "partial" else self.form


SHOWN: Final = Treatment("shown")


def strictest(treatments: Iterable[Treatment]) -> Treatment:
    """Return the strictest treatment; of two partial ones the one that shows less. SHOWN for none."""
    return max(treatments, key=lambda each: (FORMS.index(each.form), -each.last), default=SHOWN)


def most_open(treatments: Iterable[Treatment]) -> Treatment | None:
    return min(treatments, key=lambda each: (FORMS.index(each.form), -each.last), default=None)


def treated(value: Any, treatment: Treatment, secret: bytes) -> Any:
    """Return the value as seen. Texts, whole numbers and UUIDs can be hashed or partly shown, others
    become None.

    Call for ``refused`` never shows the value either: it becomes None.
    """
    if treatment.form == "shown" or value is None:
        return value
    text = text_of(value)
    if text is None or not treatment.is_text:
        return None
    if treatment.form == "hashed":
        return hashed(text, secret)
    return partly(text, treatment.last)


def text_of(value: Any) -> str | None:
    """Return the text that is hashed; None for a value that has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    return None


def hashed(text: str, secret: bytes) -> str:
    """Return the first 128 bits of HMAC-SHA256 (RFC 2104) of the text, in hex."""
    return hmac.new(secret, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:HASH_CHARACTERS]


def partly(text: str, last: int) -> str:
    """Return the last characters behind ***; of a text shorter than twice that, only ***.

    >>> partly("NO9386011117947", 4), partly("Ann", 2)
    ('***7947', '***')
    """
    return HIDDEN_PART + (text[-last:] if last and len(text) >= 2 * last else "")


def pads_of(secret: bytes) -> tuple[bytes, bytes]:
    """Return the inner and outer key of HMAC-SHA256, for databases that have only SHA-256. ``secret``: 64
    bytes at most."""
    block = secret.ljust(64, b"\0")
    return bytes(each ^ 0x36 for each in block), bytes(each ^ 0x5C for each in block)
