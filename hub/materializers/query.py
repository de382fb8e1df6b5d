"""[core] The filters of a pull query: ``city=Oslo``, ``balance.gte=5``, checked against the view's declared indexes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hub.errors import CallerError, nearest

OPERATORS = ("eq", "gt", "gte", "lt", "lte")
MOST_ROWS = 1_000
KEY = "key"


@dataclass(frozen=True, slots=True)
class Condition:
    """``column operator value`` with the value in the column's type."""

    column: str
    operator: str
    value: Any

    def as_tuple(self) -> tuple[str, str, Any]:
        return self.column, self.operator, self.value


def conditions(
    view: str, parameters: Iterable[tuple[str, str]], types: Mapping[str, str], indexes: Iterable[str]
) -> list[Condition]:
    """The conditions in a query string. ``types`` are plain type names by column.

    Raises CallerError: a column that does not exist, is not indexed, or a value of another type; with the way out.
    """
    allowed = {KEY: "string", **{name: types[name] for name in indexes if name in types}}
    found = []
    for name, value in parameters:
        column, _, operator = name.partition(".")
        operator = operator or "eq"
        if column not in allowed:
            raise _not_allowed(view, column, types, allowed)
        if operator not in OPERATORS:
            guess = nearest(operator, OPERATORS)
            raise CallerError(
                f'view "{view}": filter "{name}": no operator "{operator}"',
                hint=f'did you mean "{column}.{guess}"?' if guess else f"operators: {', '.join(OPERATORS)}",
                code="HUB-1420",
            )
        found.append(Condition(column, operator, _typed(view, name, value, allowed[column])))
    return found


def _not_allowed(view: str, column: str, types: Mapping[str, str], allowed: Mapping[str, str]) -> CallerError:
    if column in types:
        return CallerError(
            f'view "{view}": field "{column}" has no index',
            hint=f"add it to `indexes` in the view's file; indexed now: {', '.join(allowed)}",
            code="HUB-1421",
        )
    guess = nearest(column, [*types, *allowed])
    return CallerError(
        f'view "{view}" has no field "{column}"',
        hint=f'did you mean "{guess}"?' if guess else f"indexed fields: {', '.join(allowed)}",
        code="HUB-1422",
    )


def _typed(view: str, name: str, value: str, kind: str) -> Any:
    try:
        if kind in ("int", "long"):
            return int(value)
        if kind in ("float", "double"):
            return float(value)
        if kind == "boolean":
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if kind.startswith(("timestamp", "local-timestamp")):
            moment = datetime.fromisoformat(value)
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        if kind == "date":
            return datetime.fromisoformat(value).toordinal() - 719_163
    except (ValueError, KeyError):
        raise CallerError(
            f'view "{view}": filter "{name}": "{value}" is no {kind}',
            hint="times are ISO 8601, such as 2026-01-31T12:00:00Z; booleans are true or false",
            code="HUB-1423",
        ) from None
    return value


def limit_of(text: str | None, most: int = MOST_ROWS) -> int:
    """The page size: 100 by default, at most ``most``. Raises CallerError."""
    if text is None:
        return 100
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise CallerError(f'limit "{text[:20]}" is not between 1 and {most}', code="HUB-1424")
    return int(text)
