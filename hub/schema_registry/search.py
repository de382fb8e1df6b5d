"""[core] Schemas by words: over subjects, names of records and fields, docs, owners and tags.

Every word must be found somewhere. Where it is found decides the rank: a subject or a record of that name first, then
its fields, its owner and tags, its docs; a whole word counts more than a part of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hub.schema_registry.state import Version

_WEIGHTS: Mapping[str, int] = {
    "subject": 100,
    "name": 80,
    "field": 50,
    "tag": 40,
    "owner": 40,
    "symbol": 20,
    "doc": 10,
}
_PART = 2  # a part of a word counts so many times less
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MOST_NODES = 100_000
_PROTO_NAME = re.compile(r"\b(?:message|enum|service)\s+(\w+)")
_PROTO_FIELD = re.compile(r"[\w>]\s+(\w+)\s*=\s*\d+\s*[;\[]")
_PROTO_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    """A subject that was found. ``where`` tells what matched: ``field customer_id``; best first."""

    subject: str
    version: int
    score: int
    owner: str
    tags: tuple[str, ...]
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A subject made ready to be searched: ``entry_of`` reads its schema once, ``search_in`` asks it often."""

    subject: str
    version: int
    texts: tuple[_Text, ...]
    all: str


def entry_of(subject: str, version: Version) -> Entry:
    """The subject's words, of this version."""
    texts = (_Text("subject", subject), *_of_schema(version), *_of_metadata(version.metadata or {}))
    return Entry(subject, version.version, texts, "\n".join(each.text.lower() for each in texts))


def search(
    latest: Iterable[tuple[str, Version]],
    words: str = "",
    *,
    owner: str | None = None,
    tag: str | None = None,
    field: str | None = None,
) -> list[Match]:
    """``search_in`` over subjects as they are."""
    return search_in((entry_of(*each) for each in latest), words, owner=owner, tag=tag, field=field)


def search_in(
    entries: Iterable[Entry],
    words: str = "",
    *,
    owner: str | None = None,
    tag: str | None = None,
    field: str | None = None,
) -> list[Match]:
    """The subjects (name and latest version) that have every word, best first, then by name.

    ``owner``, ``tag`` and ``field`` must be there besides: the owner and tag as they are written, whatever the case;
    the field by its whole name or as a dotted path's last part.
    """
    wanted = [each.lower() for each in words.split()]
    found = [
        _match(each, wanted, owner, tag, field)
        for each in entries
        if all(word in each.all for word in wanted)
    ]
    return sorted((each for each in found if each is not None), key=lambda each: (-each.score, each.subject))


def _match(
    entry: Entry, words: list[str], owner: str | None, tag: str | None, field: str | None
) -> Match | None:
    texts = entry.texts
    owners = [each.text for each in texts if each.kind == "owner"]
    tags = sorted({each.text for each in texts if each.kind == "tag"})
    fields = [each.text for each in texts if each.kind == "field"]
    for asked, there in ((owner, owners), (tag, tags), (field, fields)):
        if asked is not None and asked.lower() not in (each.lower() for each in there):
            return None
    score = 0
    where: dict[str, int] = {}
    for word in words:
        best = 0
        for text in texts:
            points = _points(word, text)
            if points:
                said = (
                    f"{text.kind} {text.text}" if len(text.text) <= 60 else f"{text.kind} {text.text[:59]}…"
                )
                where[said] = max(points, where.get(said, 0))
            best = max(best, points)
        if not best:
            return None
        score += best
    shown = sorted(where, key=lambda each: -where[each])[:5]
    return Match(entry.subject, entry.version, score, ", ".join(owners), tuple(tags), tuple(shown))


def _points(word: str, text: _Text) -> int:
    weight = _WEIGHTS[text.kind]
    lower = text.text.lower()
    if word == lower:
        return weight * 2
    if word not in lower:
        return 0
    return weight if word in {each.lower() for each in _WORD.findall(text.text)} else weight // _PART


def _of_schema(version: Version) -> Iterator[_Text]:
    """Names, fields, symbols and docs, whatever the schema is valid or not."""
    if version.schema_type == "PROTOBUF":
        text = _PROTO_COMMENT.sub("", version.text)
        yield from (_Text("name", each) for each in _PROTO_NAME.findall(text))
        yield from (_Text("field", each) for each in _PROTO_FIELD.findall(text))
        return
    try:
        root = json.loads(version.text)
    except (ValueError, RecursionError):
        return
    read = _avro if version.schema_type == "AVRO" else _json_schema
    left, count = [root], 0
    while left and count < _MOST_NODES:
        node = left.pop()
        count += 1
        if isinstance(node, dict):
            yield from read(node)
            left.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            left.extend(reversed(node))


def _avro(node: Mapping[str, Any]) -> Iterator[_Text]:
    if isinstance(node.get("doc"), str):
        yield _Text("doc", node["doc"])
    if isinstance(node.get("name"), str) and "type" in node:
        named = node["type"] in ("record", "error", "enum", "fixed")
        yield _Text("name" if named else "field", node["name"])
    if isinstance(node.get("symbols"), list):
        yield from (_Text("symbol", each) for each in node["symbols"] if isinstance(each, str))
    yield from _tags(node.get("confluent:tags"))


def _json_schema(node: Mapping[str, Any]) -> Iterator[_Text]:
    for key in ("description", "title"):
        if isinstance(node.get(key), str):
            yield _Text("name" if key == "title" else "doc", node[key])
    if isinstance(node.get("properties"), dict):
        yield from (_Text("field", each) for each in node["properties"])
    if isinstance(node.get("enum"), list):
        yield from (_Text("symbol", each) for each in node["enum"] if isinstance(each, str))
    yield from _tags(node.get("confluent:tags"))


def _tags(found: Any) -> Iterator[_Text]:
    if isinstance(found, list):
        yield from (_Text("tag", each) for each in found if isinstance(each, str))


def _of_metadata(metadata: Mapping[str, Any]) -> Iterator[_Text]:
    """Owner and tags as ``schemas.yaml`` writes them and as Confluent's clients do."""
    by_path = metadata.get("tags")
    for each in by_path.values() if isinstance(by_path, dict) else ():
        yield from _tags(each)
    properties = metadata.get("properties")
    for key, value in properties.items() if isinstance(properties, dict) else ():
        if isinstance(value, str):
            kind = "owner" if key == "owner" else "tag" if key in ("tag", "tags") else "doc"
            yield from (
                _Text(kind, each.strip()) for each in (value.split(",") if kind == "tag" else [value])
            )
