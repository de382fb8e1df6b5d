"""[core] Event to write, as callers of the client pass it."""

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
    """An event to write. ``value``: an object in the topic's schema; None is a tombstone; bytes are written
    unchanged. ``type``: JSON or STRING for topics without a schema. ``headers``: texts or bytes. Any option
    other than ``value`` requires ``key``; None means no key.

    >>> Event({"customer_id": "C-1", "name": "Ada"}, key="C-1", headers={"trace": "42"})
    """

    value: Any
    key: Any = DECLARED
    headers: Mapping[str, str | bytes] = field(default_factory=dict)
    partition: int | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
