"""[edge] PyYAML: files that people write, loaded so that every complaint says file, line, column and what was expected.

Safe tags only, no duplicate keys, no aliases (a file of a few hundred bytes must not grow to gigabytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from hub.errors import ConfigError, nearest
from hub.security import is_secret

Model = TypeVar("Model", bound=BaseModel)
Path_ = tuple[str | int, ...]

_MOST_BYTES = 1_000_000
_MOST_DEPTH = 50

_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_ALIASING = (yaml.AliasToken, yaml.AnchorToken)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)


def load_model(path: Path, model: type[Model]) -> Model:
    """The file as a pydantic model. Raises ConfigError (HUB-1101 … HUB-1104) at the first thing that is wrong."""
    node = _compose(path)
    value = _value(path, node)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _explained(path, node, model, error) from None


def is_there(path: Path) -> bool:
    """Whether a file that need not be there is. Raises ConfigError (HUB-1101) where it is only as ``.yml``: what it says would
    silently not hold."""
    if path.exists():
        return True
    hint = _misnamed(path)
    if hint is not None:
        raise ConfigError(f'file "{path}" does not exist', hint=hint, code="HUB-1101")
    return False


def _misnamed(path: Path) -> str | None:
    """What to do when the file is there by the other name that YAML goes by."""
    other = path.with_suffix(".yml")
    return f"rename {other.name} to {path.name}: only .yaml is read" if other.exists() else None


def place(path: Path, *steps: str | int) -> str:
    """``file:line:column`` of what stands at a path of keys, for complaints that come up after loading."""
    node, key_node = _find(_compose(path), steps)
    return _where(path, (node if isinstance(node, yaml.ScalarNode) else key_node).start_mark)


def written(value: object) -> str:
    """A value of dicts, lists and scalars as the text of a file that ``load_model`` reads back."""
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False, width=110)


def places(path: Path) -> dict[tuple[str, ...], str]:
    """``file:line:column`` of every key of the file's mappings, by the keys that lead to it."""
    found: dict[tuple[str, ...], str] = {}
    left: list[tuple[tuple[str, ...], yaml.Node]] = [((), _compose(path))]
    while left:
        steps, node = left.pop()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            found[(*steps, key.value)] = _where(path, key.start_mark)
            left.append(((*steps, key.value), value))
    return found


def _compose(path: Path) -> yaml.Node:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f'file "{path}" does not exist', hint=_misnamed(path) or "check the path", code="HUB-1101"
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", where=f"{path}", hint=str(error), code="HUB-1102") from None
    if len(text) > _MOST_BYTES:
        raise ConfigError(f"larger than {_MOST_BYTES} bytes", where=f"{path}", code="HUB-1102")
    try:
        _check_tokens(path, text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
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
    if node is None:
        raise ConfigError(
            "the file is empty", where=f"{path}", hint="docs/ shows what goes in", code="HUB-1102"
        )
    return node


def _check_tokens(path: Path, text: str) -> None:
    """What the loader must not even try to build."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        depth += isinstance(token, _OPENING) - isinstance(token, _CLOSING)
        if isinstance(token, _ALIASING):
            refused, hint = "anchors and aliases are not used here", "write the value out"
        elif depth > _MOST_DEPTH:
            refused, hint = f"nested deeper than {_MOST_DEPTH}", "is a bracket or an indentation wrong?"
        else:
            continue
        raise ConfigError(refused, where=_where(path, token.start_mark), hint=hint, code="HUB-1102")


def _value(path: Path, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        made: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = _value(path, key_node)
            if not isinstance(key, str):
                key = key_node.value  # `on:` and `1:` are names here
            if key in made:
                raise ConfigError(
                    f'"{key}" stands twice',
                    where=_where(path, key_node.start_mark),
                    hint="keep one of the two",
                    code="HUB-1103",
                )
            made[key] = _value(path, value_node)
        return made
    if isinstance(node, yaml.SequenceNode):
        return [_value(path, each) for each in node.value]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.MarkedYAMLError, ValueError) as error:
        raise ConfigError(
            f"value cannot be read: {error}", where=_where(path, node.start_mark), code="HUB-1102"
        ) from None


def _explained(path: Path, root: yaml.Node, model: type[BaseModel], error: ValidationError) -> ConfigError:
    """The first complaint, at its place, with the nearest known key when the key is unknown.

    Unknown keys go first: a key that is missing is often one that is misspelled.
    """
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    steps: Path_ = first["loc"]
    if steps and steps[-1] == "[key]":  # pydantic's mark: not the value, its name is wrong
        _, name = _find(root, steps[:-1])
        said = first["msg"].removeprefix("Value error, ")
        return ConfigError(said, where=_where(path, name.start_mark), code="HUB-1104")
    node, unknown = _find(root, steps)
    dotted = ".".join(str(step) for step in steps)
    if first["type"] == "extra_forbidden":
        known = sorted(_keys(model, steps[:-1]))
        guess = nearest(str(steps[-1]), known)
        hint = f'did you mean "{guess}"?' if guess else f"known keys: {', '.join(known)}"
        return ConfigError(
            f'unknown key "{steps[-1]}"', where=_where(path, unknown.start_mark), hint=hint, code="HUB-1104"
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
    """The keys that a model knows at a path: fields by their names in the file, through dicts and lists."""
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
    """The models inside an annotation; a dict or list passes its element on under any key."""
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
