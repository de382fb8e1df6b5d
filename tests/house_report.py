"""Measure the shape of the code: ``./run check --report`` prints it, tests/unit/test_house.py keeps the
limits.

Sizes are lines of a source file as an editor counts them. A function's or a class's lines go from its first
line (without decorators) to its last. Imports are those of the import graph, which import-linter uses, too.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from prose_report import private

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES, MOST_LINES, MOST_OF_FUNCTION, MOST_OF_CLASS = 15, 400, 50, 300
MUTATIONS = ROOT / ".cache" / "mutations.json"


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
    """Yield functions, methods and classes at module level and within classes;
    not the functions of functions."""
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


@dataclass(frozen=True, slots=True)
class Habits:
    """Habits of tests that should be unnecessary: lines such as ``path:12``."""

    private: tuple[str, ...]
    """Uses of private members of other objects (``store._rows``; not of ``self`` and ``cls``), and imports of
    private names of ``hub``. ``_replace`` of named tuples and the constants of ``KafkaError`` are public.
    """
    sleeps: tuple[str, ...]
    """Calls of ``time.sleep`` and ``asyncio.sleep``, except for ``asyncio.sleep(0)``, which only yields."""


def habits_of_tests(folder: Path = ROOT / "tests") -> Habits:
    """Read every file of tests."""
    private, sleeps = [], []
    for path in sorted(folder.rglob("*.py")):
        name = path.relative_to(folder.parent).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and _is_private(node):
                private.append(f"{name}:{node.lineno}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hub"):
                private += [f"{name}:{node.lineno}" for each in node.names if each.name.startswith("_")]
            elif isinstance(node, ast.Call) and _sleeps(node):
                sleeps.append(f"{name}:{node.lineno}")
    return Habits(tuple(sorted(private)), tuple(sorted(sleeps)))


def _is_private(node: ast.Attribute) -> bool:
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    if node.attr.startswith("__") or node.attr == "_replace":
        return False
    return node.attr.startswith("_") and owner not in ("self", "cls", "os", "KafkaError")


def _sleeps(node: ast.Call) -> bool:
    if ast.unparse(node.func) not in ("time.sleep", "asyncio.sleep", "sleep"):
        return False
    return not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)


def short_options() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return (short option -> option, short option -> its options if there are several) over all commands."""
    from hub.cli import COMMANDS, load_command

    meanings: dict[str, set[str]] = defaultdict(set)
    waiting = [load_command(name) for name in COMMANDS]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        for option in command.params:
            for letter in option.opts:
                if len(letter) == 2 and letter.startswith("-"):
                    meanings[letter].add(next(name for name in option.opts if name.startswith("--")))
    clear = {letter: min(names) for letter, names in sorted(meanings.items())}
    return clear, {letter: sorted(names) for letter, names in meanings.items() if len(names) > 1}


def mutations(path: Path = MUTATIONS) -> str:
    """Return the result of the last ``./run mutate`` as a line."""
    try:
        last = json.loads(path.read_text(encoding="utf-8"))
        unknown = f", {last['unknown']} unknown" if last["unknown"] else ""
        return f"{last['caught']} of {last['mutants']} caught{unknown} (seed {last['seed']})"
    except (OSError, ValueError, KeyError):
        return "unknown: start ./run mutate"


def circle(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Return modules that import one another in a circle, the first one again at the end;
    an empty list: there is none."""
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


def names_in_several_packages(found: Measures) -> dict[str, int]:
    """Return the number of definitions of each class name that more than one package of ``hub`` defines."""
    counts = Counter(each.name for each in found.definitions if each.is_class)
    return {name: count for name, count in counts.most_common() if count > 1}


def report(found: Measures, in_circle: list[str], habits: Habits) -> list[str]:
    """Return the lines of the report."""
    packages: Counter[str] = Counter()
    for path, lines in found.modules.items():
        packages["/".join(path.split("/")[:2]) if path.count("/") > 1 else "hub"] += lines
    folders = found.folders()
    largest = max(folders.items(), key=lambda each: each[1][0])
    letters, ambiguous = short_options()
    repeated = names_in_several_packages(found)
    return [
        f"{len(found.modules)} modules, {found.lines:,} lines, {len(folders)} folders",
        *(f"  {name:24} {count:7,} lines" for name, count in sorted(packages.items())),
        f"folders over {MOST_FILES} modules: {len(found.crowded())} (largest: {largest[0]}, {largest[1][0]})",
        f"modules over {MOST_LINES} lines: {len(found.long_modules())}",
        f"functions over {MOST_OF_FUNCTION} lines: {len(found.long_functions())}",
        f"classes over {MOST_OF_CLASS} lines: {len(found.large_classes())}",
        *(f"  {each.path}: {each.name}, {each.lines}" for each in _largest(found.large_classes())),
        f"class names defined more than once in a package: {len(found.ambiguous_classes())}",
        f"class names in several packages: {len(repeated)}"
        + "".join(f", {name} {count}" for name, count in list(repeated.items())[:5]),
        f"short options: {', '.join(f'{letter} {name}' for letter, name in letters.items())}",
        f"short options with several meanings: {len(ambiguous)}",
        f"private members of other objects in tests: {len(habits.private)}",
        f"sleeps in tests: {len(habits.sleeps)}",
        f"mutations: {mutations()}",
        f"private words: {', '.join(f'{kind} {count}' for kind, count in sorted(private().items()))}",
        f"circle of imports: {' → '.join(in_circle) or 'none'}",
    ]


def _largest(definitions: list[Definition]) -> list[Definition]:
    return sorted(definitions, key=lambda each: -each.lines)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print("\n".join(report(measured(), circle(import_graph()), habits_of_tests())))
