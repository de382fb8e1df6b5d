"""Mutants of a module: every small change that a test should notice, as a replacement of a stretch of its
text.

A mutant changes one thing: a comparison, a bound, a constant, and/or, a sign, a call, a returned value, the
order of two arguments, or an else branch. Texts that people read (docstrings, messages, errors) and
annotations are left alone.
"""

from __future__ import annotations

import ast
import copy
import difflib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

_OPPOSITE: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
}
_OTHER_NAME = {"min": "max", "max": "min", "any": "all", "all": "any"}
_QUIET_CALLS = ("log.", "logger.", "warnings.")
_Place = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module. ``line`` counts from 1;
    ``before`` and ``after`` are the texts at that place."""

    module: str
    kind: str
    line: int
    before: str
    after: str
    source: str
    """The whole text of the changed module."""

    @property
    def name(self) -> str:
        return f"{self.module}:{self.line} {self.kind}: {_short(self.before)} → {_short(self.after)}"

    def diff(self, original: str) -> str:
        """Return the change as a unified diff with two lines of context."""
        lines = difflib.unified_diff(
            original.splitlines(), self.source.splitlines(), self.module, self.kind, lineterm="", n=2
        )
        return "\n".join(lines)


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = source.encode()
    found: dict[tuple[_Place, str], Mutant] = {}
    for node in _nodes(tree):
        for kind, target, after in _changes(node):
            place = (target.lineno, target.col_offset, target.end_lineno or 0, target.end_col_offset or 0)
            begin, end = starts[place[0] - 1] + place[1], starts[place[2] - 1] + place[3]
            before = data[begin:end].decode()
            changed = (data[:begin] + after.encode() + data[end:]).decode()
            if after != before:
                found.setdefault((place, after), Mutant(module, kind, place[0], before, after, changed))
    return sorted(found.values(), key=lambda each: (each.line, each.kind, each.after))


def sample(sources: Mapping[str, str], seed: int, count: int) -> list[Mutant]:
    """Return ``count`` mutants: kinds take turns, modules are drawn by the number of their mutants."""
    chance = random.Random(seed)
    by_kind: dict[str, list[Mutant]] = {}
    for module in sorted(sources):
        for mutant in mutants(module, sources[module]):
            by_kind.setdefault(mutant.kind, []).append(mutant)
    for waiting in by_kind.values():
        chance.shuffle(waiting)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            if by_kind[kind] and len(chosen) < count and _compiles(drawn := by_kind[kind].pop()):
                chosen.append(drawn)
    return chosen


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that run: no annotations, decorators, docstrings, errors, logs,
    or what only types need."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func).startswith(_QUIET_CALLS):
            return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "keywords") and not (
            name == "keywords" and isinstance(node, ast.Call)
        ):
            continue
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, ast.AST):
                yield from _nodes(below)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    """Yield (kind, the node to replace, its new text)."""
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp):
        yield from _operators(node)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield "constant", node, str(not node.value)
        elif isinstance(node.value, int | float):
            yield "boundary", node, repr(node.value + 1)
            if node.value:
                yield "boundary", node, repr(node.value - 1) if node.value > 0 else f"({node.value - 1!r})"
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield "removed call", node, "pass"
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "removed return", node, "return None"
    elif isinstance(node, ast.If | ast.For | ast.While):
        yield from _branches(node)


def _operators(
    node: ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp,
) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):

            def flip(other: ast.Compare, at: int = at, operator: ast.cmpop = operator) -> None:
                other.ops[at] = _OPPOSITE[type(operator)]()  # type: ignore[call-overload]

            yield "comparison", node, _text(node, flip)
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            yield "and/or/not", node, f"({ast.unparse(node.operand)})"
    elif type(node.op) in _OPPOSITE:
        is_text = isinstance(node, ast.BinOp) and _is_text(node)
        if not is_text:
            kind = "and/or/not" if isinstance(node, ast.BoolOp) else "sign"
            yield kind, node, _text(node, lambda other: setattr(other, "op", _OPPOSITE[type(node.op)]()))


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node.func, ast.Name) and node.func.id in _OTHER_NAME:
        yield "constant", node.func, _OTHER_NAME[node.func.id]
    if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return  # swapped, it raises wherever it runs
    first_two = node.args[:2]
    if len(first_two) == 2 and not any(isinstance(each, ast.Starred) for each in first_two):
        yield "swapped arguments", node, _text(node, _swap)


def _swap(call: ast.Call) -> None:
    call.args[:2] = reversed(call.args[:2])


def _branches(node: ast.If | ast.For | ast.While) -> Iterator[tuple[str, ast.expr | ast.stmt, str]]:
    if isinstance(node, ast.If):
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            yield "deleted branch", node.orelse[0].test, "False"  # an elif, or an if in an else
        elif node.orelse:
            whole = copy.copy(node.orelse[0])
            whole.end_lineno, whole.end_col_offset = (
                node.orelse[-1].end_lineno,
                node.orelse[-1].end_col_offset,
            )
            yield "deleted branch", whole, "pass"


def _text(node: ast.expr, change: Callable[..., None]) -> str:
    """Return the text of a changed copy, in brackets where it might bind otherwise."""
    other = copy.deepcopy(node)
    change(other)
    text = ast.unparse(other)
    return text if isinstance(other, ast.Call) else f"({text})"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.source, mutant.module, "exec")
    except SyntaxError:
        return False
    return True


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."
