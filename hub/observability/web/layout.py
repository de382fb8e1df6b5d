"""[core] Elements that all pages share: navigation, breadcrumbs, paging, and addresses.

The JSON of a page is at its own address prefixed with ``/api``, with the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from starlette.datastructures import QueryParams

from hub.caller import HUB, Action, Kind, Resource, may
from hub.observability.series.rollup import DEFAULT_RANGE, RANGES


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """An entry of the navigation. ``shortcut``: the key after ``g``. ``needs``: the action on the hub itself
    that its page requires; None: it is open to everyone with any grant."""

    key: str
    title: str
    href: str
    shortcut: str
    needs: Action | None = None


@dataclass(frozen=True, slots=True)
class SectionGroup:
    """A group of the navigation; ``title`` is empty for the entries above and below the named groups."""

    title: str
    sections: tuple[NavigationEntry, ...]


NAVIGATION = (
    SectionGroup("", (NavigationEntry("overview", "Overview", "/", "o"),)),
    SectionGroup(
        "Data",
        (
            NavigationEntry("topics", "Topics", "/topics", "t"),
            NavigationEntry("schemas", "Schemas", "/schemas", "s"),
            NavigationEntry("views", "Views", "/views", "v"),
            NavigationEntry("query", "Query", "/query", "q"),
            NavigationEntry("workbench", "Workbench", "/workbench", "w"),
        ),
    ),
    SectionGroup(
        "Flow",
        (
            NavigationEntry("lineage", "Lineage", "/lineage", "n"),
            NavigationEntry("lag", "Lag", "/lag", "l"),
            NavigationEntry("latency", "Latency", "/latency", "y"),
            NavigationEntry("completeness", "Completeness", "/completeness", "c"),
            NavigationEntry("mirrors", "Mirrors", "/mirrors", "m", Action.read),
            NavigationEntry("connect", "Connect", "/connect", "k", Action.read),
            NavigationEntry("sinks", "Sinks", "/sinks", "i", Action.read),
        ),
    ),
    SectionGroup(
        "Operate",
        (
            NavigationEntry("alerts", "Alerts", "/alerts", "a"),
            NavigationEntry("dead-letters", "Dead-letter records", "/dead-letters", "d"),
            NavigationEntry("cluster", "Cluster", "/cluster", "b", Action.read),
            NavigationEntry("usage", "Usage", "/usage", "u"),
            NavigationEntry("access-requests", "Access requests", "/access-requests", "r"),
            NavigationEntry("governance", "Governance", "/governance", "z", Action.admin),
            NavigationEntry("access-log", "Access log", "/access-log", "x", Action.admin),
        ),
    ),
    SectionGroup(
        "",
        (
            NavigationEntry("api", "API", "/docs", "p"),
            NavigationEntry("help", "Help", "/help", "h"),
        ),
    ),
)
SECTIONS = tuple(section for group in NAVIGATION for section in group.sections)


def visible_navigation() -> tuple[SectionGroup, ...]:
    """Return the groups with the sections that the caller may open, without empty ones."""
    groups = (
        SectionGroup(
            group.title,
            tuple(each for each in group.sections if each.needs is None or may(each.needs, HUB)),
        )
        for group in NAVIGATION
    )
    return tuple(group for group in groups if group.sections)


_NOT_BY_HAND = ("_", "views.")


def may_produce(topic: str) -> bool:
    """Return whether the page offers the caller to write messages to a topic: not to the hub's own topics, to
    changelogs of views, or to DLQs."""
    return _may_by_hand(Action.write, topic)


def may_administer(topic: str) -> bool:
    """Return whether the page offers the caller to change a topic: not the hub's own topics, changelogs of
    views, or DLQs."""
    return _may_by_hand(Action.admin, topic)


def _may_by_hand(action: Action, topic: str) -> bool:
    if topic.startswith(_NOT_BY_HAND) or topic.endswith(".dlq"):
        return False
    return may(action, Resource(Kind.topic, topic))


def may_register(subject: str) -> bool:
    """Return whether the caller may register versions of a subject."""
    return may(Action.write, Resource(Kind.subject, subject))


@dataclass(frozen=True, slots=True)
class Breadcrumb:
    """A step from a section down to the shown page; ``href`` is empty for the page itself."""

    title: str
    href: str = ""


# Pages of an object with an address of their own: what is before and after the object's name, and the last
# step.
_BESIDE_THEIR_OBJECT = (
    ("/topic-editor/", "", "Change"),
    ("/schema-editor/", "", "New version"),
    ("/groups/", "/offsets", ""),
)


def breadcrumbs(section: str, path: str, place: str = "") -> tuple[Breadcrumb, ...]:
    """Return the steps down to a page; () for the first page of a section, and outside of the sections.

    ``path``: the decoded path of its address. ``place``: the part of the topic tree (``under=``) or the
    object of the lineage (``of=``) that it shows.

    >>> [each.title for each in breadcrumbs("topics", "/topics/shop.orders/settings")]
    ['Topics', 'shop', 'orders', 'Settings']
    >>> [each.href for each in breadcrumbs("topics", "/topics/shop.orders")]
    ['/topics', '/topics?under=shop', '']
    >>> [each.title for each in breadcrumbs("topics", "/topic-editor/shop.orders")]
    ['Topics', 'shop', 'orders', 'Change']
    """
    found = next((each for each in SECTIONS if each.key == section), None)
    if found is None or found.href == "/":
        return ()
    name, part = path.removeprefix(found.href).strip("/"), ""
    if section == "topics":
        name, _, part = name.partition("/")
    if path == "/regions":
        name = "Map of regions"
    for first, last, title in _BESIDE_THEIR_OBJECT:
        if path.startswith(first):
            name, part = path.removeprefix(first).removesuffix(last), title
    if section == "topics":
        steps = [*_labels(name or place, bool(name) and bool(part))]
        steps += [Breadcrumb(part.capitalize())] if part else []
    elif part:
        steps = [Breadcrumb(name), Breadcrumb(part)]
    elif section in ("alerts", "help"):
        steps = [Breadcrumb(each.replace("-", " ").capitalize()) for each in name.split("/") if each]
    else:
        name = name or place.partition(":")[2] or place
        steps = [Breadcrumb(name)] if name else []
    return (Breadcrumb(found.title, found.href), *steps) if steps else ()


def _labels(name: str, has_part: bool) -> Iterator[Breadcrumb]:
    """Yield a step for each label of a topic's name. The last one links to the topic if a part of its page
    follows."""
    labels = name.split(".") if name else []
    for depth, label in enumerate(labels[:-1], 1):
        yield Breadcrumb(label, address("/topics", {"under": ".".join(labels[:depth])}))
    if labels:
        yield Breadcrumb(labels[-1], f"/topics/{quote(name, safe='')}" if has_part else "")


@dataclass(frozen=True, slots=True)
class Pager:
    """Part of a list that is shown: page ``number`` (from 1) of ``pages``, of ``total`` entries."""

    number: int
    pages: int
    total: int
    first: int
    last: int


def paged(total: int, number: int, size: int) -> Pager:
    """Return the page with that number, or the nearest existing one.

    >>> paged(230, 3, 100)
    Pager(number=3, pages=3, total=230, first=200, last=230)
    """
    pages = max(1, -(-total // size))
    at = min(max(1, number), pages)
    return Pager(at, pages, total, (at - 1) * size, min(total, at * size))


@dataclass(frozen=True, slots=True)
class RangeLink:
    """A range of the charts of a page, and the page's address with it."""

    title: str
    href: str
    is_chosen: bool


def range_links(path: str, parameters: Mapping[str, object]) -> tuple[RangeLink, ...]:
    """Return the ranges of charts as links to the page itself, which keep its other parameters.

    ``path``: decoded.
    """
    chosen = parameters.get("range") or DEFAULT_RANGE
    every = parameters.multi_items() if isinstance(parameters, QueryParams) else parameters.items()
    kept: dict[str, list[object]] = {}
    for name, value in every:
        kept.setdefault(name, []).append(value)
    return tuple(
        RangeLink(
            each.title,
            address(quote(path), kept, range="" if each.name == DEFAULT_RANGE else each.name),
            each.name == chosen,
        )
        for each in RANGES.values()
    )


def address(path: str, parameters: Mapping[str, object], /, **changes: object) -> str:
    """Return the path with its parameters, some of them changed. Empty ones are omitted; multiple values
    are repeated."""
    merged = {**parameters, **changes}
    text = urlencode(
        {name: value for name, value in merged.items() if value not in ("", None, 0, ())}, doseq=True
    )
    return f"{path}?{text}" if text else path
