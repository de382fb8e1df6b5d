"""[edge] The files of a PySpark view, run from their stored text.

A file of the views' folder is imported by its name, as if the folder were the first of ``sys.path``. The text
comes from the view, not from the disk: a file that changes meanwhile is another view.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, ModuleType, TracebackType

from hub.materializers.dataframes.declared_build import PythonBuild, module_of


class ViewModules(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and runs the files of a view by their text."""

    def __init__(self, build: PythonBuild) -> None:
        texts = {build.file: build.text, **build.imports}
        self._files: Mapping[str, str] = {module_of(file): file for file in texts}
        self._texts = texts
        self.main = build.file

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            inside = any(name.startswith(f"{fullname}.") for name in self._files)
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True) if inside else None
        package = file.endswith("__init__.py")
        return importlib.machinery.ModuleSpec(fullname, self, origin=file, is_package=package)

    def get_source(self, fullname: str) -> str:
        return self._texts[self._files[fullname]]

    def get_code(self, fullname: str) -> CodeType:
        file = self._files[fullname]
        text = self._texts[file]
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        return compile(text, file, "exec")

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)  # noqa: S102 - the project's own code; settings.transforms

    def run(self) -> ModuleType:
        """Import the view's file and return it as a module. Raises whatever its code raises."""
        sys.meta_path.insert(0, self)
        name = module_of(self.main)
        for known in self._files:
            sys.modules.pop(known, None)
        return importlib.import_module(name)

    def close(self) -> None:
        """Let later imports find other files of these names."""
        sys.meta_path.remove(self)
        for name in self._files:
            sys.modules.pop(name, None)

    def line_of(self, place: str) -> int:
        """Return the line of a place ``file:line`` in the view's own file; 0 for another place."""
        file, _, line = place.rpartition(":")
        return int(line) if file == self.main and line.isdigit() else 0

    def place_of(self, traceback: TracebackType | None) -> tuple[str, int]:
        """Return (file, line) of the last of the view's files in a traceback; ("", 0) without one."""
        found = ("", 0)
        while traceback is not None:
            file = traceback.tb_frame.f_code.co_filename
            if file in self._texts:
                found = (file, traceback.tb_lineno)
            traceback = traceback.tb_next
        return found
