"""[core] Build values from records of another release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def known_fields(kind: Callable[..., T], body: Mapping[str, Any], **more: Any) -> T:
    """Build a dataclass from a record's body; fields that a newer release added are ignored."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known}, **more)
