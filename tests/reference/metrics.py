"""The series of `GET /metrics`, found in the source:
calls and tuples that begin with a name and its description."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .text import noted_table, sentence

_INTRO = """# Metrics

`GET /metrics` answers in Prometheus' format. An unknown value has no sample: a missing series can be alerted on, a zero would be
wrong. Counters end in `_total`. Rules and a dashboard: [set up alerts](../how-to/set-up-alerts.md).
"""  # noqa: E501
_NAME = re.compile(r"hub_[a-z0-9_]+")
_FAMILIES = {"gauge": "gauge", "_gauge": "gauge", "GaugeMetricFamily": "gauge",
    "CounterMetricFamily": "counter",
             "HistogramMetricFamily": "histogram", "add": "counter"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """A series: its name as it is exported, its kind,
    its description and its labels where they are literal."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


def series(root: Path) -> list[Series]:
    """Return all series of the source tree, by name."""
    found: dict[str, Series] = {}
    for path in sorted((root / "hub").rglob("*.py")):
        text = path.read_text()
        if "hub_" in text:
            for each in _of_file(ast.parse(text)):
                if each.name not in found or len(each.labels) > len(found[each.name].labels):
                    found[each.name] = each
    return [found[name] for name in sorted(found)]


def page(root: Path) -> str:
    """Return the page."""
    rows = [
        (
            f"`{each.name}`",
            each.kind,
            ", ".join(f"`{label}`" for label in each.labels),
            sentence(each.meaning),
        )
        for each in series(root)
    ]
    return "\n".join([_INTRO, *noted_table(("series", "kind", "labels", "meaning"), rows)])


def _of_file(tree: ast.Module) -> Iterator[Series]:
    prefix, kind = _prefix(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            yield from _of_loop(node)
        if isinstance(node, ast.Call):
            name, strings = _called(node), _texts(node.args)
            if name in _FAMILIES and len(strings) >= 2:
                full = f"{prefix}{strings[0]}" if name == "_gauge" else strings[0]
                yield from _one(full, _FAMILIES[name], strings[1], _labels(node))
        elif isinstance(node, ast.Tuple):
            strings = _texts(node.elts)
            if len(strings) >= 2 and _NAME.fullmatch(strings[0]):
                yield from _one(strings[0], "gauge", strings[1], ())
            elif prefix and len(strings) >= 2 and re.fullmatch(r"[a-z_]+", strings[0]):
                words = [each for each in strings[1:] if " " in each]
                if words and words[0][0].isupper() | words[0][0].isdigit():
                    yield from _one(prefix + strings[0], kind, words[0], ())


def _of_loop(loop: ast.For) -> Iterator[Series]:
    """Return the series that a loop over literal tuples names and describes:
    `f"hub_x_{what}", f"… {what} …"`."""
    if not isinstance(loop.iter, ast.Tuple) or not isinstance(loop.target, ast.Tuple):
        return
    what = ast.unparse(loop.target.elts[0])
    for call in ast.walk(loop):
        texts = [each for each in getattr(call, "args", []) if isinstance(each, ast.JoinedStr)]
        if isinstance(call, ast.Call) and len(texts) == 2 and _called(call) in _FAMILIES:
            for row in loop.iter.elts:
                word = ast.literal_eval(row.elts[0]) if isinstance(row, ast.Tuple) else ""
                name, meaning = (ast.unparse(each)[2:-1].replace(f"{{{what}}}", word) for each in texts)
                yield from _one(name, _FAMILIES[_called(call)], meaning, _labels(call))


def _one(name: str, kind: str, meaning: str, labels: tuple[str, ...]) -> Iterator[Series]:
    if _NAME.fullmatch(name) and " " in meaning:
        ending = "_total" if kind == "counter" and not name.endswith("_total") else ""
        yield Series(name + ending, kind, meaning, labels)


def _prefix(tree: ast.Module) -> tuple[str, str]:
    """Return the beginning of the names that the file puts together (`f"hub_kafka_{name}"`),
    and their kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.JoinedStr):
            first = node.args[0].values[0]
            if isinstance(first, ast.Constant) and str(first.value).startswith("hub_"):
                return str(first.value), _FAMILIES.get(_called(node), "gauge")
    return "", "gauge"


def _called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _labels(node: ast.Call) -> tuple[str, ...]:
    given = [each.value for each in node.keywords if each.arg == "labels"] + node.args[2:3]
    for each in given:
        if isinstance(each, ast.List | ast.Tuple):
            return tuple(_texts(each.elts))
    return ()
