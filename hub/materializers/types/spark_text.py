"""[core] Names and values in the text of Spark SQL.

Plans are written as text wherever possible: a column built in Python makes five calls to Spark's JVM for each
of its parts, and a view has thousands.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """Return a name quoted, so that keywords and dots in it have no meaning."""
    return f"`{name.replace('`', '``')}`"


def literal(value: str | bytes) -> str:
    """Return a text or bytes literal."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def one_of(what: str, values: Iterable[str | bytes]) -> str:
    """Return a condition that ``what`` equals one of the values; FALSE without values."""
    written = [literal(value) for value in values]
    if not written:
        return "FALSE"
    return f"{what} = {written[0]}" if len(written) == 1 else f"{what} IN ({', '.join(written)})"


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """Return a struct of (name, expression) pairs."""
    return f"STRUCT({', '.join(f'{of} AS {quoted(name)}' for name, of in fields)})"


def first_of(cases: Iterable[tuple[str, str]], otherwise: str | None = None) -> str:
    """Return a CASE over (condition, value) pairs: the value of the first condition that holds. Needs at
    least one pair."""
    written = " ".join(f"WHEN {when} THEN {then}" for when, then in cases)
    last = "" if otherwise is None else f" ELSE {otherwise}"
    return f"CASE {written}{last} END"
