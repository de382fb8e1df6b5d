"""[core] Shape of one view or topic as one caller sees it: the treatment of its fields and key, and its rows.

A field of an event is found by its path, at any depth and through unions, lists and envelopes:
``customer.email``
is every ``email`` somewhere within a ``customer``. So a path hides too much rather than too little. Names are
compared without case, "_" and "-", because formats spell them differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hub.errors import CallerError
from hub.masking.values import SHOWN, Treatment, strictest, text_of, treated

FieldPath = tuple[str, ...]
# Columns that the hub adds to a view's rows.
OWN_COLUMNS: Final = ("_version", "_sources", "_applied_at")
KEY: Final = "key"
_MOST_NESTED = 200  # levels of a decoded event; deeper ones are not shown


class MaskRefused(CallerError):
    """A mask keeps this from the caller, or this way out cannot mask."""

    code = "HUB-1722"


@dataclass(frozen=True, slots=True)
class MaskedField:
    """A field and its treatment, which is not ``shown``. ``path``: of a view one name, its column's."""

    path: FieldPath
    treatment: Treatment

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class RowCondition:
    """Rows whose field has one of these values are seen; without values, none."""

    path: FieldPath
    values: tuple[str, ...]
    why: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Visibility:
    """Everything that a way out needs. ``name``: the object, for messages. ``closed``: why nothing of it
    is shown.

    ``secret``: key of the hashes. ``known``: the columns of a view that were judged; others may hold
    anything.
    """

    name: str
    fields: tuple[MaskedField, ...] = ()
    rows: tuple[RowCondition, ...] = ()
    key: Treatment = SHOWN
    closed: str = ""
    secret: bytes = field(default=b"", repr=False)
    known: frozenset[str] | None = None

    @property
    def is_open(self) -> bool:
        """Return whether everything is shown."""
        return not (self.fields or self.rows or self.closed or self.key != SHOWN)

    def of_column(self, column: str) -> Treatment:
        """Return the treatment of a view's column, or of its key."""
        if column in OWN_COLUMNS:
            return SHOWN
        if column == KEY:
            return self.key
        if self.known is not None and column not in self.known:
            return strictest(each.treatment for each in self.fields)
        return strictest(each.treatment for each in self.fields if each.path == (column,))

    def require_open(self, way: str) -> None:
        """Raise MaskRefused unless everything is shown. ``way``: the way out, which cannot mask."""
        if not self.is_open:
            raise MaskRefused(
                f"{self.name}: fields or rows are masked for you, and {way} cannot mask them",
                hint="POST /query masks; hub access explain shows what is seen and why",
            )

    def require(self, way: str) -> None:
        """Raise MaskRefused if nothing of the object is shown."""
        if self.closed:
            raise MaskRefused(f"{self.name}: {way} cannot show it: {self.closed}", hint=_EXPLAIN)

    def refuse_columns(self, columns: Iterable[str], doing: str) -> None:
        """Raise MaskRefused for the first of a view's columns that is masked. ``doing``: the use for which it
        was named."""
        for column in columns:
            treatment = self.of_column(column)
            if treatment.form != "shown":
                raise MaskRefused(
                    f'{self.name}: field "{column}" is {treatment} for you, so nothing can {doing} it here',
                    hint="POST /query filters and sorts by the masked value",
                )

    def refused_columns(self, columns: Iterable[str]) -> None:
        """Raise MaskRefused for the first of a view's columns that is refused to the caller."""
        for column in columns:
            if self.of_column(column).form == "refused":
                raise MaskRefused(
                    f'{self.name}: field "{column}" is refused to you', hint="name the other fields: fields=…"
                )

    # ---- rows of views

    def row(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a view's row as seen. Columns that are refused become None; ``refused_columns`` comes
        first."""
        return {
            column: treated(value, self.of_column(column), self.secret) for column, value in values.items()
        }

    def masked_key(self, key: str) -> str | None:
        return None if self.key.form == "refused" else treated(key, self.key, self.secret)

    def conditions(self, types: Mapping[str, str]) -> list[tuple[str, str, Any]]:
        """Return the filter of rows as conditions of a store: (column, "in", values). ``types``: kinds of
        the columns.

        Raises CallerError for a column that has no such filter.
        """
        kinds = {KEY: "string", **types}
        return [
            (each.path[0], "in", typed_values(each.name, kinds.get(each.name), each.values))
            for each in self.rows
        ]

    def admits(self, value: Any) -> bool:
        """Return whether the row or event is seen."""
        return all(_meets(value, each) for each in self.rows)

    # ---- events of topics

    def event(self, value: Any, *, refuse: bool = True) -> Any:
        """Return a decoded event as seen. Raises MaskRefused for a refused field; without ``refuse`` it is
        None.

        An event that is no record has no names, so nothing of it is shown.
        """
        if not self.fields:
            return value
        if isinstance(value, list):
            return [self.event(each, refuse=refuse) for each in value]
        if not isinstance(value, Mapping):
            return None
        wanted = [(tuple(map(normal, each.path)), each) for each in self.fields]
        return _walk(value, wanted, lambda found, how: self._treated(found, how, refuse), 0)

    def _treated(self, value: Any, how: Sequence[MaskedField], refuse: bool) -> Any:
        worst = strictest(each.treatment for each in how)
        if worst.form == "refused" and refuse:
            named = next(each.name for each in how if each.treatment == worst)
            raise MaskRefused(
                f'{self.name}: field "{named}" is refused to you',
                hint="POST /query shows the other columns: name them in SELECT",
            )
        if isinstance(value, list):
            return [treated(each, worst, self.secret) for each in value]
        return treated(value, worst, self.secret)

    def require_readable(self, way: str) -> None:
        """Raise MaskRefused for an object that is closed, or has a refused field, on a way without
        columns."""
        self.require(way)
        for each in self.fields:
            if each.treatment.form == "refused":
                raise MaskRefused(
                    f'{self.name}: field "{each.name}" is refused to you, and {way} cannot leave it out',
                    hint="POST /query shows the other columns: name them in SELECT",
                )


OPEN: Final = Visibility("")

_EXPLAIN = "hub access explain shows what is seen and why"
_Wanted = Sequence[tuple[FieldPath, MaskedField]]


def normal(name: str) -> str:
    """Return a name as it is compared.

    >>> normal("cardNumber") == normal("card_number")
    True
    """
    return name.lower().replace("_", "").replace("-", "")


def _walk(value: Any, wanted: _Wanted, act: Callable[[Any, Sequence[MaskedField]], Any], depth: int) -> Any:
    if depth > _MOST_NESTED:
        return None
    if isinstance(value, list | tuple):
        return [_walk(each, wanted, act, depth + 1) for each in value]
    if not isinstance(value, Mapping):
        return value
    made: dict[Any, Any] = {}
    for name, inner in value.items():
        spelled = normal(str(name))
        ended = [each for path, each in wanted if path == (spelled,)]
        if ended:
            made[name] = act(inner, ended)
        else:
            further = [(path[1:], each) for path, each in wanted if len(path) > 1 and path[0] == spelled]
            made[name] = _walk(inner, [*wanted, *further], act, depth + 1)
    return made


def typed_values(column: str, kind: str | None, values: Sequence[str]) -> list[str | int | bool]:
    """Return the values of a filter of rows in the kind of their column; those of another kind match no row.

    Raises CallerError for a column that is missing or of a kind without such filters.
    """
    if kind == "string":
        return list(values)
    if kind in ("int", "long"):
        return [int(each) for each in values if each.removeprefix("-").isdecimal() and len(each) < 19]
    if kind == "boolean":
        return [each == "true" for each in values if each in ("true", "false")]
    raise CallerError(
        f'masks: rows cannot be filtered by "{column}": '
        + ("there is no such column" if kind is None else f"it is {kind}"),
        hint="rows are filtered by texts, whole numbers and booleans; change `rows` in access.yaml",
        code="HUB-1723",
    )


def _meets(value: Any, condition: RowCondition) -> bool:
    """Return whether the field has one of the values; an event without the field does not."""
    for name in condition.path:
        inner = value.get(name) if isinstance(value, Mapping) else None
        if inner is None and isinstance(value, Mapping) and isinstance(value.get("after"), Mapping):
            inner = value["after"].get(name)  # a change event
        value = inner
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else text_of(value)
    return text is not None and text in condition.values
