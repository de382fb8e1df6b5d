"""[core] Full-text search of schemas: subjects, names of records and fields, docs, owners and tags.

Every word must match somewhere. The place of a match determines its rank: a subject or record of that name
first, then fields, owner and tags, docs; a whole word counts more than a part of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hub.schema_registry.registry.snapshot import SubjectVersion

_WEIGHTS: Mapping[str, int] = {
    "subject": 100,
    "name": 80,
    "field": 50,
    "tag": 40,
    "owner": 40,
    "symbol": 20,
    "doc": 10,
}
_PART = 2  # a partial match counts this many times less
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MOST_NODES = 100_000
# Keys whose values are data, not schemas; and keys whose values are schemas by name, which are not keywords.
_DATA: Mapping[str, frozenset[str]] = {
    "AVRO": frozenset({"default"}),
    "JSON": frozenset({"default", "const", "enum", "examples"}),
}
_NAMED = ("definitions", "$defs")
_BY_NAME: Mapping[str, frozenset[str]] = {
    "AVRO": frozenset(),
    "JSON": frozenset({*_NAMED, "properties", "patternProperties", "dependentSchemas", "dependencies"}),
}
_PROTO_NAME = re.compile(r"\b(?:message|enum|service)\s+(\w+)")
_PROTO_FIELD = re.compile(r"[\w>]\s+(\w+)\s*=\s*\d+\s*[;\[]")
_PROTO_ENUM = re.compile(r"\benum\s+\w+\s*\{([^{}]*)\}")
_PROTO_SYMBOL = re.compile(r"\b([A-Za-z_]\w*)\s*=\s*-?\d\w*\s*[;\[]")
# Comments, and strings, which may look like them. An unclosed one extends to the end; otherwise each possible
# start would be tried again.
_PROTO_COMMENT = re.compile(r"""("[^"\n]*"|'[^'\n]*')|/\*.*?(?:\*/|\Z)|//[^\n]*""", re.DOTALL)
_PROTO_TEXT = re.compile(r""""([^"\n]*)"|'[^'\n]*'""")
_PROTO_META = re.compile(
    r"""\(\.?confluent\.\w+_meta\)(?:\.(\w+))?\s*=\s*(\{[^}]{0,4000}\}|\[[^]]{0,4000}\]|"[^"\n]*")"""
)
_PROTO_OPTION = re.compile(r"""\b(doc|tags)\s*:\s*(\[[^]]{0,4000}\]|"[^"\n]*")""")


@dataclass(frozen=True, slots=True)
class Match:
    """A matching subject. ``where`` lists what matched, best first: ``field customer_id``."""

    subject: str
    version: int
    score: int
    owner: str
    tags: tuple[str, ...]
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _SearchText:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """A subject prepared for searching: ``entry_of`` reads its schema once, ``search_in`` searches it
    often.
    """

    subject: str
    version: int
    texts: tuple[_SearchText, ...]
    all: str


def entry_of(subject: str, version: SubjectVersion) -> SearchEntry:
    """Prepare this version of a subject for searching."""
    texts = (_SearchText("subject", subject), *_of_schema(version), *_of_metadata(version.metadata or {}))
    return SearchEntry(subject, version.version, texts, "\n".join(each.text.lower() for each in texts))


def search(
    latest: Iterable[tuple[str, SubjectVersion]],
    query: str = "",
    *,
    owner: str | None = None,
    tag: str | None = None,
    field: str | None = None,
) -> list[Match]:
    """Run ``search_in`` over subjects that are not prepared."""
    return search_in((entry_of(*each) for each in latest), query, owner=owner, tag=tag, field=field)


def search_in(
    entries: Iterable[SearchEntry],
    query: str = "",
    *,
    owner: str | None = None,
    tag: str | None = None,
    field: str | None = None,
) -> list[Match]:
    """Return the subjects (name and latest version) that match every word, best first, then by name.

    ``owner``, ``tag`` and ``field`` must match too: owner and tag in full, ignoring case; the field by its
    whole name or as a dotted path's last part.
    """
    words = [each.lower() for each in query.split()]
    matches = [
        _match(each, words, owner, tag, field) for each in entries if all(word in each.all for word in words)
    ]
    return sorted(
        (each for each in matches if each is not None), key=lambda each: (-each.score, each.subject)
    )


def _match(
    entry: SearchEntry, words: list[str], owner: str | None, tag: str | None, field: str | None
) -> Match | None:
    texts = entry.texts
    owners = [each.text for each in texts if each.kind == "owner"]
    tags = sorted({each.text for each in texts if each.kind == "tag"})
    fields = [each.text for each in texts if each.kind == "field"]
    for wanted, values in ((owner, owners), (tag, tags), (field, fields)):
        if wanted is not None and wanted.lower() not in (each.lower() for each in values):
            return None
    score = 0
    where: dict[str, int] = {}
    for word in words:
        best = 0
        for text in texts:
            points = _points(word, text)
            if points:
                place = (
                    f"{text.kind} {text.text}" if len(text.text) <= 60 else f"{text.kind} {text.text[:59]}…"
                )
                where[place] = max(points, where.get(place, 0))
            best = max(best, points)
        if not best:
            return None
        score += best
    shown = sorted(where, key=lambda each: -where[each])[:5]
    return Match(entry.subject, entry.version, score, ", ".join(owners), tuple(tags), tuple(shown))


def _points(word: str, text: _SearchText) -> int:
    weight = _WEIGHTS[text.kind]
    lower = text.text.lower()
    if word == lower:
        return weight * 2
    if word not in lower:
        return 0
    return weight if word in {each.lower() for each in _WORD.findall(text.text)} else weight // _PART


def _of_schema(version: SubjectVersion) -> Iterator[_SearchText]:
    """Yield names, fields, symbols and docs, whether the schema is valid or not."""
    if version.schema_type == "PROTOBUF":
        yield from _protobuf(_PROTO_COMMENT.sub(lambda found: found[1] or " ", version.text))
        return
    try:
        root = orjson.loads(version.text)
    except orjson.JSONDecodeError:
        return
    kind = "AVRO" if version.schema_type == "AVRO" else "JSON"
    read, data, by_name = _avro if kind == "AVRO" else _json_schema, _DATA[kind], _BY_NAME[kind]
    left, count = [(root, False)], 0  # a node, and whether it is schemas by their names
    while left and count < _MOST_NODES:
        node, is_named = left.pop()
        count += 1
        inner: list[tuple[Any, bool]] = []
        if isinstance(node, dict) and is_named:
            inner = [(each, False) for each in node.values()]
        elif isinstance(node, dict):
            yield from read(node)
            inner = [(each, key in by_name) for key, each in node.items() if key not in data]
        elif isinstance(node, list):
            inner = [(each, False) for each in node]
        left.extend(reversed(inner))


def _protobuf(text: str) -> Iterator[_SearchText]:
    plain = _PROTO_TEXT.sub('""', text)
    yield from (_SearchText("name", each) for each in _PROTO_NAME.findall(plain))
    yield from (_SearchText("field", each) for each in _PROTO_FIELD.findall(plain))
    for inside in _PROTO_ENUM.findall(plain):
        yield from (_SearchText("symbol", each) for each in _PROTO_SYMBOL.findall(inside))
    for name, option in _PROTO_META.findall(text):
        for kind, value in [(name, option)] if name else _PROTO_OPTION.findall(option):
            if kind in ("doc", "tags"):
                yield from (_SearchText(kind.removesuffix("s"), each) for each in _PROTO_TEXT.findall(value))


def _avro(node: Mapping[str, Any]) -> Iterator[_SearchText]:
    if isinstance(node.get("doc"), str):
        yield _SearchText("doc", node["doc"])
    if isinstance(node.get("name"), str) and "type" in node:
        named = node["type"] in ("record", "error", "enum", "fixed")
        yield _SearchText("name" if named else "field", node["name"])
    if isinstance(node.get("symbols"), list):
        yield from (_SearchText("symbol", each) for each in node["symbols"] if isinstance(each, str))
    yield from _tags(node.get("confluent:tags", node.get("tags")))


def _json_schema(node: Mapping[str, Any]) -> Iterator[_SearchText]:
    for key in ("description", "title"):
        if isinstance(node.get(key), str):
            yield _SearchText("name" if key == "title" else "doc", node[key])
    if isinstance(node.get("properties"), dict):
        yield from (_SearchText("field", each) for each in node["properties"])
    for key in _NAMED:
        if isinstance(node.get(key), dict):
            yield from (_SearchText("name", each) for each in node[key])
    if isinstance(node.get("enum"), list):
        yield from (_SearchText("symbol", each) for each in node["enum"] if isinstance(each, str))
    yield from _tags(node.get("confluent:tags", node.get("tags")))


def _tags(found: Any) -> Iterator[_SearchText]:
    if isinstance(found, list):
        yield from (_SearchText("tag", each) for each in found if isinstance(each, str))


def _of_metadata(metadata: Mapping[str, Any]) -> Iterator[_SearchText]:
    """Yield owner and tags, as written by ``schemas.yaml`` and by Confluent's clients."""
    by_path = metadata.get("tags")
    for each in by_path.values() if isinstance(by_path, dict) else ():
        yield from _tags(each)
    properties = metadata.get("properties")
    for key, value in properties.items() if isinstance(properties, dict) else ():
        if isinstance(value, str):
            kind = "owner" if key == "owner" else "tag" if key in ("tag", "tags") else "doc"
            yield from (
                _SearchText(kind, each.strip()) for each in (value.split(",") if kind == "tag" else [value])
            )
