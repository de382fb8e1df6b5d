"""Measure the shape of the code: ``./run check --report`` prints it, tests/unit/test_house.py keeps the limits.

Sizes are lines of a source file as an editor counts them. A function's or a class's lines go from its first line (without
decorators) to its last. Imports are those of the import graph, which import-linter uses, too.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES, MOST_LINES, MOST_OF_FUNCTION, MOST_OF_CLASS = 15, 400, 50, 300


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or a class. ``path`` is relative to the root of the repository."""

    path: str
    name: str
    lines: int
    is_class: bool


@dataclass
class Measures:
    """Measures of one source tree."""

    modules: dict[str, int] = field(default_factory=dict)
    """Lines of each module, by path."""
    definitions: list[Definition] = field(default_factory=list)

    @property
    def lines(self) -> int:
        return sum(self.modules.values())

    def folders(self) -> dict[str, tuple[int, int]]:
        """Return (modules, lines) of each folder, without its sub-folders."""
        found: dict[str, tuple[int, int]] = {}
        for path, lines in self.modules.items():
            folder = path.rpartition("/")[0]
            count, total = found.get(folder, (0, 0))
            found[folder] = count + 1, total + lines
        return found

    def crowded(self) -> dict[str, int]:
        """Return the number of modules of each folder that has too many."""
        return {folder: count for folder, (count, _) in self.folders().items() if count > MOST_FILES}

    def long_modules(self) -> dict[str, int]:
        return {path: lines for path, lines in self.modules.items() if lines > MOST_LINES}

    def long_functions(self) -> list[Definition]:
        return [each for each in self.definitions if not each.is_class and each.lines > MOST_OF_FUNCTION]

    def large_classes(self) -> list[Definition]:
        return [each for each in self.definitions if each.is_class and each.lines > MOST_OF_CLASS]

    def ambiguous_classes(self) -> dict[str, list[str]]:
        """Return the paths of each class name that is defined more than once in one package of ``hub``."""
        places: dict[tuple[str, str], list[str]] = defaultdict(list)
        for each in self.definitions:
            if each.is_class:
                places["/".join(each.path.split("/")[:2]), each.name].append(each.path)
        return {f"{package}: {name}": paths for (package, name), paths in places.items() if len(paths) > 1}


def measured(root: Path = ROOT, package: str = "hub") -> Measures:
    """Read every module of a package."""
    found = Measures()
    for path in sorted((root / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(root).as_posix()
        found.modules[name] = len(text.splitlines())
        found.definitions += _definitions(name, ast.parse(text))
    return found


def _definitions(path: str, tree: ast.Module) -> Iterator[Definition]:
    """Yield functions, methods and classes at module level and within classes; not the functions of functions."""
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            yield Definition(path, node.name, _lines(node), True)
            waiting += node.body
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Definition(path, node.name, _lines(node), False)


def _lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return modules that import one another in a circle, the first one again at the end; an empty list: there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def import_graph(package: str = "hub") -> dict[str, set[str]]:
    """Return the modules of a package and what each imports directly, except for types only."""
    import grimp

    graph = grimp.build_graph(package, exclude_type_checking_imports=True)
    return {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}


def report(found: Measures, in_circle: list[str]) -> list[str]:
    """Return the lines of the report."""
    packages: Counter[str] = Counter()
    for path, lines in found.modules.items():
        packages["/".join(path.split("/")[:2]) if path.count("/") > 1 else "hub"] += lines
    folders = found.folders()
    largest = max(folders.items(), key=lambda each: each[1][0])
    return [
        f"{len(found.modules)} modules, {found.lines:,} lines, {len(folders)} folders",
        *(f"  {name:24} {count:7,} lines" for name, count in sorted(packages.items())),
        f"folders over {MOST_FILES} modules: {len(found.crowded())} (largest: {largest[0]}, {largest[1][0]})",
        f"modules over {MOST_LINES} lines: {len(found.long_modules())}",
        f"functions over {MOST_OF_FUNCTION} lines: {len(found.long_functions())}",
        f"classes over {MOST_OF_CLASS} lines: {len(found.large_classes())}",
        *(f"  {each.path}: {each.name}, {each.lines}" for each in _largest(found.large_classes())),
        f"class names defined more than once in a package: {len(found.ambiguous_classes())}",
        f"circle of imports: {' → '.join(in_circle) or 'none'}",
    ]


def _largest(definitions: list[Definition]) -> list[Definition]:
    return sorted(definitions, key=lambda each: -each.lines)


if __name__ == "__main__":
    print("\n".join(report(measured(), circle(import_graph()))))
