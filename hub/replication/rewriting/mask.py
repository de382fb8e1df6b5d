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

import hmac
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import orjson

from hub.schema_registry.codecs.avro_validator import BrokenValue, checker
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.avro.types import AvroNode
from hub.varint import signed, take_signed

How = Literal["hash", "null", "redact"]
Edits = list[tuple[int, int, bytes]]
Masking = Callable[[bytes, int], bytes]
"""Function from (value, start of its body) to the value with its fields replaced. Raises Unmaskable."""

REDACTED = "***"
_SPACE = re.compile(rb"[ \t\n\r]*")
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]+")
_HASH_BYTES = 16


class Unmaskable(Exception):
    """The bytes cannot be read, or the replacement of a field does not fit its type."""


@dataclass(frozen=True, slots=True)
class Mask:
    """Replacement of a field; ``key`` is the secret of a hash."""

    how: How
    key: bytes = b""

    def digest(self, content: bytes, size: int = _HASH_BYTES) -> bytes:
        found = hmac.digest(self.key, content, "sha256")
        while len(found) < size:
            found += hmac.digest(self.key, found, "sha256")
        return found[:size]


Tree = dict[str, Any]
"""Tree of names; its leaves are masks."""


def tree_of(fields: Iterable[tuple[str, Mask]]) -> Tree:
    """Build a tree from dotted paths. A mask of a whole value excludes masks below it; of two masks of one
    path the first counts.

    >>> tree_of([("a.b", Mask("null")), ("a.b", Mask("hash"))])
    {'a': {'b': Mask(how='null', key=b'')}}
    """
    tree: Tree = {}
    for path, mask in fields:
        *above, last = path.split(".")
        node: Any = tree
        for name in above:
            node = node.setdefault(name, {})
            if isinstance(node, Mask):
                break
        else:
            if not isinstance(node.get(last), Mask):
                node[last] = mask
    return tree


def _put(content: bytes, edits: Edits) -> bytes:
    """Return the content with ranges replaced."""
    if not edits:
        return content
    made = bytearray()
    at = 0
    for start, end, said in sorted(edits, key=lambda each: each[0]):
        made += content[at:start]
        made += said
        at = end
    made += content[at:]
    return bytes(made)


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
        return value[:start] + _put(text, edits)

    return mask


def _gap(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


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
            below = _below(tree, str(orjson.loads(text[at:end])))
            at = _gap(text, _gap(text, end) + 1)  # the colon
        at = _end(text, at) if below is None else _walk(text, at, below, edits)
        at = _gap(text, at)
        if text[at : at + 1] == b",":
            at = _gap(text, at + 1)
    return at + 1


def _below(tree: Tree | Mask, name: str) -> Tree | Mask | None:
    """Return the masks of a member; a name with dots matches the path with these dots."""
    node: Any = tree
    for part in name.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    return node if isinstance(node, dict | Mask) else None


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


def _json_instead(mask: Mask, said: bytes) -> bytes:
    if mask.how == "null":
        return b"null"
    if mask.how == "hash":
        content = str(orjson.loads(said)).encode() if said[:1] == b'"' else said
        return b'"' + mask.digest(content).hex().encode() + b'"'
    kinds = {b'"': f'"{REDACTED}"'.encode(), b"{": b"{}", b"[": b"[]", b"t": b"false", b"f": b"false"}
    return kinds.get(said[:1], b"0")


# ---- Avro

_Walk = Callable[[bytes, int, Edits], int]
_Instead = Callable[[bytes], bytes]
_ZEROS: Mapping[str, bytes] = {
    "boolean": b"\0",
    "int": b"\0",
    "long": b"\0",
    "float": bytes(4),
    "double": bytes(8),
}


def avro_masking(schema: AvroSchema, tree: Tree) -> Masking:
    """Return the masking of values of one writer's schema. Raises Unmaskable when a mask does not fit it,
    whatever the value.
    """
    root = _root(schema)
    check = checker(root)
    walk = _AvroMasker().walker(root, tree, "")

    def mask(value: bytes, start: int) -> bytes:
        try:
            end = check(value, start)
        except BrokenValue as error:
            raise Unmaskable(f"its bytes do not fit its schema: {error}") from None
        if end != len(value):
            raise Unmaskable(f"{len(value) - end} bytes more than its schema has")
        edits: Edits = []
        if walk is not None:
            walk(value, start, edits)
        return _put(value, edits)

    return mask


def _root(schema: AvroSchema) -> AvroNode:
    try:
        return schema.root()
    except InvalidSchema as error:
        raise Unmaskable(f"its schema cannot be used: {error.message[:200]}") from None


class _AvroMasker:
    """Builder of walkers over bytes that are known to match the schema; a walker of None masks nothing."""

    def __init__(self) -> None:
        self.skip: Callable[[AvroNode], Callable[[bytes, int], int]] = lru_cache(maxsize=None)(checker)

    def walker(self, node: AvroNode, tree: Tree | Mask, path: str) -> _Walk | None:
        if node.kind == "union":
            return self._union(node.inner, tree, path)
        if node.kind == "array" and not (isinstance(tree, Mask) and tree.how != "hash"):
            item = self.walker(node.item, tree, path)
            return None if item is None else _blocks(item)
        if isinstance(tree, Mask):
            return None if node.kind == "null" else self._leaf(node, tree, path)
        if node.kind == "record":
            return self._record(node, tree, path)
        if node.kind == "map":
            return self._map(node.item, tree, path)
        return None

    def _record(self, node: AvroNode, tree: Tree, path: str) -> _Walk | None:
        parts: list[tuple[_Walk | None, Callable[[bytes, int], int]]] = []
        for each in node.fields:
            below = tree.get(each.name)
            name = f"{path}.{each.name}" if path else each.name
            walk = None if below is None else self.walker(each.type, below, name)
            parts.append((walk, self.skip(each.type)))
        if all(walk is None for walk, _ in parts):
            return None

        def whole(data: bytes, at: int, edits: Edits) -> int:
            for walk, skip in parts:
                at = skip(data, at) if walk is None else walk(data, at, edits)
            return at

        return whole

    def _map(self, values: AvroNode, tree: Tree, path: str) -> _Walk:
        known = {name: self.walker(values, below, f"{path}.{name}") for name, below in _keys(tree)}
        skip, text = self.skip(values), self.skip(AvroNode("string", {}))

        def entry(data: bytes, at: int, edits: Edits) -> int:
            _, begin = take_signed(data, at)
            at = text(data, at)
            walk = known.get(data[begin:at].decode())
            return skip(data, at) if walk is None else walk(data, at, edits)

        return _blocks(entry)

    def _union(self, branches: Sequence[AvroNode], tree: Tree | Mask, path: str) -> _Walk | None:
        skips = [self.skip(each) for each in branches]
        if isinstance(tree, Mask) and tree.how == "null":
            kinds = [each.kind for each in branches]
            if "null" not in kinds:
                raise Unmaskable(f'field "{path}" may not be null')
            null = kinds.index("null")
            said = signed(null)

            def erase(data: bytes, at: int, edits: Edits) -> int:
                branch, begin = take_signed(data, at)
                end = skips[branch](data, begin)
                if branch != null:
                    edits.append((at, end, said))
                return end

            return erase
        walks = [self.walker(each, tree, path) for each in branches]
        if all(walk is None for walk in walks):
            return None

        def chosen(data: bytes, at: int, edits: Edits) -> int:
            branch, begin = take_signed(data, at)
            walk = walks[branch]
            return skips[branch](data, begin) if walk is None else walk(data, begin, edits)

        return chosen

    def _leaf(self, node: AvroNode, mask: Mask, path: str) -> _Walk:
        instead = _avro_instead(node, mask, path)
        skip = self.skip(node)

        def replace(data: bytes, at: int, edits: Edits) -> int:
            end = skip(data, at)
            edits.append((at, end, instead(data[at:end])))
            return end

        return replace


def _blocks(item: _Walk) -> _Walk:
    """Return a walker over the items of an array or a map. A changed block no longer states its size."""

    def walk(data: bytes, at: int, edits: Edits) -> int:
        while True:
            begin = at
            count, at = take_signed(data, at)
            if count == 0:
                return at
            sized = count < 0
            if sized:
                _, at = take_signed(data, at)
            start, before = at, len(edits)
            for _ in range(abs(count)):
                again = at
                at = item(data, at, edits)
                if at == again:
                    break  # an item without bytes never has any
            if sized and len(edits) > before:
                edits.append((begin, start, signed(abs(count))))

    return walk


def _keys(tree: Tree, above: str = "") -> Iterator[tuple[str, Tree | Mask]]:
    """Yield the masks of a map's keys; a key with dots matches the path with these dots, as in JSON."""
    for name, below in tree.items():
        yield above + name, below
        if isinstance(below, dict):
            yield from _keys(below, f"{above}{name}.")


def _avro_instead(node: AvroNode, mask: Mask, path: str) -> _Instead:
    """Return the function from a value's bytes to its replacement. Raises Unmaskable when the
    type has none.
    """
    kind, logical = node.kind, node.logical or None
    if mask.how == "null":
        raise Unmaskable(f'field "{path}" may not be null')
    if mask.how == "redact":
        if kind in _ZEROS:
            return lambda old: _ZEROS[kind]
        made = {
            "string": _sized((str(uuid.UUID(int=0)) if logical == "uuid" else REDACTED).encode()),
            "bytes": _sized(b"\0" if logical == "decimal" else b""),
            "fixed": bytes(node.size) if kind == "fixed" else b"",
            "array": b"\0",
            "map": b"\0",
        }
        if kind in made:
            return lambda old: made[kind]
    elif logical == "uuid":
        return lambda old: _sized(str(uuid.UUID(bytes=mask.digest(_content(old)))).encode())
    elif kind == "string":
        return lambda old: _sized(mask.digest(_content(old)).hex().encode())
    elif kind == "bytes" and logical is None:
        return lambda old: _sized(mask.digest(_content(old)))
    elif kind == "fixed" and logical is None:
        return lambda old: mask.digest(old, len(old))
    raise Unmaskable(f'field "{path}" is {logical or kind}: {mask.how} has no value for it')


def _content(sized: bytes) -> bytes:
    return sized[take_signed(sized, 0)[1] :]


def _sized(content: bytes) -> bytes:
    return signed(len(content)) + content


# ---- checks by schema alone


def fields_in(schema: AvroSchema, tree: Tree) -> bool:
    """Return whether the schema has any of the fields. Raises Unmaskable when a mask does not fit one of
    them.
    """
    return _AvroMasker().walker(_root(schema), tree, "") is not None


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
        node = _below(tree, name)
        if node is not None:
            found |= json_fields_in(below, node, f"{path}.{name}" if path else name)
    return found


def _judge(schema: Mapping[str, Any], mask: Mask, path: str) -> None:
    said = schema.get("type")
    if said is None or "$ref" in schema:
        return
    types = {said} if isinstance(said, str) else set(said)
    if mask.how == "null" and "null" not in types:
        raise Unmaskable(f'field "{path}" may not be null')
    if mask.how == "hash" and not types <= {"string", "null", "array"}:
        raise Unmaskable(f'field "{path}" is {", ".join(sorted(types))}: a hash is text')
    if mask.how != "null" and ("enum" in schema or "const" in schema):
        raise Unmaskable(f'field "{path}" has fixed values: {mask.how} is none of them')
