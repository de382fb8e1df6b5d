"""[core] Edit the settings of one topic in the text of topics.yaml. Comments and the order of keys stay.

Each edit inserts, replaces or removes one value at the place that the parser reports. Afterwards the values
of the whole text are compared with what they should be, so a form of YAML that an edit does not suit is
refused, and never written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hub.errors import CallerError
from hub.yaml_nodes import Values, compose_text

Scalar = str | int | bool
_FILE = Path("topics.yaml")


def edit_topic(text: str, topic: str, settings: Mapping[str, Scalar | None], nodes: Sequence[str]) -> str:
    """Return the text with these settings of a topic, which is added where it is missing.

    ``settings``: ``partitions``, ``retention``, ``config.KEY``; None removes a setting. ``nodes``: topics
    above that need ``topic: true`` to stay topics. Raises CallerError where the file's form is not edited.
    """
    for node in nodes:
        text = _set(text, (*_steps(node), "topic"), True)
    steps = _steps(topic)
    if _find(_compose(text), steps) is None:
        text = _set(text, steps, {})
    for name, value in settings.items():
        text = _set(text, (*steps, *name.split(".", 1)), value)
    return text


def _steps(topic: str) -> tuple[str, ...]:
    return tuple(step for label in topic.split(".") for step in ("topics", label))


def _compose(text: str) -> yaml.Node | None:
    return compose_text(_FILE, text)


def _value(text: str) -> Any:
    node = _compose(text)
    return None if node is None else Values(_FILE, nul=False).of(node)


def _set(text: str, steps: tuple[str, ...], value: Scalar | dict[str, Any] | None) -> str:
    """Set or remove (None) the value at a path of keys. Raises CallerError."""
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
    """Return the values with one of them set or removed (None). Raises CallerError."""
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


def _put(text: str, steps: tuple[str, ...], value: Scalar | dict[str, Any]) -> str:
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
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=100_000)[1:-2]


def _flow(steps: Sequence[str], value: Any) -> str:
    return _scalar(_nested(steps, value))


def _nested(steps: Sequence[str], value: Any) -> Any:
    for step in reversed(steps):
        value = {step: value}
    return value


def _block(steps: Sequence[str], value: Any, indent: int) -> str:
    lines = yaml.safe_dump(_nested(steps, value), default_flow_style=False, allow_unicode=True, width=100_000)
    return "\n".join(f"{' ' * indent}{line}" for line in lines.splitlines())


def _unsafe(steps: Sequence[str]) -> CallerError:
    return CallerError(
        f'topics.yaml: "{".".join(steps)}" has a form that is not edited here',
        hint="edit the file, then: hub topic plan",
    )
