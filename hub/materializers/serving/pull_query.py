"""[core] A pull query: filters (``city=Oslo``, ``balance.gte=5``) and order on declared indexes, fields, and
cursors.

A cursor under an order has the last row's values of it, and its key: the next page begins after that place,
whatever rows were added, removed or moved meanwhile. It is valid only for the order that it was made for.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hub.errors import CallerError, did_you_mean, nearest
from hub.materializers.serving.read_your_writes import is_token

OPERATORS = ("eq", "gt", "gte", "lt", "lte")
MOST_ROWS = 1_000
KEY = "key"
_PLAIN = (str, int, float, bool, type(None))
# Stores keep these as texts and bytes, whose order differs from that of their values.
_UNORDERED = ("json", "decimal", "bytes")


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
    """Return the conditions in a query string. ``types``: plain type names by column.

    Raises CallerError with a hint: an unknown or unindexed column, an order comparison on a type without
    order, or a value of another type.
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
        if operator != "eq" and allowed[column] in _UNORDERED:
            raise _no_order(view, column, allowed[column])
        found.append(Condition(column, operator, _typed(view, name, value, allowed[column])))
    return found


def _not_allowed(view: str, column: str, types: Mapping[str, str], allowed: Mapping[str, str]) -> CallerError:
    if column in types:
        return CallerError(
            f'view "{view}": field "{column}" has no index',
            hint=f"add it to `indexes` in the view's file; indexed now: {', '.join(allowed)}",
            code="HUB-1421",
        )
    return CallerError(
        f'view "{view}" has no field "{column}"',
        hint=did_you_mean(column, [*types, *allowed], f"indexed fields: {', '.join(allowed)}"),
        code="HUB-1422",
    )


def _no_order(view: str, column: str, kind: str) -> CallerError:
    return CallerError(
        f'view "{view}": field "{column}" is {kind}: it has no order here',
        hint="POST /query sorts and compares by expressions: CAST(… AS double precision)",
        code="HUB-1425",
    )


def _typed(view: str, name: str, value: str, kind: str) -> Any:
    try:
        if kind in ("int", "long"):
            return int(value)
        if kind in ("float", "double"):
            return float(value)
        if kind == "decimal":
            return Decimal(value)
        if kind == "boolean":
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        if kind.startswith(("timestamp", "local-timestamp")):
            moment = datetime.fromisoformat(value)
            return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
        if kind == "date":
            return datetime.fromisoformat(value).toordinal() - 719_163
    except (ValueError, KeyError, ArithmeticError):
        raise CallerError(
            f'view "{view}": filter "{name}": "{value}" is not a valid {kind}',
            hint="times are ISO 8601, such as 2026-01-31T12:00:00Z; booleans are true or false",
            code="HUB-1423",
        ) from None
    return value


@dataclass(frozen=True, slots=True)
class Order:
    """A column to sort by. In every store null is the greatest value and texts sort by code point."""

    column: str
    descending: bool

    def __str__(self) -> str:
        return f"-{self.column}" if self.descending else self.column


def order_of(
    view: str, text: str | None, types: Mapping[str, str], indexes: Iterable[str]
) -> tuple[Order, ...]:
    """Return the sort columns of ``city,-points``, with the key last to make places unique; () without an
    order.

    Raises CallerError with a hint for a column without an index.
    """
    if not text:
        return ()
    allowed = {KEY: "string", **{name: types[name] for name in indexes if name in types}}
    found: list[Order] = []
    for part in text.split(","):
        name = part.strip().removeprefix("-")
        if name not in allowed:
            raise _not_allowed(view, name, types, allowed)
        if allowed[name] in _UNORDERED:
            raise _no_order(view, name, allowed[name])
        if name in (each.column for each in found):
            raise CallerError(f'view "{view}": order names "{name}" twice', code="HUB-1425")
        found.append(Order(name, part.strip().startswith("-")))
    if KEY not in (each.column for each in found):
        found.append(Order(KEY, found[-1].descending))
    return tuple(found)


def cursor_of(order: Sequence[Order], values: Sequence[Any]) -> str:
    """Return an opaque cursor for the place where a page ended."""
    text = json.dumps([",".join(map(str, order)), list(values)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(view: str, text: str | None, order: Sequence[Order]) -> tuple[Any, ...] | None:
    """Return the values of a ``cursor_of`` text. Raises CallerError for a cursor of another order, or an
    invalid one.
    """
    if text is None:
        return None
    try:
        stored_order, values = json.loads(base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)))
    except (ValueError, TypeError):
        stored_order, values = None, ()
    plain = isinstance(values, list) and all(isinstance(each, _PLAIN) for each in values)
    if stored_order != ",".join(map(str, order)) or not plain or len(values) != len(order):
        raise CallerError(
            f'view "{view}": the cursor "{text[:40]}" is none of this order',
            hint="pass `next` of the page before, with the same order",
            code="HUB-1426",
        )
    return tuple(values)


_BY_KEY = (Order(KEY, False),)


def next_of(key: str) -> str:
    """Return the ``next`` value of a page in key order: the key, or a cursor where the key looks like a token
    or cursor.
    """
    return cursor_of(_BY_KEY, (key,)) if is_token(key) or _key_of(key) is not None else key


def after_of(text: str | None) -> tuple[str | None, str | None]:
    """Return (key after which a page in key order begins, position token) of a list's ``after``; at most one
    is set.
    """
    if text and is_token(text):
        return None, text
    return (text, None) if text is None else (_key_of(text) or text, None)


def _key_of(text: str) -> str | None:
    """Return the key of a cursor in key order; None for any other text."""
    try:
        values = parse_cursor("", text, _BY_KEY)
    except (CallerError, UnicodeError):
        return None
    return values[0] if values and isinstance(values[0], str) else None


def only(parameters: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raise CallerError for a parameter that a request does not have, because it would be ignored."""
    for name in parameters:
        if name not in known:
            raise CallerError(
                f'{what} takes no parameter "{name[:40]}"',
                hint=did_you_mean(name, known, f"it takes {', '.join(known) or 'none'}"),
                code="HUB-1427",
            )


def fields_of(view: str, text: str | None, types: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the fields to show in addition to the key; None for all. Raises CallerError with the nearest
    name.
    """
    if text is None:
        return None
    known = [*types, "_version", "_sources"]
    names = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    for name in names:
        if name != KEY and name not in known:
            raise CallerError(
                f'view "{view}" has no field "{name}"',
                hint=did_you_mean(name, known, f"fields: {', '.join(known)}"[:500]),
                code="HUB-1422",
            )
    return names


def limit_of(text: str | None, most: int = MOST_ROWS) -> int:
    """Return the page size: 100 by default, at most ``most``. Raises CallerError."""
    if text is None:
        return 100
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise CallerError(f'limit "{text[:20]}" is not between 1 and {most}', code="HUB-1424")
    return int(text)
