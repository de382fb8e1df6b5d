"""[core] Full-text search of topics, subjects with their fields, and views; pages, mirrors and connectors by
name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from hub.observability.overview.overview import Overview
from hub.observability.web.layout import NavigationEntry
from hub.schema_registry.folder.search import Match, SearchEntry, search_in
from hub.topics.tree.tree import TopicSpec

MOST = 50
_WEIGHTS = {"name": 100, "owner": 40, "tag": 40, "doc": 10}


@dataclass(frozen=True, slots=True)
class Hit:
    """An object that matches all words. ``where``: the matching parts; ``doc``: its description."""

    kind: str
    name: str
    href: str
    score: int
    where: tuple[str, ...]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Search results. ``groups``: (kind, number of hits, best hits). ``missing``: kinds that could not be
    searched, and why."""

    q: str
    total: int
    groups: tuple[tuple[str, int, tuple[Hit, ...]], ...]
    missing: tuple[str, ...] = ()


def search_page(
    q: str,
    overview: Overview,
    tree: Mapping[str, TopicSpec],
    entries: Iterable[SearchEntry],
    missing: tuple[str, ...] = (),
    sections: Iterable[NavigationEntry] = (),
    mirrors: Iterable[str] = (),
) -> SearchPage:
    """Return the pages and objects that match every word of ``q``, ignoring case. ``sections`` and
    ``mirrors``: those that the caller may open."""
    words = q.lower().split()[:20]
    if not words:
        return SearchPage(q, 0, (), missing)
    if not overview.kafka_answered:
        missing += ("topics: Kafka has not listed them yet",)
    if overview.error is not None:
        missing += (f"views: {overview.error}",)
    groups = (
        ("pages", _named("page", [(each.title, each.href) for each in sections], words)),
        ("topics", _topics(words, overview, tree)),
        ("schemas", [_subject(match) for match in search_in(entries, " ".join(words))]),
        ("views", _views(words, overview)),
        ("mirrors", _named("mirror", [(name, "/mirrors") for name in mirrors], words)),
        ("connectors", _named("connector", _connectors(overview), words)),
    )
    return SearchPage(
        q,
        sum(len(hits) for _, hits in groups),
        tuple((kind, len(hits), tuple(hits[:MOST])) for kind, hits in groups if hits),
        missing,
    )


def _named(kind: str, places: Iterable[tuple[str, str]], words: Sequence[str]) -> list[Hit]:
    """Return the hits among objects with nothing but a name. ``places``: name and address of each."""
    hits = (_hit(kind, name, href, [("name", name)], words, "") for name, href in places)
    return sorted((hit for hit in hits if hit is not None), key=lambda hit: (-hit.score, hit.name))


def _connectors(overview: Overview) -> Iterator[tuple[str, str]]:
    """Yield name and address of the connectors that the overview shows to the caller."""
    for each in overview.connect.connectors if overview.connect is not None else ():
        yield each.name, f"/connect/{quote(each.name, safe='')}"


def _subject(match: Match) -> Hit:
    owner = f"owner {match.owner}" if match.owner else ""
    return Hit(
        "schema", match.subject, f"/schemas/{quote(match.subject, safe='')}", match.score, match.where, owner
    )


def _topics(words: Sequence[str], overview: Overview, tree: Mapping[str, TopicSpec]) -> list[Hit]:
    existing = {line.name for line in overview.topics}
    found = []
    for name in sorted(existing | tree.keys()):
        spec = tree.get(name)
        texts = [("name", name)]
        if spec is not None:
            texts += [("owner", spec.owner), *(("tag", tag) for tag in spec.tags), ("doc", spec.doc)]
        hit = _hit(
            "topic", name, f"/topics/{quote(name)}", texts, words, spec.doc if spec is not None else ""
        )
        if hit is not None and name in existing:
            found.append(hit)
    return sorted(found, key=lambda hit: (-hit.score, hit.name))


def _views(words: Sequence[str], overview: Overview) -> list[Hit]:
    hits = (
        _hit(
            "view",
            view.name,
            f"/views/{quote(view.name)}",
            [("name", view.name), ("owner", view.owner), ("doc", view.doc)],
            words,
            view.doc,
        )
        for view in overview.views
    )
    return sorted((hit for hit in hits if hit is not None), key=lambda hit: (-hit.score, hit.name))


def _hit(
    kind: str, name: str, href: str, texts: Sequence[tuple[str, str]], words: Sequence[str], doc: str
) -> Hit | None:
    score, where = 0, dict[str, None]()
    for word in words:
        best = 0
        for what, text in texts:
            lower = text.lower()
            if word not in lower:
                continue
            whole = word == lower or word in lower.replace("-", ".").replace("_", ".").split(".")
            best = max(best, _WEIGHTS[what] * (2 if word == lower else 1) // (1 if whole else 2))
            if what in ("owner", "tag"):
                where[f"{what} {text[:60]}"] = None
        if not best:
            return None
        score += best
    return Hit(kind, name, href, score, tuple(where)[:4], doc)
