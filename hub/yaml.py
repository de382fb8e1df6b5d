"""[edge] YAML files, loaded so that every error has file, line, column and the expected value.

Loading any file gives a value or a ConfigError, in bounded time and memory: safe tags only, names as keys, no
duplicate keys, no aliases (a file of a few hundred bytes must not grow to gigabytes), limits on size, depth
and numbers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from hub.errors import ConfigError, HubError, nearest
from hub.files import NotRegular, read_bytes
from hub.security import is_secret

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)
Path_ = tuple[str | int, ...]

_MOST_BYTES = 1_000_000
_MOST_DEPTH = 50
_MOST_NODES = 200_000
_MOST_DIGITS = 400
_MOST_SHOWN = 100

# Exceptions of PyYAML for a value that does not match its tag: `!!int x`, `!!bool x`, `!!timestamp x`,
# 2024-02-30.
_BAD_VALUE = (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError, TypeError)
_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class UnreadableFile(ConfigError):
    """An existing file cannot be read: missing permission, a folder, a pipe. A retry may help."""

    code = "HUB-1114"


def load_model(path: Path, model: type[Model], *, nul: bool = False) -> Model:
    """Load a file as a pydantic model.

    Raises ConfigError (HUB-1102 … HUB-1104, HUB-1114) at the first thing that is wrong.

    ``nul``: texts may contain the character NUL. No path, name or SQL may, so it is refused unless values are
    data.
    """
    with kept_to(path):
        node = _not_empty(path)
        value = _Values(path, nul).of(node)
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise _explained(path, node, model, error.errors()) from None


def load_parts(
    path: Path, model: type[Model], sections: Collection[str]
) -> tuple[Model, dict[Path_, ConfigError]]:
    """Load a file as a pydantic model, without its invalid entries.

    An entry is one value of a mapping or list under a key of ``sections``, or the whole section if an error
    does not concern one value. Returns the model, and the error of each omitted entry, by section and key (or
    index). Raises ConfigError for any other error.
    """
    with kept_to(path):
        node = _not_empty(path)
        value = _Values(path, nul=False).of(node)
        try:
            return model.model_validate(value), {}
        except ValidationError as error:
            found = error.errors()
        by_entry: dict[Path_, list[Any]] = {}
        for each in found:
            if not each["loc"] or each["loc"][0] not in sections:
                raise _explained(path, node, model, found)
            by_entry.setdefault(each["loc"][:2], []).append(each)
        wrong = {entry: _explained(path, node, model, errors) for entry, errors in by_entry.items()}
        try:
            return model.model_validate(_without(value, wrong)), wrong
        except ValidationError as error:
            raise _explained(path, node, model, error.errors()) from None


def _without(value: Mapping[str, Any], entries: Collection[Path_]) -> dict[str, Any]:
    """Return a copy of a file's value without these entries."""
    left = {key: inner for key, inner in value.items() if (key,) not in entries}
    for section in {str(entry[0]) for entry in entries} & left.keys():
        inner = value[section]
        left[section] = (
            {key: each for key, each in inner.items() if (section, key) not in entries}
            if isinstance(inner, dict)
            else [each for index, each in enumerate(inner) if (section, index) not in entries]
        )
    return left


def _not_empty(path: Path) -> yaml.Node:
    node = _compose(path)
    if node is None:
        raise ConfigError(
            "the file is empty", where=f"{path}", hint="docs/ shows what goes in", code="HUB-1102"
        )
    return node


def load_mapping(path: Path) -> dict[str, Any]:
    """Load a file of named settings; {} for one that is not there or empty.
    Raises ConfigError as ``load_model`` does."""
    if not path.exists():
        return {}
    with kept_to(path):
        node = _compose(path)
        found = None if node is None else _Values(path, nul=False).of(node)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise ConfigError(
                "the file must be a mapping", where=f"{path}", hint="write `name: value`", code="HUB-1102"
            )
        return found


@contextmanager
def kept_to(path: Path) -> Iterator[None]:
    """Turn an error that no check foresaw into one of the file's:
    one file must not end a process that reads many."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:
        log.exception("%s: the content of this file is not covered by any check", path)
        raise ConfigError(
            f"cannot be used: {type(error).__name__}: {str(error)[:200]}",
            where=f"{path}",
            hint="this is a defect of the hub: please report it with the file",
            code="HUB-1102",
        ) from None


def is_there(path: Path) -> bool:
    """Return whether an optional file exists. Raises ConfigError (HUB-1114) if only a ``.yml`` file exists,
    whose content would be silently ignored.
    """
    if path.exists():
        return True
    hint = _misnamed(path)
    if hint is not None:
        raise ConfigError(f'file "{path}" does not exist', hint=hint, code="HUB-1114")
    return False


def _misnamed(path: Path) -> str | None:
    """Return the hint to rename the file if it exists with the suffix ``.yml``; None otherwise."""
    other = path.with_suffix(".yml")
    return f"rename {other.name} to {path.name}: only .yaml is read" if other.exists() else None


def place(path: Path, *steps: str | int) -> str:
    """Return ``file:line:column`` of the node at a path of keys, for errors found after loading."""
    root = _compose(path)
    if root is None:
        return f"{path}"
    node, key_node = _find(root, steps)
    return _where(path, (node if isinstance(node, yaml.ScalarNode) else key_node).start_mark)


def written(value: object) -> str:
    """Return a value of dicts, lists and scalars as YAML text that ``load_model`` reads back."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)


def places(path: Path) -> dict[tuple[str, ...], str]:
    """Return ``file:line:column`` of every key of the file's mappings, by the path of keys. Raises
    ConfigError.
    """
    found: dict[tuple[str, ...], str] = {}
    root = _compose(path)
    left: list[tuple[tuple[str, ...], yaml.Node]] = [] if root is None else [((), root)]
    while left:
        steps, node = left.pop()
        for key_node, value in node.value if isinstance(node, yaml.MappingNode) else ():
            key = _name(path, key_node)
            found[(*steps, key)] = _where(path, key_node.start_mark)
            left.append(((*steps, key), value))
    return found


def _compose(path: Path) -> yaml.Node | None:
    """Parse the nodes of a file; None for an empty one. Raises ConfigError."""
    text = _read(path)
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
            where=_where(path, mark) if mark else f"{path}",
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
            f'file "{path}" does not exist', hint=_misnamed(path) or "check the path", code="HUB-1114"
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
        raise ConfigError(refused, where=_where(self._path, event.start_mark), hint=hint, code="HUB-1102")


class _Values:
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
            key = _name(self._path, key_node)
            self._scalar(key_node)
            if key in made:
                raise ConfigError(
                    f'"{key[:_MOST_SHOWN]}" occurs twice',
                    where=_where(self._path, key_node.start_mark),
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

    def _refused(self, node: yaml.Node, what: str, hint: str | None) -> ConfigError:
        return ConfigError(what, where=_where(self._path, node.start_mark), hint=hint, code="HUB-1102")


def _name(path: Path, node: yaml.Node) -> str:
    """Return the text of a key; `on:` and `1:` are names too. Raises ConfigError for a list or a mapping."""
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(
            "a key must be a name, not a list or a mapping",
            where=_where(path, node.start_mark),
            hint="remove the `?`, or put the key in quotes",
            code="HUB-1102",
        )
    return str(node.value)


def _explained(path: Path, root: yaml.Node, model: type[BaseModel], errors: Sequence[Any]) -> ConfigError:
    """Return the first error, at its place, with the nearest known key when the key is unknown.

    Unknown keys go first: a key that is missing is often one that is misspelled.
    """
    first = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    steps: Path_ = first["loc"]
    if steps and steps[-1] == "[key]":  # pydantic's mark: not the value, its name is wrong
        _, name = _find(root, steps[:-1])
        said = first["msg"].removeprefix("Value error, ")
        return ConfigError(said, where=_where(path, name.start_mark), code="HUB-1104")
    node, unknown = _find(root, steps)
    dotted = ".".join(str(step)[:_MOST_SHOWN] for step in steps)
    if first["type"] == "extra_forbidden":
        known = sorted(_keys(model, steps[:-1]))
        guess = nearest(str(steps[-1]), known)
        hint = f'did you mean "{guess}"?' if guess else f"known keys: {', '.join(known)}"
        return ConfigError(
            f'unknown key "{str(steps[-1])[:_MOST_SHOWN]}"',
            where=_where(path, unknown.start_mark),
            hint=hint,
            code="HUB-1104",
        )
    if first["type"] == "missing":
        return ConfigError(
            f'"{dotted}" is missing',
            where=_where(path, node.start_mark),
            hint=f'add "{steps[-1]}"',
            code="HUB-1104",
        )
    expected = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f"{dotted}: {expected}" if dotted else expected,
        where=_where(path, node.start_mark),
        hint=f"found {first['input']!r}"[:200] if dotted and not is_secret(first) else None,
        code="HUB-1104",
    )


def _find(node: yaml.Node, steps: Sequence[str | int]) -> tuple[yaml.Node, yaml.Node]:
    """(the node at the path as far as it exists, the key node of its last step)."""
    key_node = node
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == str(step)]
            if not found:
                break
            key_node, node = found[0]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = key_node = node.value[step]
        else:
            break
    return node, key_node


def _keys(model: Any, steps: Sequence[str | int]) -> set[str]:
    """Return the keys that a model accepts at a path: fields by their names in the file, through dicts and
    lists.
    """
    for step in steps:
        model = next((inner for inner in _inner(model, step)), None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return {field.alias or name for name, field in model.model_fields.items()}
    return set()


def _inner(model: Any, step: str | int) -> Iterator[Any]:
    if isinstance(model, _AnyKey):
        yield model.model
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            if step in (name, field.alias):
                yield from _models(field.annotation)


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models inside an annotation; a dict or list passes its element on under any key."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for argument in getattr(annotation, "__args__", ()):
        for found in _models(argument):
            yield _AnyKey(found) if getattr(annotation, "__origin__", None) in (dict, list) else found


class _AnyKey:
    """A container of models: one step of any name leads to the model."""

    def __init__(self, model: Any) -> None:
        self.model = model


def _where(path: Path, mark: Any) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}"


def load_resource(package: str, name: str) -> Any:
    """Return the content of a YAML file that comes with the hub; it may use aliases."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
