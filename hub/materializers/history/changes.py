"""[core] Versions that a history keeps, and the fields that changed between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

_OWN = ("_version", "_sources")


class VersionOfRow(Protocol):
    """A key with a version, such as a change of a store's rows."""

    @property
    def key(self) -> str: ...

    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=VersionOfRow)


def new_versions(
    changes: Sequence[V], current: Mapping[str, int], stored_keys: Sequence[str]
) -> list[tuple[str, V]]:
    """Return the changes that replace a row, in their order, each with its stored key.

    ``current``: version of the stored row by stored key. ``stored_keys``: that of each change. A replayed or
    older change replaces nothing, as in the view's table.
    """
    newest, found = dict(current), []
    for key, change in zip(stored_keys, changes, strict=True):
        if change.version > newest.get(key, -1):
            newest[key] = change.version
            found.append((key, change))
    return found


@dataclass(frozen=True, slots=True)
class RowFieldChange:
    """Old and new value of a field; None in a row that does not exist."""

    field: str
    old: Any
    new: Any

    def as_json(self) -> dict[str, Any]:
        return {"field": self.field, "old": self.old, "new": self.new}


def field_changes(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[RowFieldChange]:
    """Return the fields that differ between two versions of a row, in the order of the newer one's fields.
    None stands for a version without a row.

    >>> [each.as_json() for each in field_changes({"tier": "base", "n": 1}, {"tier": "gold", "n": 1})]
    [{'field': 'tier', 'old': 'base', 'new': 'gold'}]
    """
    before, after = old or {}, new or {}
    names = [name for name in dict.fromkeys([*after, *before]) if name not in _OWN]
    return [
        RowFieldChange(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]
