"""[core] Dataclasses as bodies of records, and built from bodies of another release."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def known_fields(kind: Callable[..., T], body: Mapping[str, Any], **more: Any) -> T:
    """Build a dataclass from a record's body; fields that a newer release added are ignored."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in body.items() if name in known}, **more)


def fields_of(value: Any, *, but: Collection[str] = ()) -> dict[str, Any]:
    """Return a dataclass as the body of a record, in the order of its fields. ``but``: fields to leave out,
    such as those of the record's key. Values are not converted: orjson writes tuples and dataclasses itself.
    """
    return {each.name: getattr(value, each.name) for each in fields(value) if each.name not in but}
