"""[core] Conditions of ``--where``, as ``hub.client`` takes them."""

from __future__ import annotations

import re

from hub.errors import CallerError

_OPERATORS = {">=": ".gte", "<=": ".lte", ">": ".gt", "<": ".lt", "=": ""}
_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<|=)(.*)", re.DOTALL)


def condition(text: str) -> tuple[str, str]:
    """Field, operator and value of a condition, as ``hub.client`` takes them;
    the first sign counts, the value may have more of them."""
    match = _CONDITION.match(text)
    if match is None:
        raise CallerError(
            f'--where "{text}" is not a condition', hint="write field=value, field>=value, field<value …"
        )
    name, sign, value = match.groups()
    return name + _OPERATORS[sign], value
