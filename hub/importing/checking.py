"""[shell] A copy of the project in a temporary folder: each made file is loaded and checked there, as
`hub view validate` does."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hub.connectors.connectors_file import load_connectors
from hub.errors import ConfigError
from hub.files import read_text
from hub.importing.project_files import CONNECTORS, TOPICS, ProjectFiles
from hub.importing.report import NotTranslated
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.validation import CheckedView, ViewProject, checked_view
from hub.topics.tree.tree import load as load_tree

SchemasIn = Callable[[Path, View | SqlView], tuple[Mapping[str, Any], list[str]]]
_FILES = ("topics.yaml", "connectors.yaml", "views/*.yaml", "views/*.py", "schemas/**/*")
_MOST_FILES = 5_000


def project_texts(folder: Path) -> dict[str, str]:
    """Return the texts of a project's files by their path in it. Raises ConfigError."""
    found: dict[str, str] = {}
    for pattern in _FILES:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.name.startswith("."):
                found[str(path.relative_to(folder))] = read_text(path, errors="replace")
    if len(found) > _MOST_FILES:
        raise ConfigError(
            f'folder "{folder}" has more than {_MOST_FILES} files', hint="name a project: --into"
        )
    return found


@dataclass
class ProjectCopy:
    """The copy. ``stores``: names of the project's stores. ``schemas_in`` returns the schemas of a view's
    sources."""

    folder: Path
    stores: Collection[str]
    schemas_in: SchemasIn

    def write(self, files: ProjectFiles) -> None:
        """Bring the copy to the state of the files."""
        for path in (TOPICS, CONNECTORS):
            text = files.text(path)
            if text is None:
                (self.folder / path).unlink(missing_ok=True)
            else:
                self._write(path, text)
        for path, text in files.made.items():
            self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def check_files(self, files: ProjectFiles) -> None:
        """Load topics.yaml and connectors.yaml. Raises NotTranslated."""
        self.write(files)
        with self._refusing():
            if files.text(TOPICS) is not None:
                load_tree(self.folder / TOPICS)
            if files.text(CONNECTORS) is not None:
                load_connectors(self.folder)

    def check_view(self, files: ProjectFiles, name: str) -> CheckedView:
        """Load and check a view. Raises NotTranslated; then its file is removed from the copy."""
        self.write(files)
        path = self.folder / "views" / f"{name}.yaml"
        try:
            with self._refusing():
                project = ViewProject(
                    self.folder, self.stores, lambda view: self.schemas_in(self.folder, view)
                )
                return checked_view(project, path, load_view(path))
        except NotTranslated:
            path.unlink(missing_ok=True)
            raise

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            message = error.message.replace(f"{self.folder}/", "")
            raise NotTranslated(f"{error.code}: {message}", error.hint or "write the view by hand") from None


@contextmanager
def project_copy(
    before: Mapping[str, str], stores: Collection[str], schemas_in: SchemasIn
) -> Iterator[ProjectCopy]:
    """Yield a copy of the project's files; it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hub-import-") as folder:
        copy = ProjectCopy(Path(folder), stores, schemas_in)
        for path, text in before.items():
            copy._write(path, text)
        yield copy
