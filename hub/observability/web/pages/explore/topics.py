"""[core] Page of all topics: as a tree (one level, or all of it when it is small), or as a list by rate or
size.

Labels with a single child are joined (``nyc.jfk`` when ``nyc`` has nothing else). Sums cover the topics that
match the filter. One pass over the lines, also for 10,000 topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.observability.overview.overview import Overview, TopicKind, TopicLine
from hub.observability.web.layout import Pager, paged
from hub.topics.tree.tree import TopicSpec

PAGE = 100
# Up to this number, topics are shown at once, with all labels expanded.
OPEN_ALL = 150
_MOST_CHOICES = 300

_OwnerOf = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Filter:
    """Parameters of the address.

    ``under``: a place in the tree. ``q``: words that name, owner, tags or doc must contain. ``order``:
    "tree", or "rate", "events", "undecodable" for a list in descending order.
    """

    under: str = ""
    q: str = ""
    owner: str = ""
    tag: str = ""
    kind: str = ""
    order: str = "tree"

    @property
    def is_narrow(self) -> bool:
        return bool(self.q or self.owner or self.tag or self.kind)


@dataclass(frozen=True, slots=True)
class TopicListRow:
    """A topic, a label with topics below, or both.

    ``label``: the part of ``path`` below the parent row. ``topics``: number of topics at or below it, to
    which the sums refer.
    """

    path: str
    label: str
    depth: int
    is_topic: bool
    is_branch: bool
    kind: str
    topics: int
    partitions: int
    events: int
    events_per_second: float | None
    undecodable: int
    owner: str
    doc: str
    tags: tuple[str, ...]
    history: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicListing:
    """Values of the page. ``of``: number of all topics; ``total``: matches."""

    filter: Filter
    rows: tuple[TopicListRow, ...]
    total: int
    of: int
    pager: Pager
    owners: tuple[str, ...]
    tags: tuple[str, ...]
    kinds: tuple[str, ...] = tuple(TopicKind)
    asked: bool = True


@dataclass(slots=True)
class _TopicTotals:
    """Sums over topics."""

    topics: int = 0
    partitions: int = 0
    events: int = 0
    rate: float | None = None
    undecodable: int = 0
    owners: set[str] = field(default_factory=set)

    def add(self, line: TopicLine, owner: str) -> None:
        self.topics += 1
        self.partitions += line.partitions
        self.events += line.events
        self.undecodable += line.undecodable
        if line.events_per_second is not None:
            self.rate = (self.rate or 0.0) + line.events_per_second
        if owner:
            self.owners.add(owner)

    @property
    def owner(self) -> str:
        return (
            next(iter(self.owners))
            if len(self.owners) == 1
            else f"{len(self.owners)} owners" * bool(self.owners)
        )


def listing(
    overview: Overview,
    others: Iterable[TopicLine],
    tree: Mapping[str, TopicSpec],
    wanted: Filter,
    number: int = 1,
) -> TopicListing:
    """Return the page with that number. ``others``: lines of kinds that the overview omits."""
    lines = [*overview.topics, *others]
    view_owners = {f"views.{view.name}": view.owner for view in overview.views}

    def owner_of(name: str) -> str:
        spec = tree.get(name)
        return spec.owner if spec is not None else view_owners.get(name, "")

    fit = [line for line in lines if _fits(line, tree.get(line.name), owner_of(line.name), wanted)]
    if wanted.order in _ORDER_KEYS:
        flat = sorted(fit, key=_ORDER_KEYS[wanted.order])
        pager = paged(len(flat), number, PAGE)
        rows = [_topic(line, line.name, 0, tree, owner_of) for line in flat[pager.first : pager.last]]
    else:
        wanted = replace(wanted, order="tree")
        made = _rows(sorted(fit, key=lambda line: line.name.split(".")), wanted.under, 0, tree, owner_of)
        pager = paged(len(made), number, PAGE)
        if len(fit) <= OPEN_ALL:
            pager = paged(len(made), 1, max(1, len(made)))
        rows = made[pager.first : pager.last]
    owners = sorted({each for line in lines if (each := owner_of(line.name))})
    return TopicListing(
        wanted,
        tuple(rows),
        len(fit),
        len(lines),
        pager,
        tuple(owners[:_MOST_CHOICES]),
        tuple(sorted({tag for spec in tree.values() for tag in spec.tags})[:_MOST_CHOICES]),
        asked=overview.kafka_answered,
    )


_ORDER_KEYS: Mapping[str, Callable[[TopicLine], tuple[float, str]]] = {
    "rate": lambda line: (-(line.events_per_second or 0.0), line.name),
    "events": lambda line: (-line.events, line.name),
    "undecodable": lambda line: (-line.undecodable, line.name),
}


def _fits(line: TopicLine, spec: TopicSpec | None, owner: str, wanted: Filter) -> bool:
    if wanted.under and line.name != wanted.under and not line.name.startswith(f"{wanted.under}."):
        return False
    if wanted.kind and line.kind != wanted.kind:
        return False
    if not wanted.kind and line.kind in (TopicKind.internal, TopicKind.dead_letters):
        return False
    if wanted.owner and owner != wanted.owner:
        return False
    tags = spec.tags if spec is not None else ()
    if wanted.tag and wanted.tag not in tags:
        return False
    if not wanted.q:
        return True
    text = " ".join((line.name, owner, *tags, spec.doc if spec is not None else "")).lower()
    return all(word in text for word in wanted.q.lower().split())


def _rows(
    lines: Sequence[TopicLine], under: str, depth: int, tree: Mapping[str, TopicSpec], owner_of: _OwnerOf
) -> list[TopicListRow]:
    """Return the rows below a place; ``lines`` must be ordered by their labels."""
    opened = len(lines) <= OPEN_ALL if depth == 0 else True
    list_rows: list[TopicListRow] = []
    for path, group in _groups(lines, under):
        own = group[0] if group[0].name == path else None
        below = group[1:] if own is not None else group
        label = path[len(under) + 1 :] if under else path
        if own is not None and not below:
            list_rows.append(_topic(own, label, depth, tree, owner_of))
            continue
        total = _TopicTotals()
        for line in group:
            total.add(line, owner_of(line.name))
        spec = tree.get(path) if own is not None else None
        list_rows.append(
            TopicListRow(
                path,
                label,
                depth,
                own is not None,
                True,
                "",
                total.topics,
                total.partitions,
                total.events,
                total.rate,
                total.undecodable,
                total.owner,
                spec.doc if spec is not None else "",
                spec.tags if spec is not None else (),
            )
        )
        if opened:
            list_rows += _rows(below, path, depth + 1, tree, owner_of)
    return list_rows


def _groups(lines: Sequence[TopicLine], under: str) -> Iterator[tuple[str, Sequence[TopicLine]]]:
    """Group topics by the next place below ``under``; a place with a single child is skipped."""
    skip = len(under) + 1 if under else 0
    grouped: dict[str, list[TopicLine]] = {}
    for line in lines:
        label = line.name[skip:].partition(".")[0]
        grouped.setdefault(label, []).append(line)
    for label, group in grouped.items():
        if not label:
            # The place itself, when it is a topic; ".a" and "a..b" (legal in Kafka) belong to no place.
            yield from ((line.name, [line]) for line in group)
            continue
        path = f"{under}.{label}" if under else label
        if len(group) == 1:
            yield group[0].name, group
            continue
        while group[0].name != path:
            following = {line.name[len(path) + 1 :].partition(".")[0] for line in group}
            if len(following) > 1:
                break
            path = f"{path}.{following.pop()}"
        yield path, group


def _topic(
    line: TopicLine, label: str, depth: int, tree: Mapping[str, TopicSpec], owner_of: _OwnerOf
) -> TopicListRow:
    spec = tree.get(line.name)
    return TopicListRow(
        line.name,
        label or line.name,
        depth,
        True,
        False,
        line.kind,
        1,
        line.partitions,
        line.events,
        line.events_per_second,
        line.undecodable,
        owner_of(line.name),
        spec.doc if spec is not None else "",
        spec.tags if spec is not None else (),
        line.history,
    )
