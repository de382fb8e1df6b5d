"""[core] Functions shared by the columnar stores: a view's types, the refill rule, a batch as rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from hub.errors import CallerError
from hub.materializers.stores.columns import stored_alike
from hub.materializers.stores.store import RowChange
from hub.materializers.stores.stored_row import RowShaper, sources_text
from hub.materializers.types.avro_types import AvroType


def types_of(view: str, schema: AvroType) -> dict[str, AvroType]:
    """Return the columns of a changelog's schema. Raises CallerError for a name that the table reserves."""
    types = {each["name"]: each["type"] for each in schema["fields"] if not each["name"].startswith("_")}
    if "key" in types:
        raise CallerError(
            f'view "{view}": a field cannot be called "key"',
            hint="the row's key is shown under that name already; give the field another one",
            code="HUB-1412",
        )
    return types


def made_anew(
    known: tuple[str, Mapping[str, AvroType], Sequence[str]] | None,
    topic_id: str,
    types: Mapping[str, AvroType],
) -> bool:
    """Return whether a view known as (topic id, types, indexes) must be filled from the start of its
    changelog.
    """
    if known is None or known[0] != topic_id:
        return True
    return any(not stored_alike(known[1][each], kind) for each, kind in types.items() if each in known[1])


def newest_rows(shaper: RowShaper, changes: Sequence[RowChange]) -> list[tuple[Any, ...]]:
    """Return the newest row of each key, with values in the order of ``arrow.schema_of``."""
    newest: dict[str, RowChange] = {}
    for change in changes:
        if change.key not in newest or newest[change.key].version < change.version:
            newest[change.key] = change
    now = time.time_ns() // 1_000_000
    return [
        (
            each.key,
            *shaper.values(each.row or {}),
            each.version,
            each.partition,
            each.offset,
            sources_text(each.row, each.deleted_by),
            each.row is None,
            now,
        )
        for each in newest.values()
    ]
