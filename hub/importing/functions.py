"""[core] Functions of another dialect in Spark SQL.

A rule is a name, or a template over the arguments ``a1``, ``a2`` …; ``event_order`` in it stands for the
order of events. The template with as many arguments as the call has is taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hub.errors import nearest
from hub.importing.report import NotTranslated

_ARGUMENT = re.compile(r"\ba(\d)\b")


@dataclass(frozen=True, slots=True)
class FunctionRule:
    """``forms``: a name or templates. ``differs``: how the results differ, "" if they do not. ``text``: the
    result is text. ``first``: an argument before those of the call. ``refused``: why there is none, and
    ``instead``."""

    forms: tuple[str, ...] = ()
    differs: str = ""
    text: bool = False
    first: str = ""
    refused: str = ""
    instead: str = ""

    @property
    def renamed(self) -> str | None:
        """The name of Spark's function with the same arguments; None for a template."""
        return self.forms[0] if len(self.forms) == 1 and re.fullmatch(r"\w+", self.forms[0]) else None

    def template(self, name: str, arguments: int) -> str:
        """Return the template for a number of arguments. Raises NotTranslated."""
        counts = {}
        for form in self.forms:
            counts[max((int(n) for n in _ARGUMENT.findall(form)), default=0)] = form
        if arguments not in counts:
            known = " or ".join(str(each) for each in sorted(counts))
            raise NotTranslated(
                f"{name.upper()} with {arguments} arguments has no form in Spark that the import knows",
                f"write it with {known}, or the expression in Spark SQL in the view's file",
            )
        return counts[arguments]


FunctionTable = Mapping[str, FunctionRule]


def rule_of(table: FunctionTable, name: str) -> FunctionRule:
    """Return the rule of a function. Raises NotTranslated for an unknown or a refused one."""
    rule = table.get(name.lower())
    if rule is None:
        guess = nearest(name.lower(), table)
        raise NotTranslated(
            f"the function {name.upper()} is not known to the import (a function of your own?)",
            (f"did you mean {guess.upper()}? " if guess else "")
            + "A Python function in the project can replace it: docs/how-to/use-python-functions.md",
        )
    if rule.refused:
        raise NotTranslated(f"{name.upper()}: {rule.refused}", rule.instead)
    return rule
