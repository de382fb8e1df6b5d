"""[edge] Nodes of a YAML file, read within limits, and their values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from hub.errors import ConfigError
from hub.files import NotRegular, read_bytes

_MOST_BYTES = 1_000_000
_MOST_DEPTH = 50
_MOST_NODES = 200_000
_MOST_DIGITS = 400
MOST_SHOWN = 100


# Exceptions of PyYAML for a value that does not match its tag: `!!int x`, `!!bool x`, `!!timestamp x`,
# 2024-02-30.
_BAD_VALUE = (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError, TypeError)


_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class UnreadableFile(ConfigError):
    """An existing file cannot be read: missing permission, a folder, a pipe. A retry may help."""

    code = "HUB-1114"


def compose(path: Path) -> yaml.Node | None:
    """Parse the nodes of a file; None for an empty one. Raises ConfigError."""
    return compose_text(path, _read(path))


def compose_text(path: Path, text: str) -> yaml.Node | None:
    """Parse the nodes of a text as the content of ``path``; None for an empty one. Raises ConfigError."""
    try:
        return _Loader(path, text).get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = len(before) - before.rfind("\n")
        raise ConfigError(
            f"no valid YAML: character #x{ord(text[error.position]):04x} is not allowed",
            where=f"{path}:{before.count(chr(10)) + 1}:{column}",
            hint="was the file saved by another program than an editor?",
            code="HUB-1102",
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        expected = f" ({error.context})" if error.context else ""
        raise ConfigError(
            f"no valid YAML: {error.problem}{expected}",
            where=where_of(path, mark) if mark else f"{path}",
            hint="look at the line above as well: a missing colon, quote or indentation",
            code="HUB-1102",
        ) from None
    except (ValueError, OverflowError) as error:  # "\UFFFFFFFF", %YAML with thousands of digits
        raise ConfigError(f"no valid YAML: {error}", where=f"{path}", code="HUB-1102") from None


def _read(path: Path) -> str:
    """Return the file's text. Raises ConfigError."""
    try:
        content = read_bytes(path, _MOST_BYTES + 1)
    except (NotRegular, IsADirectoryError):
        raise UnreadableFile(
            "this is not a file", where=f"{path}", hint="a folder, a pipe or a device is not read"
        ) from None
    except FileNotFoundError:
        raise ConfigError(
            f'file "{path}" does not exist', hint=misnamed(path) or "check the path", code="HUB-1114"
        ) from None
    except OSError as error:
        raise UnreadableFile(
            f"cannot be read: {error.strerror}",
            where=f"{path}",
            hint="check who owns the file and its rights",
        ) from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"larger than {_MOST_BYTES} bytes", where=f"{path}", code="HUB-1102")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", where=f"{path}", hint=str(error), code="HUB-1102") from None


class _Loader(yaml.SafeLoader):
    """Composes nodes, and refuses what must not even be built:
    aliases, and more or deeper nodes than anybody writes."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(text)
        self._path = path
        self._depth = self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._nodes += 1
        inner = isinstance(event, yaml.CollectionStartEvent)
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            refused, hint = "anchors and aliases are not used here", "write the value out"
        elif inner and self._depth >= _MOST_DEPTH:
            refused, hint = f"nested deeper than {_MOST_DEPTH}", "is a bracket or an indentation wrong?"
        elif self._nodes > _MOST_NODES:
            refused, hint = f"more than {_MOST_NODES} keys and values", "split the file"
        else:
            self._depth += inner
            node = super().compose_node(parent, index)
            self._depth -= inner
            return node
        raise ConfigError(refused, where=where_of(self._path, event.start_mark), hint=hint, code="HUB-1102")


class Values:
    """Converts the nodes of one file to dicts, lists and scalars."""

    def __init__(self, path: Path, nul: bool) -> None:
        self._path = path
        self._nul = nul
        self._scalars = yaml.constructor.SafeConstructor()

    def of(self, node: yaml.Node) -> Any:
        """Return the value of a node. Raises ConfigError."""
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.of(each) for each in node.value]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_name(self._path, key_node)
            self._scalar(key_node)
            if key in made:
                raise ConfigError(
                    f'"{key[:MOST_SHOWN]}" occurs twice',
                    where=where_of(self._path, key_node.start_mark),
                    hint="keep one of the two",
                    code="HUB-1103",
                )
            made[key] = self.of(value_node)
        return made

    def _scalar(self, node: yaml.Node) -> Any:
        if node.tag in _NUMBERS and len(node.value) > _MOST_DIGITS:
            raise self._refused(node, f"a number of {len(node.value)} characters", "put a text in quotes")
        try:
            value = self._scalars.construct_object(node)
        except _BAD_VALUE as error:
            raise self._refused(node, f"value cannot be read: {error}", None) from None
        if isinstance(value, str):
            if not self._nul and "\0" in value:
                raise self._refused(node, "the character NUL is not allowed", 'remove "\\0"')
            if _SURROGATES.search(value):
                raise self._refused(
                    node,
                    "half of a surrogate pair is not a character",
                    'write "\\U0001F600" instead of "\\ud83d\\ude00"',
                )
        return value

    def _refused(self, node: yaml.Node, message: str, hint: str | None) -> ConfigError:
        return ConfigError(message, where=where_of(self._path, node.start_mark), hint=hint, code="HUB-1102")


def where_of(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}"


def misnamed(path: Path) -> str | None:
    """Return the hint to rename the file if it exists with the suffix ``.yml``; None otherwise."""
    other = path.with_suffix(".yml")
    return f"rename {other.name} to {path.name}: only .yaml is read" if other.exists() else None


def key_name(path: Path, node: yaml.Node) -> str:
    """Return the text of a key; `on:` and `1:` are names too. Raises ConfigError for a list or a mapping."""
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(
            "a key must be a name, not a list or a mapping",
            where=where_of(path, node.start_mark),
            hint="remove the `?`, or put the key in quotes",
            code="HUB-1102",
        )
    return str(node.value)
