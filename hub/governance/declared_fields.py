"""[edge] Fields with their tags, from the schema files of a project; no registry and no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hub.access.masking.facts import Tags, TopicFields, ViewColumns
from hub.errors import ConfigError, PeerError
from hub.files import read_text
from hub.masking.shape import FieldPath
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.folder.load import SUFFIXES, load
from hub.schema_registry.formats import InvalidSchema
from hub.topics.tree.tree import declared_schemas

_ENDS = {"-value": (), "-key": ("_key",)}


class DeclaredMaskFacts:
    """``hub.access.masking.facts.MaskFacts`` of a project's files. ``tagged`` returns the fields of a schema.
    Raises ConfigError for a folder of schemas that cannot be read, with the file."""

    def __init__(self, project: Path, tagged: Callable[[SchemaSource], Mapping[FieldPath, Tags]]) -> None:
        self._fields: dict[str, dict[FieldPath, Tags]] = {}
        for subject, where, source in _schemas(project):
            for end, around in _ENDS.items():
                if subject.endswith(end):
                    fields = self._fields.setdefault(subject.removesuffix(end), {})
                    fields |= {(*around, *path): tags for path, tags in _read(tagged, source, where).items()}

    def topic(self, name: str) -> TopicFields:
        return TopicFields(self._fields.get(name, {}))

    def view(self, name: str) -> ViewColumns:
        raise PeerError(f'view "{name}": only its file is known', hint="ask the running server")


def _schemas(project: Path) -> Iterator[tuple[str, str, SchemaSource]]:
    """Yield subject, place and schema of each file that the project has for a subject."""
    root, declared = project / "schemas", declared_schemas(project)
    if root.is_dir():
        folder = load(root, declared)
        for file in folder.files:
            yield file.subject, file.where, folder.source(file)
    for path, schemas in declared.items():
        if not path.is_relative_to(root.resolve()):
            kind = SUFFIXES.get(path.suffix, "AVRO")
            for each in schemas:
                yield each.subject, f"{path}", SchemaSource.of(kind, read_text(path))


def _read(
    tagged: Callable[[SchemaSource], Mapping[FieldPath, Tags]], source: SchemaSource, where: str
) -> Mapping[FieldPath, Tags]:
    try:
        return tagged(source)
    except InvalidSchema as error:
        raise ConfigError(error.message, hint=error.hint, where=where, code="HUB-1115") from None
