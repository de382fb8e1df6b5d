"""Pytest plugin: the module that MUTANT_MODULE names is imported from the text in MUTANT_FILE.
No source is changed."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads the text of the mutant; the module's ``__file__`` stays that of the original."""

    def __init__(self, name: str, path: str, mutant: Path) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_data(self, path: str | os.PathLike[str]) -> bytes:
        return self._mutant.read_bytes()

    def path_stats(self, path: str | os.PathLike[str]) -> dict[str, float]:
        raise OSError("a mutant has no bytecode file")


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds one module and gives it the text of its mutant."""

    def __init__(self, module: str, mutant: Path) -> None:
        self._module, self._mutant = module, mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        if found is None or found.origin is None:
            return None
        loader = _Loader(name, found.origin, self._mutant)
        return importlib.util.spec_from_file_location(name, found.origin, loader=loader)


if (_module := os.environ.get("MUTANT_MODULE")) is not None:
    assert _module not in sys.modules, "the module was imported before its mutant"
    sys.meta_path.insert(0, MutantFinder(_module, Path(os.environ["MUTANT_FILE"])))
