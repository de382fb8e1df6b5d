"""[core] Texts in the cells of CSV that people open as a spreadsheet:
none of them runs as a formula (OWASP, "CSV Injection")."""

from __future__ import annotations

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def in_cell(value: object) -> object:
    """Return the value as a cell. A text that a spreadsheet would execute gets a leading apostrophe; numbers
    stay, also as texts.

    >>> in_cell("=1+1"), in_cell(-5), in_cell("-5.2"), in_cell("-x"), in_cell("a=b")
    ("'=1+1", -5, '-5.2', "'-x", 'a=b')
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
