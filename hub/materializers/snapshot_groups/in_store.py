"""[core] Check whether a store is at a group's snapshot, from the note in the store and the positions of its
rows.

The note ``cut:NAME`` of a store is the snapshot that its applier brought it to, written with the rows. It
holds for a view exactly as long as the view's changelog positions, read in the same transaction, are those of
the snapshot: rows applied in another way (an applier without snapshot groups, a view that was rebuilt)
invalidate it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hub.errors import HubFault
from hub.materializers.snapshot_groups.group import CUT, GROUP, group_snapshot_of, joined
from hub.record import Positions


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A view in a store: the version that is read, and the applied positions of its changelog."""

    table: str
    changelog: Positions


@dataclass(frozen=True, slots=True)
class CommonSnapshot:
    """A snapshot that views are at, and their part of it; or ``why`` they are at none.

    ``detail`` may name any of ``views``, the group's; ``since_ms``: since when it is apart.
    """

    name: str | None
    at: Positions = Positions()
    why: str | None = None
    detail: str | None = None
    views: tuple[str, ...] = ()
    since_ms: int | None = None

    @property
    def together(self) -> bool:
        return self.name is not None and self.why is None


def label_of(records: Mapping[str, Any], table: str) -> str | None:
    """Return the group of a version, as its engine reported it."""
    label = (records.get(f"state:{table}") or {}).get("cut")
    return label if isinstance(label, str) else None


def keys_of(labels: Iterable[str | None]) -> list[str]:
    """Return the keys of the records about groups."""
    return [f"{kind}{label}" for label in dict.fromkeys(labels) if label is not None for kind in (CUT, GROUP)]


def common_snapshot(members: Mapping[str, StoredMember], records: Mapping[str, Any]) -> CommonSnapshot:
    """Return the common snapshot of ``members`` (by view), from the store's records by key.

    ``records``: records ``state:<table>``, ``cut:<name>``, ``group:<name>``.
    """
    if not members:
        return CommonSnapshot(None, why="no view is read")
    labels = {view: label_of(records, each.table) for view, each in members.items()}
    for view, label in labels.items():
        if label is None:
            return CommonSnapshot(None, why=f'view "{view}" is of no group: its file does not say `cut`')
    names = sorted({label for label in labels.values() if label is not None})
    if len(names) > 1:
        return CommonSnapshot(None, why=f"they are of different groups: {', '.join(names)}")
    (name,) = names
    mark: Mapping[str, Any] = records.get(f"{CUT}{name}") or {}
    note: Mapping[str, Any] = records.get(f"{GROUP}{name}") or {}
    views = tuple(sorted({*mark.get("views", ()), *note.get("views", ())}))
    engine = note.get("why") if note.get("state") != "together" else None
    if mark.get("state") != "together":
        state = "has been at no cut yet" if not mark else "is not together in this store"
        detail = "; ".join(each for each in (mark.get("why"), engine) if each) or None
        return CommonSnapshot(
            name, why=f'group "{name}" {state}', detail=detail, views=views, since_ms=mark.get("since_ms")
        )
    try:
        cut = group_snapshot_of(mark)
    except HubFault as fault:
        return CommonSnapshot(name, why=fault.message)
    for view, each in members.items():
        place = cut.views.get(each.table)
        if place is None or place.changelog != each.changelog:
            state = f'the rows of view "{view}" are not at the cut of group "{name}"'
            return CommonSnapshot(name, why=state, detail=engine, views=views)
    return CommonSnapshot(name, joined(cut.sources(each.table) for each in members.values()), views=views)
