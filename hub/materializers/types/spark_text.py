"""[core] Names and values as Spark SQL has them in its text.

A plan is written as text wherever it can be: a column that Python puts together asks Spark's JVM five questions for each of
its parts, and a view has thousands.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """A name that is no keyword and has no dot, whatever it is."""
    return f"`{name.replace('`', '``')}`"


def literal(value: str | bytes) -> str:
    """Text, or bytes."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def one_of(what: str, values: Iterable[str | bytes]) -> str:
    """Whether it is one of these; of none it is not."""
    written = [literal(value) for value in values]
    if not written:
        return "FALSE"
    return f"{what} = {written[0]}" if len(written) == 1 else f"{what} IN ({', '.join(written)})"


def struct(fields: Iterable[tuple[str, str]]) -> str:
    """A struct of (name, expression)."""
    return f"STRUCT({', '.join(f'{of} AS {quoted(name)}' for name, of in fields)})"


def first_of(cases: Iterable[tuple[str, str]], otherwise: str | None = None) -> str:
    """The value of the first condition that holds, of (condition, value). There is one at least."""
    written = " ".join(f"WHEN {when} THEN {then}" for when, then in cases)
    last = "" if otherwise is None else f" ELSE {otherwise}"
    return f"CASE {written}{last} END"
