"""[core] Edit values in the text of a YAML file. Comments and the order of keys stay.

Each edit inserts, replaces or removes one value at the place that the parser reports. Afterwards the values
of the whole text are compared with what they should be, so a form of YAML that an edit does not suit is
refused, and never written.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from hub.errors import CallerError
from hub.yaml_nodes import Values, compose_text

Scalar = str | int | bool
# In braces PyYAML quotes what has a colon, and then needs the tag. The parser does not.
_QUOTED_TIME = re.compile(r"!!timestamp '([0-9T:-]+Z)'")
_FILE = Path("the file")  # callers load the text before, with its name


class NotEdited(CallerError):
    """The text has a form that is not edited here. The caller names the file."""


class _Dumper(yaml.SafeDumper):
    """Writes times as ``2026-12-24T00:00:00Z``."""


_Dumper.add_representer(
    datetime,
    lambda dumper, value: dumper.represent_scalar(
        "tag:yaml.org,2002:timestamp", f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    ),
)


def has_value(text: str, steps: Sequence[str]) -> bool:
    """Return whether a path of keys exists."""
    return _find(_compose(text), steps) is not None


def append_item(text: str, steps: tuple[str, ...], item: Mapping[str, Any]) -> str:
    """Append an item to the list at a path of keys, which is made where it is missing. Raises NotEdited."""
    if not has_value(text, steps):
        text = set_value(text, steps, [])
    node, before = _find(_compose(text), steps), _value(text)
    if not isinstance(node, yaml.SequenceNode):
        raise _unsafe(steps)
    wanted = copy.deepcopy(before)
    inner = wanted
    for step in steps:
        inner = inner[step]
    inner.append(dict(item))
    edited = _appended(text, node, _scalar(dict(item)))
    if _value(edited) != wanted:
        raise _unsafe(steps)
    return edited


def _appended(text: str, node: yaml.SequenceNode, written: str) -> str:
    if not node.value:
        return f"{text[: node.start_mark.index]}[{written}]{text[node.end_mark.index :]}"
    end = _content_end(text, node.value[-1])
    if node.flow_style:
        return f"{text[:end]}, {written}{text[end:]}"
    at, indent = _end_of_line(text, end), " " * node.start_mark.column
    return f"{text[:at]}{_newline(text)}{indent}- {written}{text[at:]}"


def _compose(text: str) -> yaml.Node | None:
    return compose_text(_FILE, text)


def _value(text: str) -> Any:
    node = _compose(text)
    return None if node is None else Values(_FILE, nul=False).of(node)


def set_value(text: str, steps: tuple[str, ...], value: Scalar | dict[str, Any] | list[Any] | None) -> str:
    """Set or remove (None) the value at a path of keys. Raises NotEdited."""
    before = _value(text)
    if before is not None and not isinstance(before, dict):
        raise _unsafe(steps)
    wanted = _with(before, steps, value)
    if wanted == before:
        return text
    edited = _removed(text, steps) if value is None else _put(text, steps, value)
    if _value(edited) != wanted:
        raise _unsafe(steps)
    return edited


def _with(before: Any, steps: Sequence[str], value: Any) -> dict[str, Any]:
    """Return the values with one of them set or removed (None). Raises NotEdited."""
    after = copy.deepcopy(before) or {}
    inner = after
    for step in steps[:-1]:
        if value is None and not inner.get(step):
            return after
        if not inner.get(step):
            inner[step] = {}
        inner = inner[step]
        if not isinstance(inner, dict):
            raise _unsafe(steps)
    if value is None:
        inner.pop(steps[-1], None)
    else:
        inner[steps[-1]] = value
    return after


def _find(root: yaml.Node | None, steps: Sequence[str]) -> yaml.Node | None:
    for step in steps:
        pair = _pair(root, step)
        if pair is None:
            return None
        root = pair[1]
    return root


def _pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _put(text: str, steps: tuple[str, ...], value: Scalar | dict[str, Any] | list[Any]) -> str:
    root = _compose(text)
    if root is None:
        return f"{text}{_block(steps, value, 0)}\n"
    node, left = root, steps
    while left and (pair := _pair(node, left[0])) is not None:
        node, left = pair[1], left[1:]
    if not left:
        if not isinstance(node, yaml.ScalarNode) or node.style in ("|", ">"):
            raise _unsafe(steps)
        return _spliced(text, node, _scalar(value))
    if isinstance(node, yaml.MappingNode) and node.value:
        if node.flow_style:
            return _into_flow(text, node, left, value)
        indent = node.value[0][0].start_mark.column
        at = _end_of_line(text, _content_end(text, node))
        return f"{text[:at]}{_newline(text)}{_block(left, value, indent)}{text[at:]}"
    if isinstance(node, yaml.SequenceNode) or (isinstance(node, yaml.ScalarNode) and node.value):
        raise _unsafe(steps)
    if isinstance(node, yaml.MappingNode) or node.start_mark.index == node.end_mark.index:
        key = _find_key(root, steps[: len(steps) - len(left)])
        if not _in_flow(root, steps[: len(steps) - len(left)]):
            # An empty value, or {}: the block goes below the line, so its comment stays.
            bare = text[: node.start_mark.index].rstrip(" ") + text[node.end_mark.index :]
            at = _end_of_line(bare, len(text[: node.start_mark.index].rstrip(" ")))
            block = _block(left, value, key.start_mark.column + 2)
            return f"{bare[:at]}{_newline(text)}{block}{bare[at:]}"
    return _spliced(text, node, _flow(left, value))


def _find_key(root: yaml.Node, steps: Sequence[str]) -> yaml.Node:
    pair = _pair(_find(root, steps[:-1]), steps[-1]) if steps else None
    return root if pair is None else pair[0]


def _in_flow(root: yaml.Node, steps: Sequence[str]) -> bool:
    """Return whether the value at a path is inside of a mapping in braces."""
    above = (_find(root, steps[:n]) for n in range(len(steps)))
    return any(isinstance(node, yaml.MappingNode) and node.flow_style for node in above)


def _into_flow(text: str, node: yaml.MappingNode, left: Sequence[str], value: Any) -> str:
    if node.start_mark.line != node.end_mark.line:
        raise _unsafe(left)
    at = node.end_mark.index - 1
    return f"{text[:at].rstrip(' ,')}, {_flow(left, value)[1:-1]}{text[at:]}"


def _spliced(text: str, node: yaml.Node, written: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    blank = " " if start == end and not text[:start].endswith(" ") else ""
    return f"{text[:start]}{blank}{written}{text[end:]}"


def _removed(text: str, steps: tuple[str, ...]) -> str:
    parent, pair = _find(_compose(text), steps[:-1]), None
    if parent is not None:
        pair = _pair(parent, steps[-1])
    if pair is None:
        return text
    if len(parent.value) == 1 and not parent.flow_style:  # type: ignore[union-attr]
        # The mapping becomes {}: an empty value would be null.
        start, end = pair[0].start_mark.index, _content_end(text, pair[1])
        return f"{text[:start]}{{}}{text[end:]}"
    if parent.flow_style:  # type: ignore[union-attr]
        raise _unsafe(steps)
    start = pair[0].start_mark.index - pair[0].start_mark.column
    end = _end_of_line(text, _content_end(text, pair[1])) + len(_newline(text))
    return f"{text[:start]}{text[end:]}"


def _content_end(text: str, node: yaml.Node) -> int:
    """Return where the last value of a node ends. A block ends for the parser only at the next token."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(node, yaml.MappingNode) else last
    return len(text[: node.end_mark.index].rstrip())


def _end_of_line(text: str, at: int) -> int:
    end = text.find(_newline(text), at)
    return len(text) if end < 0 else end


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _scalar(value: Any) -> str:
    return _dumped([value], flow=True)[1:-2]


def _flow(steps: Sequence[str], value: Any) -> str:
    return _scalar(_nested(steps, value))


def _nested(steps: Sequence[str], value: Any) -> Any:
    for step in reversed(steps):
        value = {step: value}
    return value


def _block(steps: Sequence[str], value: Any, indent: int) -> str:
    lines = _dumped(_nested(steps, value), flow=False)
    return "\n".join(f"{' ' * indent}{line}" for line in lines.splitlines())


def _dumped(value: Any, *, flow: bool) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, allow_unicode=True, width=100_000, sort_keys=False
    )
    return _QUOTED_TIME.sub(r"\1", text)


def _unsafe(steps: Sequence[str]) -> NotEdited:
    return NotEdited(f'"{".".join(steps)}" has a form that is not edited here', hint="edit the file")
