"""[core] Mask fields of Avro records in place."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from hub.replication.rewriting.mask_tree import REDACTED, Edits, Mask, Masking, Tree, Unmaskable, put_edit
from hub.schema_registry.codecs.avro_validator import BrokenValue, checker
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.avro.types import AvroNode
from hub.varint import signed, take_signed

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
        return put_edit(value, edits)

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
            encoded = signed(null)

            def erase(data: bytes, at: int, edits: Edits) -> int:
                branch, begin = take_signed(data, at)
                end = skips[branch](data, begin)
                if branch != null:
                    edits.append((at, end, encoded))
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


def fields_in(schema: AvroSchema, tree: Tree) -> bool:
    """Return whether the schema has any of the fields. Raises Unmaskable when a mask does not fit one of
    them.
    """
    return _AvroMasker().walker(_root(schema), tree, "") is not None
