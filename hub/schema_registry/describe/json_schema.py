"""[core] View of a JSON schema: properties are fields, objects are records, optional unless required.

An integer is a ``long`` and a number a ``double``: the formats share no narrower type. A record is named
after its title, or the definition that holds it; an inline object has no name. Nothing is fetched: a
``$ref`` leads into the document, to a schema in ``named``, or else to ``any``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import orjson

from hub.schema_registry.describe.view import FieldShape, SchemaField, SchemaType, SchemaView, placed
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.exact_json import dumped

# Properties of all ``allOf`` and branches of all ``oneOf``: a text can repeat thousands of names as often.
_MOST_REPEATED = 100_000
_FORMATS = {"date-time": "timestamp", "date": "date", "time": "time", "uuid": "uuid"}
_INDEX = re.compile(r"\d{1,9}", re.ASCII)
_PLAIN = {"integer": "long", "number": "double", "boolean": "boolean", "null": "null"}


def describe(schema: Any, named: Mapping[str, Any]) -> SchemaView:
    """Return the view.

    ``schema`` and the values of ``named``, keyed by ``$ref`` name, are text or JSON values.
    """
    documents = {**getattr(schema, "named", {}), **named}
    raw = _values(schema)
    reader = _JsonSchemaDescriber({name: _values(each) for name, each in documents.items()}, raw)
    shape = reader.shape(raw, raw, "", is_root=True)
    is_record = shape.type in ("record", "union")
    roots = tuple(name for name in shape.of if is_record and reader.types[name].kind == "record")
    return placed("JSON", roots, reader.types)


def _values(schema: Any) -> Any:
    schema = getattr(schema, "raw", schema)
    if not isinstance(schema, str):
        return schema
    try:
        return orjson.loads(schema)
    except orjson.JSONDecodeError as error:
        raise InvalidSchema(f"the schema is not JSON: {error}") from None


class _JsonSchemaDescriber:
    def __init__(self, named: Mapping[str, Any], own: Any) -> None:
        self.types: dict[str, SchemaType] = {}
        self._named, self._own = named, own
        self._read: dict[
            int, FieldShape
        ] = {}  # by identity: each node is read once, also when it leads back to itself
        self._homes: dict[int, Any] = {}  # by identity: other documents that allOf takes nodes from
        self._alive: list[Any] = []
        self._repeated = 0

    def shape(self, node: Any, document: Any, name: str, is_root: bool = False) -> FieldShape:
        """Return the shape of a node.

        ``document`` is the base of ``#`` references here; ``name`` is for a record without a title.
        """
        if not isinstance(node, dict):
            return FieldShape("any")
        if id(node) not in self._read:
            self._read[id(node)] = FieldShape("any")
            self._read[id(node)] = self._shape(node, self._homes.get(id(node), document), name, is_root)
        return self._read[id(node)]

    def _shape(self, node: dict[str, Any], document: Any, name: str, is_root: bool) -> FieldShape:
        if isinstance(node.get("$ref"), str):
            target, document, name = self._resolved(node["$ref"], document)
            return self.shape(target, document, name, is_root)
        for key in ("oneOf", "anyOf"):
            if isinstance(node.get(key), list) and "properties" not in node:
                return self._union([self.shape(each, document, "") for each in node[key]])
        merged = node if isinstance(node.get("type"), list) else {**node, **self._all_of(node, document)}
        kind = merged.get("type")
        if isinstance(kind, list):
            # Each single-type copy is a new node, which must live as long as its identity is used.
            ones = [{**node, "type": each} for each in kind]
            self._alive.extend(ones)
            return self._union([self.shape(each, document, name) for each in ones])
        # Keywords of objects, strings and arrays have no effect on another type: `properties` with "null".
        if kind == "object" or (kind is None and "properties" in merged):
            return self._object(node, merged, document, name, is_root)
        symbols = _symbols(merged)
        if symbols:
            kept = self._keep(SchemaType("", "enum", (), symbols), merged, document, name)
            return FieldShape("enum", (kept,))
        if kind == "array" or (kind is None and "items" in merged):
            items = merged.get("items", merged.get("prefixItems"))
            inner = self._union(
                [self.shape(each, document, "") for each in (items if isinstance(items, list) else [items])]
            )
            return FieldShape("array", inner.of, logical=inner.logical)
        return _scalar(merged)

    def _object(
        self, node: dict[str, Any], merged: dict[str, Any], document: Any, name: str, is_root: bool
    ) -> FieldShape:
        properties = merged.get("properties")
        if not isinstance(properties, dict) and not is_root:
            inner = self.shape(merged.get("additionalProperties"), document, "")
            return FieldShape("map", inner.of, logical=inner.logical)
        kept = self._keep(SchemaType("", "record"), merged, document, name, is_root)
        self._read[id(node)] = FieldShape("record", (kept,))  # before its fields, which may use it
        required = merged.get("required")
        needed = set(required) if isinstance(required, list) else set()
        fields = tuple(
            self._field(each, inner, each in needed, document)
            for each, inner in (properties if isinstance(properties, dict) else {}).items()
        )
        self.types[kept] = replace(self.types[kept], fields=fields)
        return FieldShape("record", (kept,))

    def _field(self, name: str, node: Any, required: bool, document: Any) -> SchemaField:
        document = self._homes.get(id(node), document)
        shape = self.shape(node, document, "")
        keywords = node if isinstance(node, dict) else {}
        return SchemaField(
            name,
            replace(shape, optional=shape.optional or not required),
            doc=_doc(keywords),
            tags=_tags(keywords),
            default=dumped(keywords["default"]).decode() if "default" in keywords else None,
            own=document is self._own,
        )

    def _keep(
        self, made: SchemaType, keywords: Mapping[str, Any], document: Any, name: str, is_root: bool = False
    ) -> str:
        """Store a type under a unique name; return the name."""
        title = keywords.get("title")
        own = title if isinstance(title, str) and title else name
        wanted = own or ("root" if is_root else f"({made.kind})")
        free, number = wanted, len(self.types)
        while free in self.types:
            free, number = f"{wanted}#{number}", number + 1
        self.types[free] = replace(
            made,
            name=free,
            doc=_doc(keywords),
            tags=_tags(keywords),
            named=bool(own),
            own=document is self._own,
            called="" if free == wanted else wanted,
        )
        return free

    def _union(self, branches: list[FieldShape]) -> FieldShape:
        self._repeats(sum(len(each.of) for each in branches))
        return _union(branches)

    def _repeats(self, count: int) -> None:
        """Count repetitions. Raises InvalidSchema for a view that would be far larger than the text."""
        self._repeated += count
        if self._repeated > _MOST_REPEATED:
            raise InvalidSchema(f"allOf and oneOf repeat more than {_MOST_REPEATED} properties and branches")

    def _all_of(self, node: dict[str, Any], document: Any) -> dict[str, Any]:
        """Return the keywords that ``allOf`` adds to a node: properties and required names of all parts,
        merged.
        """
        parts = list(self._parts(node, document, set()))
        if len(parts) == 1:
            return {}
        added: dict[str, Any] = {"properties": {}, "required": []}
        for each, home in parts:
            inner = [each.get("items")]
            if isinstance(each.get("properties"), dict):
                self._repeats(len(each["properties"]))
                added["properties"].update(each["properties"])
                inner += each["properties"].values()
            if home is not document:
                self._homes.update({id(schema): home for schema in inner if isinstance(schema, dict)})
            if isinstance(each.get("required"), list):
                self._repeats(len(each["required"]))
                added["required"] += each["required"]
            for key in ("type", "format", "enum", "items"):
                if key in each:
                    added.setdefault(key, each[key])
        return added if added["properties"] else {key: added[key] for key in added if key != "properties"}

    def _parts(self, node: Any, document: Any, visited: set[int]) -> Iterator[tuple[dict[str, Any], Any]]:
        """Yield the node and its ``allOf`` parts, each with the document that its references start from."""
        if not isinstance(node, dict) or id(node) in visited:
            return
        visited.add(id(node))
        if isinstance(node.get("$ref"), str):
            target, other, _ = self._resolved(node["$ref"], document)
            yield from self._parts(target, other, visited)
            return
        yield node, document
        for each in node["allOf"] if isinstance(node.get("allOf"), list) else ():
            yield from self._parts(each, document, visited)

    def _resolved(self, ref: str, document: Any) -> tuple[Any, Any, str]:
        """Return (the referenced node, its document, the name of its place)."""
        file, _, pointer = ref.partition("#")
        if file:
            document = self._named.get(file)
        found, name = document, file
        for step in pointer.split("/")[1:]:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(step)] if _INDEX.fullmatch(step) and int(step) < len(found) else None
            else:
                found = found.get(step) if isinstance(found, dict) else None
            name = step
        return (found if pointer.startswith("/") or not pointer else None), document, name


def _union(branches: list[FieldShape]) -> FieldShape:
    others = [each for each in branches if each.type != "null"]
    optional = len(others) < len(branches) or any(each.optional for each in others)
    if not others:
        return FieldShape("null", optional=True)
    if len(others) == 1:
        return replace(others[0], optional=optional)
    logical = ", ".join(each.logical for each in others if each.logical)
    return FieldShape(
        "union", tuple(dict.fromkeys(name for each in others for name in each.of)), optional, logical
    )


def _symbols(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the symbols of an enum of strings, () for any other.

    With a type, values of other types are ignored.
    """
    kind, values = node.get("type"), node.get("enum")
    if kind not in (None, "string") or not isinstance(values, list):
        return ()
    texts = tuple(each for each in values if isinstance(each, str))
    return texts if kind == "string" or len(texts) == len(values) else ()


def _scalar(node: Mapping[str, Any]) -> FieldShape:
    kind, format_name = node.get("type"), node.get("format")
    if kind in _PLAIN:
        return FieldShape(_PLAIN[kind], optional=kind == "null")
    if kind != "string":
        return FieldShape("any")
    if node.get("contentEncoding") == "base64":
        return FieldShape("bytes", logical="base64")
    if isinstance(format_name, str):
        return FieldShape(_FORMATS.get(format_name, "string"), logical=format_name)
    return FieldShape("string")


def _doc(node: Mapping[str, Any]) -> str:
    found = node.get("description", "")
    return found if isinstance(found, str) else ""


def _tags(node: Mapping[str, Any]) -> frozenset[str]:
    found = node.get("confluent:tags", node.get("tags", ()))
    return (
        frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
    )
