"""[core] Aggregates over the entries of a source with unique_by, as higher-order functions of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from hub.materializers.types.avro_types import AvroType

# (entries, arguments, type of the first argument) → SQL; None: the type must be known.
Fold = Callable[[str, Sequence[str], str | None], str | None]

# Least number of fraction digits that a sum of decimals keeps.
SCALE = 9


def _not_null(entries: str, value: str) -> str:
    return f"FILTER(TRANSFORM({entries}, _e -> {value}), _v -> _v IS NOT NULL)"


def combined(entries: str, values: Sequence[str]) -> tuple[str, list[str]]:
    """Combine several values into one, for entries in which none of them is null, as Spark counts."""
    whole = " AND ".join(f"({value}) IS NOT NULL" for value in values)
    named = ", ".join(f"{value} AS _{n}" for n, value in enumerate(values))
    return f"FILTER({entries}, _e -> {whole})", [f"STRUCT({named})"]


def scale_of(avro_type: AvroType) -> int:
    """Return the fraction digits that a sum of a decimal keeps: ``SCALE``, or its own if it has more or
    needs the other digits."""
    if isinstance(avro_type, list):
        return max(scale_of(each) for each in avro_type if each != "null")
    scale = int(avro_type.get("scale", 0))
    return SCALE if scale <= SCALE and avro_type["precision"] - scale <= 38 - SCALE else scale


def sum_of(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    if value_type is None:
        return None
    whole = value_type in ("INT", "BIGINT", "SMALLINT", "TINYINT")
    total = "BIGINT" if whole else value_type if value_type.startswith("DECIMAL") else "DOUBLE"
    values = _not_null(entries, arguments[0])
    folded = f"AGGREGATE({values}, CAST(0 AS {total}), (_a, _v) -> CAST(_a + _v AS {total}))"
    return f"IF(SIZE({values}) = 0, NULL, {folded})"


def exact_sum(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    """``sum_of``, with null where a whole number exceeds BIGINT."""
    folded = sum_of(entries, arguments, value_type)
    return folded and folded.replace("CAST(_a + _v AS BIGINT)", "TRY_ADD(_a, CAST(_v AS BIGINT))")


def _avg(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    total = sum_of(entries, [f"CAST({arguments[0]} AS DOUBLE)"], "DOUBLE")
    return f"{total} / SIZE({_not_null(entries, arguments[0])})"


def _count(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE({_not_null(entries, arguments[0])}) AS BIGINT)"


def count_distinct(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE(ARRAY_DISTINCT({_not_null(entries, arguments[0])})) AS BIGINT)"


def _count_if(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
    return f"CAST(SIZE(FILTER({entries}, _e -> {arguments[0]})) AS BIGINT)"


def _extreme_by(which: str) -> Fold:
    def fold(entries: str, arguments: Sequence[str], value_type: str | None) -> str | None:
        pairs = f"TRANSFORM({entries}, _e -> STRUCT({arguments[1]} AS o, {arguments[0]} AS v))"
        return f"ARRAY_{which}(FILTER({pairs}, _v -> _v.o IS NOT NULL)).v"

    return fold


# How each aggregate reads the entries ``_e`` of a unique_by source. A function returns None if it needs the
# value's type.
FOLDS: Mapping[type[exp.Expr], Fold] = {
    exp.Sum: sum_of,
    exp.Avg: _avg,
    exp.Count: _count,
    exp.CountIf: _count_if,
    exp.Min: lambda entries, arguments, _: f"ARRAY_MIN(TRANSFORM({entries}, _e -> {arguments[0]}))",
    exp.Max: lambda entries, arguments, _: f"ARRAY_MAX(TRANSFORM({entries}, _e -> {arguments[0]}))",
    exp.ArgMax: _extreme_by("MAX"),
    exp.ArgMin: _extreme_by("MIN"),
    exp.ArrayAgg: lambda entries, arguments, _: _not_null(entries, arguments[0]),
}


FOLD_NAMES = ("avg", "collect_list", "count", "count_if", "max", "max_by", "min", "min_by", "sum")
