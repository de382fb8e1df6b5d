"""[shell] Write views and topics into the made files, and check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.importing.checking import ProjectCopy
from hub.importing.project_files import ProjectFiles
from hub.importing.relations import Declaration
from hub.importing.report import StatementTranslation
from hub.materializers.definition.drafted import draft_sql


def put_topic(
    files: ProjectFiles, copy: ProjectCopy, declaration: Declaration, translation: StatementTranslation
) -> None:
    """Add a topic and its schema's file, unless the project has them.

    Raises NotTranslated if the hub's checks refuse them.
    """
    node = dict(declaration.node)
    if declaration.schema is not None:
        ending, text = declaration.schema
        path = f"schemas/{declaration.topic}-value.{ending}"
        if files.text(path) is None:
            files.made[path] = text
            translation.made.append(path)
        node["schema"] = path
    if files.add_topic(declaration.topic, node):
        translation.made.append(f"topics.yaml: {declaration.topic}")
    else:
        translation.note(f"topics.yaml has {declaration.topic} already: it stays as it is")
    copy.check_files(files)


def put_view(
    files: ProjectFiles,
    copy: ProjectCopy,
    name: str,
    sql: str,
    sources: Mapping[str, Mapping[str, Any]],
    key: Sequence[str],
    more: Mapping[str, Any],
    translation: StatementTranslation,
) -> None:
    """Add a view's file to the made files. Raises NotTranslated if the hub's checks refuse it."""
    path = f"views/{name}.yaml"
    files.made[path] = draft_sql(name, sql, sources, key, more)
    checked = copy.check_view(files, name)
    if checked.plan is not None and not checked.plan.native:
        translation.differ("incremental: the hub keeps every row that the view is made of")
    for warning in checked.warnings:
        translation.differ(warning)
    translation.made.append(path)
