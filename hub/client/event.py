"""[core] An event to be written, as callers of the client give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


class _Declared:
    def __repr__(self) -> str:
        return "DECLARED"


#: The key is what topics.yaml declares for the topic: a field of the event.
DECLARED: Any = _Declared()


@dataclass(frozen=True, slots=True)
class Event:
    """An event to be written. ``value`` in the topic's schema; None is a tombstone; bytes are written as they are.

    ``type``: JSON or STRING for topics without a schema. ``headers``: texts or bytes. Everything but ``value`` wants
    ``key`` said, None for no key.

    >>> Event({"customer_id": "C-1", "name": "Ada"}, key="C-1", headers={"trace": "42"})
    """

    value: Any
    key: Any = DECLARED
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    partition: int | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
