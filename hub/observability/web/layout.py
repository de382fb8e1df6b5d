"""[core] Elements that all pages share: the sections of the navigation, paging, and addresses.

The JSON of a page is at its own address prefixed with ``/api``, with the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from hub.caller import HUB, Action, may


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the navigation. ``shortcut``: the key after ``g``. ``of_hub``: visible only with a grant
    on the hub itself."""

    key: str
    title: str
    href: str
    shortcut: str
    of_hub: bool = False


SECTIONS = (
    Section("overview", "Overview", "/", "o"),
    Section("topics", "Topics", "/topics", "t"),
    Section("schemas", "Schemas", "/schemas", "s"),
    Section("views", "Views", "/views", "v"),
    Section("lineage", "Lineage", "/lineage", "n"),
    Section("lag", "Lag", "/lag", "l"),
    Section("latency", "Latency", "/latency", "y"),
    Section("completeness", "Completeness", "/completeness", "c"),
    Section("alerts", "Alerts", "/alerts", "a"),
    Section("mirrors", "Mirrors", "/mirrors", "m", True),
    Section("connect", "Connect", "/connect", "k", True),
    Section("sinks", "Sinks", "/sinks", "i", True),
    Section("cluster", "Cluster", "/cluster", "b", True),
    Section("query", "Query", "/query", "q"),
    Section("workbench", "Workbench", "/workbench", "w"),
    Section("help", "Help", "/help", "h"),
)


def visible_sections() -> tuple[Section, ...]:
    """Return the sections that the caller may open."""
    return tuple(each for each in SECTIONS if not each.of_hub or may(Action.read, HUB))


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


def address(path: str, parameters: Mapping[str, object], /, **changes: object) -> str:
    """Return the path with its parameters, some of them changed. Empty ones are omitted; multiple values
    are repeated."""
    said = {**parameters, **changes}
    text = urlencode(
        {name: value for name, value in said.items() if value not in ("", None, 0, ())}, doseq=True
    )
    return f"{path}?{text}" if text else path
