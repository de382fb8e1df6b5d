"""[shell] Write the file of a view into the made files, and check it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.importing.checking import ProjectCopy
from hub.importing.project_files import ProjectFiles
from hub.importing.report import Translation
from hub.materializers.definition.drafted import draft_sql


def put_view(
    files: ProjectFiles,
    copy: ProjectCopy,
    name: str,
    sql: str,
    sources: Mapping[str, Mapping[str, Any]],
    key: Sequence[str],
    more: Mapping[str, Any],
    said: Translation,
) -> None:
    """Add a view's file to the made files. Raises NotTranslated if the hub's checks refuse it."""
    path = f"views/{name}.yaml"
    files.made[path] = draft_sql(name, sql, sources, key, more)
    checked = copy.check_view(files, name)
    if checked.plan is not None and not checked.plan.native:
        said.differ("incremental: the hub keeps every row that the view is made of")
    for warning in checked.warnings:
        said.differ(warning)
    said.made.append(path)
