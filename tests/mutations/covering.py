"""Select the unit tests for a mutated module: those whose imports reach it, the nearest first."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

NEAREST, MOST_FILES = 2, 24


def imported(source: str) -> set[str]:
    """Return the dotted names that a module of ``hub`` or a test imports, also within functions: modules, and
    names of modules (``from a import b`` gives both ``a`` and ``a.b``).
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def distances(module: str, imports: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the number of imports between each module and ``module``: 1 imports it, 2 imports one that does.

    >>> distances("a", {"a": set(), "b": {"a"}, "c": {"b"}, "d": set()})
    {'a': 0, 'b': 1, 'c': 2}
    """
    found, edge = {module: 0}, {module}
    while edge:
        edge = {name for name, names in imports.items() if names & edge and name not in found}
        found.update(dict.fromkeys(sorted(edge), max(found.values()) + 1))
    return found


def import_map(root: Path) -> dict[str, set[str]]:
    """Return the imports of each module of ``hub`` by its dotted name,
    and of each file of unit tests by its path."""
    found = {}
    for path in (root / "hub").rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = imported(path.read_text(encoding="utf-8"))
    for path in (root / "tests/unit").rglob("test_*.py"):
        found[path.relative_to(root).as_posix()] = imported(path.read_text(encoding="utf-8"))
    # Helpers of tests are imported by their bare names.
    for path in (root / "tests").glob("*.py"):
        found[path.stem] = imported(path.read_text(encoding="utf-8"))
    return found


def covering(module: str, imports: Mapping[str, set[str]]) -> list[str]:
    """Return the files of unit tests for a module, the nearest first: all that import it or import an
    importer of it, and of those farther away the ones of its own package.
    """
    package = module.split(".")[1]
    found = {name: far for name, far in distances(module, imports).items() if name.startswith("tests/unit/")}
    near = [
        name
        for name, far in found.items()
        if far <= NEAREST or (far == NEAREST + 1 and f"/{package}/" in name)
    ]
    return sorted(near, key=lambda name: (found[name], f"/{package}/" not in name, name))[:MOST_FILES]
