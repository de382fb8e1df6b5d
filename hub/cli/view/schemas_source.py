"""[edge] A view of the project, and the schemas of its sources from the folder ``schemas``; no registry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hub.errors import ConfigError, NotFound, did_you_mean

if TYPE_CHECKING:
    from hub.materializers.definition.entity_view import View
    from hub.materializers.definition.sql_view import SqlView
    from hub.topics.tree.tree import TopicSpec


def declared_view(folder: Path, name: str) -> View | SqlView:
    """Load a view of the project by its name. Raises NotFound with a similar name, ConfigError."""
    from hub.materializers.definition.load import load_view, view_files

    files = {file.stem: file for file in view_files(folder)}
    if name not in files:
        raise without_file(name, files, folder)
    return load_view(files[name])


def without_file(name: str, known: Iterable[str], folder: Path) -> NotFound:
    """Return the error for a view that has no file, with a similar name."""
    return NotFound(
        f'view "{name}" has no file in "{folder / "views"}"',
        hint=did_you_mean(name, known, "hub view validate names those that have"),
    )


def schemas_of(folder: Path, view: View | SqlView) -> tuple[dict[str, Any], list[str]]:
    """(the schemas of a view's sources: their own, those that topics.yaml names, or that the folder "schemas"
    has for the topic; the sources of which none is known)."""
    from hub.materializers.types.cdc import NotAnEnvelope, not_an_envelope

    schemas: dict[str, Any] = {}
    topics = topics_of(folder)
    for name, source in view.sources.items():
        if source.declared is not None:
            schemas[name] = source.declared
        elif (found := _of_topic(folder, topics, source.topic)) is not None:
            try:
                schemas[name] = source.read_schema(found)
            except NotAnEnvelope as error:
                raise not_an_envelope(view.name, name, error) from None
    return schemas, [name for name in view.sources if name not in schemas]


def schema_of_topic(folder: Path, topics: Sequence[TopicSpec], topic: str) -> Any:
    """Return the schema that the project has for a topic's values, as columns (a parsed Avro record); None
    when it has none. ``topics``: of topics.yaml.
    """
    return _of_topic(folder, topics, topic)


def topics_of(folder: Path) -> Sequence[TopicSpec]:
    """Return the topics of the project's topics.yaml; none without the file."""
    from hub.topics.tree.tree import load
    from hub.yaml import is_there

    tree_file = folder / "topics.yaml"
    return load(tree_file).topics if is_there(tree_file) else ()


def _of_topic(folder: Path, topics: Sequence[TopicSpec], topic: str) -> Any:
    from hub.files import read_text
    from hub.topics.tree.tree import matches

    named = [each.schema for each in topics if each.schema is not None and matches(topic, each.name)]
    if named and named[0].suffix not in _OTHERS:
        return json.loads(read_text(Path(str(named[0]))))
    return _of_folder(folder, topic)


_OTHERS = (".json", ".proto")


def _of_folder(folder: Path, topic: str) -> Any:
    """The schema that the folder "schemas" has for a topic's values, as columns; None when it has none.

    Raises ConfigError for one that cannot be read."""
    from hub.materializers.types.source_formats import of_registry
    from hub.schema_registry.folder.load import load
    from hub.schema_registry.formats import InvalidSchema
    from hub.topics.tree.tree import declared_schemas, matches

    root = folder / "schemas"
    if not root.is_dir():
        return None
    found = load(root, declared_schemas(folder))
    for file in found.files:
        if not (file.subject.endswith("-value") and matches(topic, file.subject.removesuffix("-value"))):
            continue
        try:
            return of_registry(found.source(file))
        except InvalidSchema as error:
            raise ConfigError(error.message, hint=error.hint, where=file.where, code="HUB-1115") from None
    return None
