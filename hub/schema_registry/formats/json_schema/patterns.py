"""[core] Regular expressions of JSON Schema, within limits."""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from hub.schema_registry.formats import InvalidSchema

MOST_PATTERN = 1_000
MOST_GROUPS = 100  # nested groups of a pattern
MOST_PATTERNS = 100_000  # characters of all patterns together


def check_patterns(node: Mapping[str, Any]) -> int:
    """Return the number of characters of a schema's patterns. Raises InvalidSchema for an invalid pattern."""
    patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    if isinstance(node.get("patternProperties"), dict):
        patterns.extend(node["patternProperties"])
    for pattern in patterns:
        if len(pattern) > MOST_PATTERN:
            raise InvalidSchema(f"a pattern has {len(pattern)} characters, {MOST_PATTERN} are allowed")
        if _deepest_group(pattern) > MOST_GROUPS:
            raise InvalidSchema(f"a pattern is nested deeper than {MOST_GROUPS} groups")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                re.compile(as_python(pattern))
        except (re.error, OverflowError, RecursionError) as error:
            # syntax of Java or ECMAScript that Python lacks cannot be checked here
            if not str(error).startswith(("bad escape", "unknown extension", "look-behind")):
                raise InvalidSchema(f"`{pattern[:100]}` is not a pattern: {error}") from None
    return sum(map(len, patterns))


def _deepest_group(pattern: str) -> int:
    """Return the nesting depth of groups.

    Counted here, because the compiler's limit depends on the free stack.
    """
    deepest = depth = 0
    for each in re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", pattern, flags=re.DOTALL):
        depth += (each == "(") - (each == ")")
        deepest = max(deepest, depth)
    return deepest


def as_python(pattern: str) -> str:
    r"""Translate a pattern of Java or ECMAScript to Python: named groups, and classes such as ``\p{L}``."""
    found = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern)
    found = re.sub(r"(?<!\\)((?:\\\\)*)\\p\{[^}]*\}", r"\1\\w", found)
    return re.sub(r"(?<!\\)((?:\\\\)*)\\P\{[^}]*\}", r"\1\\W", found)


_PARSER: Any = importlib.import_module("re._parser")


_CATEGORIES: Mapping[str, Callable[[str], object]] = {
    "CATEGORY_DIGIT": str.isdigit,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": re.compile(r"\w").fullmatch,
}


_ENDS = ("AT_END", "AT_END_STRING")
_BEGINS = ("AT_BEGINNING", "AT_BEGINNING_STRING")


class _NotRegular(Exception):
    """The pattern needs more than a set of positions."""


class Pattern:
    """A pattern searched in a name without backtracking: all positions at once, each step counted.

    Patterns and names are untrusted; ``re`` would need exponential time for some. Uses Python's own parser of
    patterns, which is not public; a test checks that both give the same results.
    """

    def __init__(self, pattern: str, spend: Callable[[int], None]) -> None:
        self._pattern, self._spend, self._name = pattern, spend, ""
        self._tree: Any = None
        with warnings.catch_warnings(), contextlib.suppress(re.error, OverflowError, RecursionError):
            warnings.simplefilter("ignore")
            self._tree = _PARSER.parse(as_python(pattern))

    def is_in(self, name: str) -> bool:
        """Return True if the pattern occurs in a name. Raises InvalidSchema for unsupported patterns."""
        self._spend(5)
        self._name = name
        flags = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE
        try:
            if self._tree is None or self._tree.state.flags & flags:
                raise _NotRegular
            return bool(self._ends(self._tree, set(range(len(name) + 1))))
        except (_NotRegular, RecursionError):
            raise InvalidSchema(
                f"the two schemas cannot be compared: whether the pattern `{self._pattern[:100]}` covers "
                "the property "
                f"`{name[:100]}` cannot be decided; write it without look-around and back references"
            ) from None

    def _ends(self, tree: Any, starts: set[int]) -> set[int]:
        """Return the possible ends of matches that begin at one of ``starts``."""
        for op, argument in tree:
            self._spend(1 + len(starts) // 8)
            starts = self._step(str(op), argument, starts)
        return starts

    def _step(self, op: str, argument: Any, starts: set[int]) -> set[int]:
        name = self._name
        if op == "AT":
            where = str(argument)
            if where not in (*_ENDS, *_BEGINS):
                raise _NotRegular
            return starts & ({len(name)} if where in _ENDS else {0})
        if op == "BRANCH":
            return set().union(*(self._ends(each, starts) for each in argument[1]))
        if op == "SUBPATTERN" and not argument[1] and not argument[2]:
            return self._ends(argument[3], starts)
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, tree = argument
            return self._repeated(int(least), int(most), tree, starts)
        if op not in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            raise _NotRegular
        return {at + 1 for at in starts if at < len(name) and _accepts(op, argument, name[at])}

    def _repeated(self, least: int, most: int, tree: Any, starts: set[int]) -> set[int]:
        for _ in range(least):
            ends = self._ends(tree, starts)
            if ends == starts:
                break
            starts = ends
        found, times = set(starts), least
        while starts and times < most:
            starts = self._ends(tree, starts) - found
            found |= starts
            times += 1
        return found


def _accepts(op: str, argument: Any, character: str) -> bool:
    if op == "ANY":
        return character != "\n"
    if op != "IN":
        return bool(ord(character) == argument) == (op == "LITERAL")
    negated = False
    for kind, value in argument:
        if str(kind) == "NEGATE":
            negated = True
        elif str(kind) == "CATEGORY":
            name = str(value).replace("_NOT_", "_")
            if bool(_CATEGORIES[name](character)) == (name == str(value)):
                return not negated
        elif str(kind) == "RANGE":
            if value[0] <= ord(character) <= value[1]:
                return not negated
        elif ord(character) == value:
            return not negated
    return negated
