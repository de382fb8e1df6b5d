"""[core] Load views from their YAML files, one file or all of a folder, with their Python functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from hub.errors import ConfigError, nearest
from hub.files import read_text
from hub.materializers.dataframes import declared_build
from hub.materializers.dataframes.declared_build import PythonBuild
from hub.materializers.definition import python_functions
from hub.materializers.definition.declared import CHANGELOG_PREFIX
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.sql_checks import readable
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.types.named_files import MOST_CODE_CHARACTERS, MOST_SCHEMA_CHARACTERS
from hub.schema_registry.formats import InvalidSchema
from hub.yaml import kept_to, load_model, place, places


def load_view(path: Path) -> View | SqlView:
    """Load the view in one file: a SQL view if it has ``sql:`` or ``python:``, else an entity view.

    Raises ConfigError with file, line and column and what was expected there.
    """
    with kept_to(path):
        return _load_view(path)


def _load_view(path: Path) -> View | SqlView:
    if places(path).keys() & {("sql",), ("python",)}:
        view: View | SqlView = load_model(path, SqlView)
    else:
        view = load_model(path, View)
    if view.view != path.stem:
        raise ConfigError(
            f'view "{view.view}" is in the file "{path.name}"',
            hint=f"name the file {view.view}.yaml: a view is found by its file name",
            where=str(path),
        )
    view = _with_schema_files(path, _with_functions(path, view))
    if isinstance(view, View):
        return view
    if view.python is not None:
        return _with_build(path, view, view.python)
    readable(path, view)
    return view


def _with_schema_files(path: Path, view: View | SqlView) -> View | SqlView:
    """Return the view with the text of the schema files that its sources name. Raises ConfigError with file,
    line and what is wrong with the schema."""
    read: dict[str, Any] = {}
    for name, source in view.sources.items():
        if source.schema_file is None or source.format is None:
            continue
        file = path.parent.parent / source.schema_file.file
        where = place(path, "sources", name, "schema_file")
        try:
            text = read_text(file)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f'its schema file "{file}" cannot be read ({type(error).__name__})',
                where=where,
                hint="it is found from the project folder, such as formats/readings.avsc",
                code="HUB-1115",
            ) from None
        if len(text) > MOST_SCHEMA_CHARACTERS:
            raise ConfigError(
                f"longer than {MOST_SCHEMA_CHARACTERS} characters", where=str(file), code="HUB-1115"
            )
        whole = source.schema_file.model_copy(update={"text": text})
        read[name] = source.model_copy(update={"schema_file": whole})
        try:
            _ = read[name].declared
        except InvalidSchema as error:
            raise ConfigError(error.message, where=str(file), hint=error.hint, code="HUB-1115") from None
    return view.model_copy(update={"sources": {**view.sources, **read}}) if read else view


def _with_build(path: Path, view: SqlView, build: PythonBuild) -> SqlView:
    """Return a PySpark view with the text of its files, checked without running them. Raises ConfigError with
    file and line."""
    if view.sql:
        raise ConfigError(
            "a view has `sql` or `python`, not both",
            where=place(path, "sql"),
            hint="remove one of them",
            code=declared_build.WRONG,
        )
    file = path.parent / build.file
    text = _text_beside(file)
    if text is None:
        there = [each.name for each in path.parent.glob("*.py")]
        guess = nearest(build.file, there)
        raise ConfigError(
            f'its file "{file}" cannot be read, or has more than {MOST_CODE_CHARACTERS} characters',
            where=place(path, "python"),
            hint=f"did you mean {guess}?" if guess else "it is found from the folder of the view's file",
            code=declared_build.WRONG,
        )
    whole = build.model_copy(update={"text": text, "imports": _imports(path, build.file, text)})
    declared_build.check_function(whole, view.sources, str(file))
    return view.model_copy(update={"python": whole})


def _imports(path: Path, file: str, text: str) -> dict[str, str]:
    """Return the files of the view's folder that its Python file imports, with their text."""
    return declared_build.local_imports(file, text, lambda name: _text_beside(path.parent / name))


def _text_beside(file: Path) -> str | None:
    """Return the text of a Python file; None if there is none that can be used."""
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError):
        return None
    return text if len(text) <= MOST_CODE_CHARACTERS else None


def _with_functions(path: Path, view: View | SqlView) -> View | SqlView:
    """Return the view with the text of its file of functions. Raises ConfigError with file, line and
    function."""
    if view.transforms is None:
        return view
    file = path.parent / view.transforms.file
    try:
        text = read_text(file)
    except (OSError, UnicodeDecodeError) as error:
        there = [each.name for each in path.parent.glob("*.py")]
        guess = nearest(view.transforms.file, there)
        raise ConfigError(
            f'its functions\' file "{file}" cannot be read ({type(error).__name__})',
            where=place(path, "transforms"),
            hint=f"did you mean {guess}?" if guess else "it is found from the folder of the view's file",
            code="HUB-2151",
        ) from None
    if len(text) > MOST_CODE_CHARACTERS:
        raise ConfigError(
            f"longer than {MOST_CODE_CHARACTERS} characters",
            where=str(file),
            hint="import a package for large code",
            code="HUB-2151",
        )
    python_functions.functions(text, str(file))
    return view.model_copy(update={"transforms": view.transforms.model_copy(update={"text": text})})


_NAMES_SCHEMA = re.compile(r"""\bschema_file:\s*(?:\{\s*file:\s*)?["']?([\w./-]+\.(?:avsc|proto))""")
_NAMES_FILE = re.compile(
    r"""^(transforms|python):\s*(?:\{\s*file:\s*)?["']?(?:views/)?([\w./-]+\.py)""", re.MULTILINE
)


def files_of(path: Path) -> tuple[Path, ...]:
    """Return the files that define a view and exist: its own, its Python and schema files, and what a PySpark
    view's file imports from their folder."""
    paths, text = [path], read_text(path, errors="replace")
    schemas = (path.parent.parent / name for name in _NAMES_SCHEMA.findall(text))
    paths += [file for file in schemas if file.is_file()]
    for kind, name in _NAMES_FILE.findall(text):
        file = path.parent / name
        if not file.is_file():
            continue
        paths.append(file)
        if kind == "python":
            with suppress(ConfigError):  # of too many files: loading the view reports it
                paths += [path.parent / each for each in _imports(path, name, _text_beside(file) or "")]
    return tuple(dict.fromkeys(paths))


def definition_text(path: Path) -> str:
    """Return the text that defines a view: its file, followed by its Python files."""
    own, *beside = files_of(path)
    text = read_text(own, errors="replace")
    for each in beside:
        text += f"\n# ---- {each.name}\n{read_text(each, errors='replace')}"
    return text


def view_of(body: str) -> View | SqlView:
    """Load a view that was checked before from the JSON of ``body_of``."""
    if orjson.loads(body).keys() & {"sql", "python"}:
        return SqlView.model_validate_json(body)
    return View.model_validate_json(body)


def clear_text_views(bodies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return the views with clear text of encrypted fields: those with ``decrypt``, and those that read them.
    ``bodies``: the definitions of all versions of each view, as ``body_of`` has them.
    """
    sources = {
        view: [each for body in texts for each in (orjson.loads(body).get("sources") or {}).values()]
        for view, texts in bodies.items()
    }
    found = {view for view, given in sources.items() if any(each.get("decrypt") is True for each in given)}
    while True:
        more = {
            view
            for view, given in sources.items()
            if any(_view_read(str(each.get("topic"))) in found for each in given)
        }
        if more <= found:
            return frozenset(found)
        found |= more


def _view_read(topic: str) -> str | None:
    """Return the view whose changelog, of any version, a source reads; None for a topic of events."""
    if not topic.startswith(CHANGELOG_PREFIX):
        return None
    return topic.removeprefix(CHANGELOG_PREFIX).partition(".")[0]


def body_of(view: View | SqlView) -> str:
    """Return a view as JSON, for the log."""
    return view.model_dump_json(by_alias=True, exclude_defaults=True)


def view_files(project: Path) -> list[Path]:
    """Return the files of a project's views, by name. Skips hidden files and broken links, which editors
    leave temporarily."""
    paths = (project / "views").glob("*.yaml")
    return sorted(path for path in paths if not path.name.startswith(".") and path.exists())


def load_views(
    project: Path, refused: Callable[[Path, ConfigError], None] | None = None
) -> list[View | SqlView]:
    """Load all views of a project folder, by name; [] when it has none.

    ``refused`` is called with each file that does not load, and the others are returned. Without it
    ConfigError is raised.
    """
    found = []
    for path in view_files(project):
        try:
            found.append(load_view(path))
        except ConfigError as error:
            if refused is None:
                raise
            refused(path, error)
    return found
