"""[core] A shape in words: what a principal sees of each field, of the key and of the rows, and why."""

from __future__ import annotations

from collections.abc import Iterable

from hub.masking.shape import FieldPath, Visibility, normal
from hub.masking.values import SHOWN, strictest

_NO_RULE = "no rule of masks is about it"


def explained(shape: Visibility, fields: Iterable[FieldPath]) -> list[dict[str, str]]:
    """Return one row for each field, the key and the rows. ``fields``: those of the view or topic, shown
    ones too."""
    if shape.closed:
        return [_row("everything", "refused", shape.closed)]
    masked = {each.path: each.treatment for each in shape.fields}
    rows = [_of_field(path, shape) for path in sorted({*fields, *masked})]
    rows.append(_row("key", str(shape.key), shape.key.why or _NO_RULE))
    for each in shape.rows:
        values = ", ".join(each.values) or "nothing: the claim has no value"
        rows.append(_row("rows", f"only where {each.name} is {values}", each.why))
    if not shape.rows:
        rows.append(_row("rows", "all", _NO_RULE))
    return rows


def _of_field(path: FieldPath, shape: Visibility) -> dict[str, str]:
    how = SHOWN
    for each in shape.fields:
        if tuple(map(normal, each.path)) == tuple(map(normal, path)):
            how = strictest((how, each.treatment))
    return _row(".".join(path), str(how), how.why or _NO_RULE)


def _row(what: str, shown: str, why: str) -> dict[str, str]:
    return {"what": what, "seen": shown, "why": why}
