"""[edge] YAML files, loaded so that every error has file, line, column and the expected value.

Loading any file gives a value or a ConfigError, in bounded time and memory: safe tags only, names as keys, no
duplicate keys, no aliases (a file of a few hundred bytes must not grow to gigabytes), limits on size, depth
and numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from hub.errors import ConfigError, HubError, did_you_mean
from hub.security import is_secret
from hub.yaml_nodes import MOST_SHOWN, Values, compose, key_name, misnamed, where_of

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)
Path_ = tuple[str | int, ...]


def load_model(path: Path, model: type[Model], *, nul: bool = False) -> Model:
    """Load a file as a pydantic model.

    Raises ConfigError (HUB-1102 … HUB-1104, HUB-1114) at the first thing that is wrong.

    ``nul``: texts may contain the character NUL. No path, name or SQL may, so it is refused unless values are
    data.
    """
    with kept_to(path):
        node = _not_empty(path)
        value = Values(path, nul).of(node)
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
        value = Values(path, nul=False).of(node)
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
    node = compose(path)
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
        node = compose(path)
        mapping = None if node is None else Values(path, nul=False).of(node)
        if mapping is None:
            return {}
        if not isinstance(mapping, dict):
            raise ConfigError(
                "the file must be a mapping", where=f"{path}", hint="write `name: value`", code="HUB-1102"
            )
        return mapping


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
    hint = misnamed(path)
    if hint is not None:
        raise ConfigError(f'file "{path}" does not exist', hint=hint, code="HUB-1114")
    return False


def place(path: Path, *steps: str | int) -> str:
    """Return ``file:line:column`` of the node at a path of keys, for errors found after loading."""
    root = compose(path)
    if root is None:
        return f"{path}"
    node, key_node = _find(root, steps)
    return where_of(path, (node if isinstance(node, yaml.ScalarNode) else key_node).start_mark)


def written(value: object) -> str:
    """Return a value of dicts, lists and scalars as YAML text that ``load_model`` reads back."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)


def places(path: Path) -> dict[tuple[str, ...], str]:
    """Return ``file:line:column`` of every key of the file's mappings, by the path of keys. Raises
    ConfigError.
    """
    found: dict[tuple[str, ...], str] = {}
    root = compose(path)
    left: list[tuple[tuple[str, ...], yaml.Node]] = [] if root is None else [((), root)]
    while left:
        steps, node = left.pop()
        for key_node, value in node.value if isinstance(node, yaml.MappingNode) else ():
            key = key_name(path, key_node)
            found[(*steps, key)] = where_of(path, key_node.start_mark)
            left.append(((*steps, key), value))
    return found


def _explained(path: Path, root: yaml.Node, model: type[BaseModel], errors: Sequence[Any]) -> ConfigError:
    """Return the first error, at its place, with the nearest known key when the key is unknown.

    Unknown keys go first: a key that is missing is often one that is misspelled.
    """
    first = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    steps: Path_ = first["loc"]
    if steps and steps[-1] == "[key]":  # pydantic's mark: not the value, its name is wrong
        _, name = _find(root, steps[:-1])
        message = first["msg"].removeprefix("Value error, ")
        return ConfigError(message, where=where_of(path, name.start_mark), code="HUB-1104")
    node, unknown = _find(root, steps)
    dotted = ".".join(str(step)[:MOST_SHOWN] for step in steps)
    if first["type"] == "extra_forbidden":
        known = sorted(_keys(model, steps[:-1]))
        hint = did_you_mean(str(steps[-1]), known, f"known keys: {', '.join(known)}")
        return ConfigError(
            f'unknown key "{str(steps[-1])[:MOST_SHOWN]}"',
            where=where_of(path, unknown.start_mark),
            hint=hint,
            code="HUB-1104",
        )
    if first["type"] == "missing":
        return ConfigError(
            f'"{dotted}" is missing',
            where=where_of(path, node.start_mark),
            hint=f'add "{steps[-1]}"',
            code="HUB-1104",
        )
    expected = first["msg"].removeprefix("Value error, ")
    return ConfigError(
        f"{dotted}: {expected}" if dotted else expected,
        where=where_of(path, node.start_mark),
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


def load_resource(package: str, name: str) -> Any:
    """Return the content of a YAML file that comes with the hub; it may use aliases."""
    text = files(package).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
