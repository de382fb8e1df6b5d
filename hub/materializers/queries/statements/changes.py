"""[shell] Draft, check, write and remove the files of views.

A draft is loaded and checked as ``hub view validate`` checks a file, before the project's file is touched.
The caller needs the role admin over the view and may read everything that the view reads.
"""

from __future__ import annotations

import difflib
import logging
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.caller import (
    CALLER,
    Action,
    Kind,
    Resource,
    done_by,
    reads_all,
    require,
    sees_topic,
    topic_visibility,
    view_visibility,
)
from hub.errors import ConfigError, Conflict, NotFound, did_you_mean, nearest
from hub.files import read_text, write_text
from hub.masking.shape import Visibility
from hub.materializers.definition.drafted import draft_sql
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.validation import CheckedView, ViewProject, checked_view
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.statements.grammar import CODE, CreateView, DropView
from hub.materializers.queries.statements.sources import SourcedSelect, sourced
from hub.materializers.queries.topic_rows import TopicTables
from hub.materializers.types.cdc import NotAnEnvelope, not_an_envelope
from hub.materializers.types.source_formats import of_registry
from hub.schema_registry.formats import InvalidSchema

log = logging.getLogger(__name__)
_PATTERN = "the pattern may cover topics that are masked for you"
# Options of CREATE … WITH that are not keys of the file.
WAIT = "wait"


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A change of one view's file. ``text`` None: the file is removed. ``before`` "": it is new.
    ``declared``: the view that the text declares.
    """

    view: str
    file: Path
    before: str
    text: str | None
    checked: CheckedView | None = None
    reads: tuple[str, ...] = ()
    declared: View | SqlView | None = None

    @property
    def diff(self) -> list[str]:
        name = f"views/{self.file.name}"
        lines = difflib.unified_diff(
            self.before.splitlines(), (self.text or "").splitlines(), name, name, lineterm=""
        )
        return list(lines)


@dataclass(frozen=True, slots=True)
class ProjectViews:
    """The views of a project. ``allowed`` False: this server changes no files (``sql_changes_views``)."""

    project: Path
    stores: Collection[str]
    topics: TopicTables
    allowed: bool = True

    def names(self) -> list[str]:
        return [each.stem for each in view_files(self.project)]

    def text(self, view: str) -> str:
        """Return the text of a view's file. Raises NotFound."""
        file = self._file(view)
        if not file.exists():
            raise NotFound(
                f'view "{view}" has no file',
                hint=did_you_mean(view, self.names(), "SHOW VIEWS lists the views"),
                code="HUB-1410",
            )
        return read_text(file)

    def created(self, statement: CreateView) -> ViewChange | None:
        """Draft and check the file of a CREATE; None: the view exists, and the statement allows that.

        Raises SqlError, ConfigError, Conflict, Forbidden. Nothing is written. Blocks.
        """
        require(Action.admin, Resource(Kind.view, statement.name))
        file = self._file(statement.name)
        before = read_text(file) if file.exists() else ""
        if before and statement.if_not_exists:
            return None
        if before and not statement.replace:
            raise Conflict(
                f'view "{statement.name}" exists',
                hint="CREATE OR REPLACE MATERIALIZED VIEW changes it: docs/how-to/change-a-view.md",
                code="HUB-1467",
            )
        return self.drafted(statement)

    def drafted(self, statement: CreateView) -> ViewChange:
        """Draft and check the file of a CREATE for a caller who reads all its sources, and may perhaps not
        write it. Raises SqlError, ConfigError, Forbidden. Nothing is written. Blocks.
        """
        file = self._file(statement.name)
        known = [each for each in self.names() if each != statement.name]
        select = sourced(statement.name, statement.sql, known, self._visible_topics)
        _require_whole(select)
        sources, more = _with_options(statement, select)
        text = draft_sql(statement.name, select.sql, sources, statement.key, more)
        view, checked = self._checked(statement.name, text)
        before = read_text(file) if file.exists() else ""
        return ViewChange(statement.name, file, before, text, checked, tuple(select.topics), view)

    def dropped(self, statement: DropView) -> ViewChange | None:
        """Return the removal of a view's file; None: it has none, and the statement allows that.

        Raises NotFound, Conflict, Forbidden.
        """
        require(Action.admin, Resource(Kind.view, statement.name))
        file = self._file(statement.name)
        if statement.if_exists and not file.exists():
            return None
        before = self.text(statement.name)
        readers = sorted(self._readers(statement.name))
        if readers:
            raise Conflict(
                f'view "{statement.name}" is read by {", ".join(readers)}',
                hint=f"drop or change {readers[0]} first",
                code="HUB-1467",
            )
        return ViewChange(statement.name, file, before, None)

    def write(self, change: ViewChange) -> None:
        """Write or remove the file. Raises ConfigError where the project is read-only."""
        what = "created" if not change.before else "dropped" if change.text is None else "replaced"
        try:
            if not self.allowed:
                raise ConfigError("sql_changes_views is off in hub.yaml", code="HUB-1468")
            if change.text is None:
                change.file.unlink()
            else:
                write_text(change.file, change.text)
        except (OSError, ConfigError) as error:
            message = error.message if isinstance(error, ConfigError) else str(error.strerror)
            raise ConfigError(
                f'view "{change.view}" is not {what}: the project is deployed read-only ({message})',
                hint=f"commit the change of views/{change.file.name} in git; EXPLAIN shows it",
                code="HUB-1468",
            ) from None
        log.info("%s %s view %s by SQL", done_by("a caller"), what, change.view)

    def _file(self, view: str) -> Path:
        return self.project / "views" / f"{view}.yaml"

    def _visible_topics(self) -> list[str]:
        return list(filter(sees_topic, self.topics.names()))

    def _readers(self, view: str) -> set[str]:
        found = set()
        for file in view_files(self.project):
            try:
                loaded = load_view(file)
            except ConfigError:
                continue  # a file that does not load runs nowhere
            if isinstance(loaded, SqlView) and any(each.view == view for each in loaded.sources.values()):
                found.add(loaded.name)
        return found

    def _checked(self, name: str, text: str) -> tuple[View | SqlView, CheckedView]:
        """Load and check a draft as ``hub view validate`` would. Raises ConfigError."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{name}.yaml"
            file.write_text(text, encoding="utf-8")
            try:
                project = ViewProject(self.project, self.stores, self.schemas_of)
                view = load_view(file)
                return view, checked_view(project, file, view)
            except ConfigError as error:
                message = error.message.replace(str(file), f"views/{file.name}")
                named = ConfigError(message, hint=error.hint, code=error.code)
                named.details = error.details
                raise named from None

    def schemas_of(self, view: View | SqlView) -> tuple[Mapping[str, Any], list[str]]:
        """Return the schemas of a view's sources, as the registry has them, and the sources without one."""
        found: dict[str, Any] = {}
        for name, source in view.sources.items():
            if source.declared is not None:
                found[name] = source.declared
            elif (versions := self.topics.schemas.versions(f"{source.topic}-value")) != []:
                try:
                    found[name] = source.read_schema(of_registry(self.topics.schemas.source(versions[-1].id)))
                except InvalidSchema:
                    continue
                except NotAnEnvelope as error:
                    raise not_an_envelope(view.name, name, error) from None
        return found, [name for name in view.sources if name not in found]


def _require_whole(select: SourcedSelect) -> None:
    """Raise Forbidden unless the caller reads all that the SELECT reads, with nothing masked: the rows of the
    view are computed by the hub, which sees everything.
    """
    reads_all(select.topics, select.views)
    caller = CALLER.get()
    masked = caller is not None and caller.is_masked
    shapes = [*map(topic_visibility, select.topics), *map(view_visibility, select.views)]
    # A pattern covers topics that do not exist yet.
    shapes += [
        Visibility(f'topics "{each}"', closed=_PATTERN) for each in select.topics if masked and "*" in each
    ]
    for shape in shapes:
        shape.require_open("CREATE MATERIALIZED VIEW")


def _with_options(statement: CreateView, select: SourcedSelect) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sources with their options, and the options of the view. Raises SqlError."""
    sources: dict[str, dict[str, Any]] = {name: dict(each) for name, each in select.sources.items()}
    more: dict[str, Any] = {}
    for name, value in statement.options.items():
        source, dot, option = name.rpartition(".")
        if not dot:
            if name != WAIT:
                more[name] = [each.strip() for each in value.split(",")] if name in _LISTS else value
            continue
        found = next(
            (each for each, settings in sources.items() if source in (each, *settings.values())), None
        )
        if found is None:
            guess = nearest(source, sources)
            raise SqlError(
                f'option "{name}": the SELECT reads no "{source}"',
                hint=f'did you mean "{guess}.{option}"?' if guess else f"it reads {', '.join(sources)}",
                code=CODE,
            )
        if option == "table":
            sources[found][option] = {"key": [each.strip() for each in value.split(",")]}
        else:
            sources[found][option] = value
    return sources, more


_LISTS = ("stores", "indexes")
