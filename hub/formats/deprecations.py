"""[edge] Keys and values of YAML files that a later release removes. They work for two minor versions more,
with a warning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import yaml

from hub.errors import HubError
from hub.yaml_nodes import compose, where_of


@dataclass(frozen=True, slots=True)
class Deprecation:
    """A deprecated key. ``file``: pattern of the file's path in the project, such as ``views/*.yaml``;
    ``key``: dotted path in the file, where ``*`` is any part of it. ``since`` and ``removed_in``: releases.
    ``replacement``: what to write instead. ``value``: pattern of the key's text, if only such values are
    deprecated.
    """

    file: str
    key: str
    since: str
    removed_in: str
    replacement: str
    value: str = ""

    def is_of(self, key: str, value: yaml.Node | None) -> bool:
        """Return whether a key with this value is deprecated."""
        text = value.value if isinstance(value, yaml.ScalarNode) else ""
        return fnmatchcase(key, self.key) and (not self.value or fnmatchcase(text, self.value))


@dataclass(frozen=True, slots=True)
class DeprecatedKey:
    """A deprecated key in a file. ``where``: file:line:column."""

    where: str
    key: str
    since: str
    removed_in: str
    replacement: str

    def __str__(self) -> str:
        return (
            f"{self.where}: `{self.key}` is deprecated since {self.since} and removed in {self.removed_in}: "
            f"{self.replacement}"
        )


DEPRECATIONS: tuple[Deprecation, ...] = (
    Deprecation(
        *("hub.yaml", "stores.*", "0.2.0", "0.4.0"),
        "its views are Iceberg tables now; write `iceberg`",
        "parquet*",
    ),
)
"""The oldest first. ``removed_in`` is at least two minor versions after ``since``."""


def deprecated_keys(project: Path, deprecations: Sequence[Deprecation] = DEPRECATIONS) -> list[DeprecatedKey]:
    """Return the deprecated keys of a project's YAML files, by place. Files that cannot be read are left to
    their loaders."""
    found = []
    for path in sorted(project.rglob("*.yaml")) if deprecations else ():
        name = path.relative_to(project).as_posix()
        of_file = [each for each in deprecations if fnmatchcase(name, each.file)]
        try:
            root = compose(path) if of_file else None
        except HubError:
            continue
        for key, node, value in _keys(root):
            found += [
                DeprecatedKey(
                    where_of(path, node.start_mark), key, each.since, each.removed_in, each.replacement
                )
                for each in of_file
                if each.is_of(key, value)
            ]
    return found


def _keys(node: yaml.Node | None, before: tuple[str, ...] = ()) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yield the dotted path of every key below a node, the key's own node, and its value."""
    inner: Iterable[tuple[str, yaml.Node, yaml.Node]] = ()
    if isinstance(node, yaml.MappingNode):
        inner = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inner = [(str(index), each, each) for index, each in enumerate(node.value)]
    for name, place, value in inner:
        path = (*before, name)
        if isinstance(node, yaml.MappingNode):
            yield ".".join(path), place, value
        yield from _keys(value, path)
