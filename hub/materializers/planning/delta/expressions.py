"""[core] Expressions whose values the store can keep and compare as Spark does, and windows among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from sqlglot import exp

from hub.materializers.planning.delta_plan import Hops


def column_of(name: str) -> exp.Expr:
    return exp.column(name)


def mapped(of: exp.Expr, change: Callable[[exp.Column], exp.Expr]) -> exp.Expr:
    if isinstance(of, exp.Column):
        return change(of)
    return of.copy().transform(lambda node: change(node) if isinstance(node, exp.Column) else node)


def aliases_of(of: exp.Expr) -> set[str]:
    return {column.table for column in of.find_all(exp.Column)}


def is_within(of: exp.Expr, aliases: set[str]) -> bool:
    """Return whether an expression has columns, all of them of these aliases."""
    found = aliases_of(of)
    return bool(found) and found <= aliases


# Functions that sqlglot writes as it parsed them, one value per row. Another one may be generated in a
# slightly different form, and one unknown to sqlglot may be an aggregate or generate rows.
_VERBATIM: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Var, exp.DataType,
    exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Abs, exp.Sign, exp.Floor,
    exp.Ceil,
    exp.Coalesce, exp.Lower, exp.Upper, exp.TimestampTrunc, exp.DateTrunc, exp.Year, exp.Quarter, exp.Month,
    exp.Day,
    exp.Hour, exp.Minute, exp.Second, exp.TimeStrToTime, exp.UnixMicros, exp.UnixMillis, exp.UnixSeconds,
)  # fmt: skip
# Pattern of date_format in sqlglot's form: yyyy, MM, dd, HH, mm and ss.
_FORMAT = re.compile(r"(?:%Y|%[mdHMS]strict|[-/:._ ])*")
_VERBATIM_NAMES = {"pmod", "timestamp_micros", "timestamp_millis", "timestamp_seconds"}


def storable(of: exp.Expr) -> exp.Expr | None:
    """Return an expression in the form that can be stored as a table's column and looked up; None if there is
    none.
    """
    made = of.copy()
    for node in list(made.find_all(exp.Dot)):
        call = window_of(node)
        spans = spans_of(call) if call is not None and is_window(call) else None
        if call is None or spans is None or spans[0] != spans[1]:  # a row of a hopping window has several
            continue
        edge = _edge(call, spans, node.expression.name.lower())
        if edge is None:
            continue
        if node is made:
            made = edge
        else:
            node.replace(edge)
    return made if all(_is_verbatim(node) for node in made.walk()) else None


def tie_of(of: exp.Expr) -> tuple[exp.Expr, Hops | None] | None:
    """Return what to store of a row to find it by an expression's value, and the values that it stands for.

    None when the row cannot be found so. Only a hopping window's start or end has several values per row.
    """
    stored = storable(of)
    if stored is not None:
        return stored, None
    call = window_of(of)
    spans = spans_of(call) if call is not None and is_window(call) else None
    if call is None or spans is None or (hops := hops_of(spans)) is None:
        return None
    latest = _edge(call, spans, of.expression.name.lower())
    if latest is None or not all(_is_verbatim(node) for node in latest.walk()):
        return None
    return latest, hops


def hops_of(spans: tuple[int, int, int]) -> Hops | None:
    """Return the windows of this length and slide that contain a row; None for too many to look up."""
    length, slide, _ = spans
    count = -(-length // slide)
    return Hops(slide, count) if count <= MOST_HOPS else None


def _is_verbatim(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _VERBATIM_NAMES
    if isinstance(node, exp.TsOrDsToDate):
        return node.args.get("format") is None
    if isinstance(node, exp.TimeToStr):
        form = node.args["format"]
        return isinstance(form, exp.Literal) and _FORMAT.fullmatch(form.name) is not None
    return isinstance(node, _VERBATIM)


_WINDOW_ARGUMENTS = 4
# Each event is looked up in all its windows, and each affected window in the events of all of them.
MOST_HOPS = 2_000
_SPAN_US: Mapping[str, int] = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000,
    "day": 86_400_000_000, "week": 604_800_000_000,
}  # fmt: skip
_SPAN = re.compile(rf"\s*(?:interval\s+)?((?:\d{{1,9}}\s+(?:{'|'.join(_SPAN_US)})s?\s*)+)", re.IGNORECASE)
_TIMES = {exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPLTZ}


def is_window(of: exp.Expr) -> bool:
    return isinstance(of, exp.Anonymous) and of.name.lower() == "window"


def window_of(of: exp.Expr) -> exp.Expr | None:
    """Return the window or session of which an expression is the start or end; either identifies it."""
    if not isinstance(of, exp.Dot) or of.expression.name.lower() not in ("start", "end"):
        return None
    call = of.this
    known = isinstance(call, exp.Anonymous) and call.name.lower() in ("window", "session_window")
    return call if known else None


def _edge(call: exp.Expr, spans: tuple[int, int, int], edge: str) -> exp.Expr | None:
    """Return ``window(t, '10 seconds').end`` as arithmetic: Spark's function drops rows without a time.

    For overlapping windows it is the latest one's.
    """
    length, slide, begin = spans
    time = call.expressions[0]
    if time.type is None or time.type.this not in _TIMES:
        return None

    def micros() -> exp.Expr:
        return exp.UnixMicros(this=time.copy())

    since = exp.Sub(this=micros(), expression=exp.Literal.number(begin)) if begin else micros()
    into = exp.Anonymous(this="pmod", expressions=[since, exp.Literal.number(slide)])
    at: exp.Expr = exp.Sub(this=micros(), expression=into)
    if edge == "end":
        at = exp.Add(this=at, expression=exp.Literal.number(length))
    return exp.Anonymous(this="timestamp_micros", expressions=[at])


def spans_of(call: exp.Expr) -> tuple[int, int, int] | None:
    """Return (length, slide, start) of ``window(…)`` in microseconds; None for an unsupported form."""
    given = [_span_us(each) for each in call.expressions[1:_WINDOW_ARGUMENTS]]
    if not given or None in given:
        return None
    length, slide, begin = (*given, *(given[0], 0)[len(given) - 1 :])
    return (length, slide, begin) if length and slide and begin is not None else None


def _span_us(of: exp.Expr) -> int | None:
    match = _SPAN.fullmatch(of.name) if isinstance(of, exp.Literal) and of.is_string else None
    if match is None:
        return None
    parts = match[1].lower().split()
    return sum(
        int(n) * _SPAN_US[unit.removesuffix("s")] for n, unit in zip(parts[::2], parts[1::2], strict=True)
    )


def sql_text(of: exp.Expr) -> str:
    bare = mapped(of, lambda column: exp.column(column.name))
    text = bare.sql("spark", normalize_functions=False)
    return f"`{text[:80]}`"


# Functions that sqlglot does not type, and that make no floating point from other types.
_EXACT_NAMES = _VERBATIM_NAMES | {"window", "session_window"}
_EXACT_CALLS = (exp.TimestampTrunc, exp.DateTrunc, exp.Literal, exp.Var, exp.Paren)


def is_exact(of: exp.Expr) -> bool:
    """Return whether equal values of an expression are identical: -0.0 and 0.0 are one group in Spark but two
    texts.
    """
    if of.type is not None and not of.is_type(exp.DataType.Type.UNKNOWN):
        return not any(each.is_type(*exp.DataType.FLOAT_TYPES) for each in of.type.find_all(exp.DataType))
    known = of.name.lower() in _EXACT_NAMES if isinstance(of, exp.Anonymous) else isinstance(of, _EXACT_CALLS)
    return known and all(map(is_exact, of.iter_expressions()))


def covered(of: exp.Expr, allowed: list[exp.Expr]) -> bool:
    if of in allowed:
        return True
    return not isinstance(of, exp.Column) and all(covered(part, allowed) for part in of.iter_expressions())


def conjuncts(of: exp.Expr | None) -> Iterator[exp.Expr]:
    if of is None:
        return
    of = of.unnest()
    if isinstance(of, exp.And):
        yield from conjuncts(of.this)
        yield from conjuncts(of.expression)
    else:
        yield of


def equalities_of(parts: Iterable[exp.Expr]) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield ``one = other`` where neither side is cast: otherwise '01' = 1 = '1' would carry '01' to '1'."""
    for each in parts:
        if isinstance(each, exp.EQ) and are_alike(each.this.type, each.expression.type):
            yield each.this.unnest(), each.expression.unnest()


_WHOLE = {
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
}


def are_alike(one: exp.DataType | None, other: exp.DataType | None) -> bool:
    if one is None or other is None or one.this == exp.DataType.Type.UNKNOWN:
        return False
    return one == other or {one.this, other.this} <= _WHOLE


def sides_of(
    equal: Iterable[tuple[exp.Expr, exp.Expr]], left: set[str], right: set[str]
) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    for one, other in equal:
        if is_within(one, left) and is_within(other, right):
            yield one, other
        elif is_within(one, right) and is_within(other, left):
            yield other, one


def spell_windows(tree: exp.Expr) -> None:
    """Rewrite ``window.end``, as GROUP BY window(…) makes it, to ``window(…).end``."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        calls = group.find_all(exp.Anonymous) if group is not None else ()
        made = {
            call.name.lower(): call for call in calls if call.name.lower() in ("window", "session_window")
        }
        scope = [select.args.get("from_"), *(select.args.get("joins") or ())]
        taken = {each.this.alias_or_name.lower() for each in scope if each is not None}
        for column in list(select.find_all(exp.Column)):
            name, *fields = (part.name.lower() for part in column.parts)
            if name not in made or name in taken or len(fields) > 1 or column.parent_select is not select:
                continue
            call: exp.Expr = made[name].copy()
            if fields:
                call = exp.Dot(this=call, expression=exp.to_identifier(fields[0]))
            named = column.parent is select
            column.replace(exp.alias_(call, column.name) if named else call)
