"""[core] Field masking in place: JSON text, and Avro by its writer's schema. All other bytes stay unchanged.

Values are not decoded and encoded again, which would change parts that no rule names (numbers beyond 64 bits,
the spelling of text, which branch of a union). The bytes are validated as a whole first; then the values at
the paths are cut out and replaced::

    {"id": 1.50, "email": "a@b", "email": "c"}   ─▶   {"id": 1.50, "email": "***", "email": "***"}

A path goes through arrays to each of their elements, and into Avro's maps by their keys. A null stays null
under every mask. A hash is keyed (HMAC-SHA-256, RFC 2104, 128 bits of it), equal for equal text in any
format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

from hub.replication.rewriting.mask_tree import (
    REDACTED,
    Edits,
    Mask,
    Masking,
    Tree,
    Unmaskable,
    below_of,
    put_edit,
)

_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]+")


# ---- JSON text


def json_masking(tree: Tree) -> Masking:
    """Return the masking of values whose body is JSON text."""

    def mask(value: bytes, start: int) -> bytes:
        text = value[start:]
        try:
            orjson.loads(text)
            edits: Edits = []
            _walk(text, _gap(text, 0), tree, edits)
        except orjson.JSONDecodeError as error:
            raise Unmaskable(f"it is not JSON: {error}") from None
        except RecursionError:
            raise Unmaskable("it nests too deeply") from None
        return value[:start] + put_edit(text, edits)

    return mask


def _gap(text: bytes, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _walk(text: bytes, at: int, tree: Tree | Mask, edits: Edits) -> int:
    """Mask one value of valid JSON that begins at ``at``; return where it ends."""
    opening = text[at : at + 1]
    if isinstance(tree, Mask) and not (tree.how == "hash" and opening == b"["):
        end = _end(text, at)
        if text[at:end] != b"null":
            edits.append((at, end, _json_instead(tree, text[at:end])))
        return end
    if opening not in (b"[", b"{"):
        return _end(text, at)
    at = _gap(text, at + 1)
    while text[at : at + 1] not in (b"]", b"}"):
        below: Tree | Mask | None = tree
        if opening == b"{":
            end = _end(text, at)
            below = below_of(tree, str(orjson.loads(text[at:end])))
            at = _gap(text, _gap(text, end) + 1)  # the colon
        at = _end(text, at) if below is None else _walk(text, at, below, edits)
        at = _gap(text, at)
        if text[at : at + 1] == b",":
            at = _gap(text, at + 1)
    return at + 1


def _end(text: bytes, at: int) -> int:
    opening = text[at : at + 1]
    if opening == b'"':
        found = _STRING.match(text, at)
    elif opening in (b"[", b"{"):
        depth = 0
        for found in _NESTING.finditer(text, at):
            token = text[found.start()]
            depth += (token in b"[{") - (token in b"]}")
            if not depth:
                break
    else:
        found = _SCALAR.match(text, at)
    if found is None:
        raise Unmaskable(f"it is not JSON at byte {at}")
    return found.end()


def _json_instead(mask: Mask, value: bytes) -> bytes:
    if mask.how == "null":
        return b"null"
    if mask.how == "hash":
        content = str(orjson.loads(value)).encode() if value[:1] == b'"' else value
        return b'"' + mask.digest(content).hex().encode() + b'"'
    kinds = {b'"': f'"{REDACTED}"'.encode(), b"{": b"{}", b"[": b"[]", b"t": b"false", b"f": b"false"}
    return kinds.get(value[:1], b"0")


# ---- Avro


# ---- checks by schema alone


def json_fields_in(schema: Any, tree: Tree | Mask, path: str = "") -> bool:
    """Return whether a JSON Schema has any of the fields, without following references. Raises Unmaskable as
    ``fields_in``.
    """
    if not isinstance(schema, dict):
        return False
    if isinstance(tree, Mask):
        _judge(schema, tree, path)
        return True
    items = schema.get("items")
    found = json_fields_in(items, tree, path)
    for name, below in (schema.get("properties") or {}).items():
        node = below_of(tree, name)
        if node is not None:
            found |= json_fields_in(below, node, f"{path}.{name}" if path else name)
    return found


def _judge(schema: Mapping[str, Any], mask: Mask, path: str) -> None:
    declared = schema.get("type")
    if declared is None or "$ref" in schema:
        return
    types = {declared} if isinstance(declared, str) else set(declared)
    if mask.how == "null" and "null" not in types:
        raise Unmaskable(f'field "{path}" may not be null')
    if mask.how == "hash" and not types <= {"string", "null", "array"}:
        raise Unmaskable(f'field "{path}" is {", ".join(sorted(types))}: a hash is text')
    if mask.how != "null" and ("enum" in schema or "const" in schema):
        raise Unmaskable(f'field "{path}" has fixed values: {mask.how} is none of them')
