"""[core] The function of a PySpark view as declared in its file, checked without running it.

``python: fraud.py:build`` names a file in the folder of the view's file, and a function in it. Its parameters
are the names of the view's sources. ``imports`` are the files of the same folder that the file imports,
directly or through others: a change of one of them changes the view.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Any

from pydantic import Field, model_validator

from hub.errors import ConfigError, nearest
from hub.materializers.types.named_files import MOST_CODE_CHARACTERS, PythonFile

WRONG = "HUB-2156"
MOST_IMPORTS = 50


class PythonBuild(PythonFile):
    """A function that makes a view's rows of data frames, and the text of its files.

    ``lines``: for each line of the view's SQL the line of ``file`` that it was made of; 0: unknown.
    """

    function: str = Field("build", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)
    imports: dict[str, str] = Field(default_factory=dict)
    lines: list[int] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        """``python: views/fraud.py:build`` is short for ``{file: fraud.py, function: build}``."""
        if not isinstance(given, str):
            return given
        file, _, function = given.partition(":")
        file = file.removeprefix("views/")
        return {"file": file, "function": function} if function else {"file": file}


def check_function(build: PythonBuild, sources: Collection[str], where: str) -> None:
    """Check that the file has the function, with one parameter for each source. ``where``: the file's path
    for messages. Raises ConfigError with file and line."""
    tree = _parsed(build.text, where)
    known = {
        each.name: each for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found = known.get(build.function)
    if found is None:
        guess = nearest(build.function, known)
        raise ConfigError(
            f'it has no function "{build.function}"',
            where=where,
            hint=f"did you mean {guess}?" if guess else f"def {build.function}({', '.join(sources)}):",
            code=WRONG,
        )
    at = f"{where}:{found.lineno}"
    if isinstance(found, ast.AsyncFunctionDef):
        raise ConfigError(f"{found.name} is async", where=at, hint=f"write def {found.name}", code=WRONG)
    arguments = found.args
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if set(named) != set(sources) or arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise ConfigError(
            f"{found.name}({', '.join(named)}): its parameters are not the sources of the view",
            where=at,
            hint=f"def {found.name}({', '.join(sources)}): each gets the data frame of the source",
            code=WRONG,
        )


def line_of(build: PythonBuild) -> int:
    """Return the line of the function's definition; 0 if the text has none."""
    try:
        tree = _parsed(build.text, build.file)
    except ConfigError:
        return 0
    lines = [each.lineno for each in tree.body if getattr(each, "name", "") == build.function]
    return lines[-1] if lines else 0


def local_imports(file: str, text: str, read: Callable[[str], str | None]) -> dict[str, str]:
    """Return the files of the views' folder that a file imports, directly or through others, with their text.

    ``read`` returns the text of a file of the folder, None if there is none. A file that cannot be parsed
    imports nothing here; running it reports the error. Raises ConfigError for more than MOST_IMPORTS files.
    """
    found: dict[str, str] = {}
    waiting = [(file, text)]
    while waiting:
        importing, body = waiting.pop()
        for candidate in _candidates(importing, body):
            if candidate == file or candidate in found:
                continue
            other = read(candidate)
            if other is None:
                continue
            if len(found) == MOST_IMPORTS or len(other) > MOST_CODE_CHARACTERS:
                raise ConfigError(
                    f'"{candidate}" is more than a view imports from its folder: '
                    f"{MOST_IMPORTS} files of {MOST_CODE_CHARACTERS} characters",
                    where=file,
                    hint="import a package for large code",
                    code=WRONG,
                )
            found[candidate] = other
            waiting.append((candidate, other))
    return dict(sorted(found.items()))


def module_of(file: str) -> str:
    """Return the name by which a file of the folder is imported.

    >>> module_of("rules/cards.py"), module_of("rules/__init__.py")
    ('rules.cards', 'rules')
    """
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@lru_cache(maxsize=256)
def _candidates(file: str, text: str) -> tuple[str, ...]:
    """Return the files of the folder that a file may import."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        candidate for node in ast.walk(tree) for name in _modules(node, file) for candidate in _files_of(name)
    )


def _modules(node: ast.AST, file: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        package = module_of(file).split(".")
        above = package[: len(package) - node.level + file.endswith("__init__.py")] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if base:
            yield base
        yield from (f"{base}.{each.name}" if base else each.name for each in node.names)


def _files_of(module: str) -> Iterator[str]:
    """Yield the files that importing a module runs: each package on the way, and the module."""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        path = "/".join(parts[:count])
        yield f"{path}.py"
        yield f"{path}/__init__.py"


def _parsed(text: str, where: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise ConfigError(
            f"no valid Python: {getattr(error, 'msg', None) or error}",
            where=f"{where}:{line}" if line else where,
            code=WRONG,
        ) from None
