"""[core] What all pages share: the sections of the navigation, and where a page's JSON is.

The JSON of a page is at its own address with ``/api`` before it, with the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from hub.caller import HUB, Action, may


@dataclass(frozen=True, slots=True)
class Section:
    """An entry of the navigation; ``shortcut`` is the letter after ``g``. ``of_hub``: it takes a grant over the hub itself."""

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
    Section("cluster", "Cluster", "/cluster", "b", True),
    Section("query", "Query", "/query", "q"),
)


def visible_sections() -> tuple[Section, ...]:
    """Those that who asks may open."""
    return tuple(each for each in SECTIONS if not each.of_hub or may(Action.read, HUB))


@dataclass(frozen=True, slots=True)
class Pager:
    """Which part of a list is shown: page ``number`` (from 1) of ``pages``, of ``total`` entries."""

    number: int
    pages: int
    total: int
    first: int
    last: int


def paged(total: int, number: int, size: int) -> Pager:
    """The page of that number, or the nearest there is.

    >>> paged(230, 3, 100)
    Pager(number=3, pages=3, total=230, first=200, last=230)
    """
    pages = max(1, -(-total // size))
    at = min(max(1, number), pages)
    return Pager(at, pages, total, (at - 1) * size, min(total, at * size))


def address(path: str, parameters: Mapping[str, object], /, **changes: object) -> str:
    """The path with its parameters and some of them changed; empty ones are left out, of several each stands."""
    said = {**parameters, **changes}
    text = urlencode(
        {name: value for name, value in said.items() if value not in ("", None, 0, ())}, doseq=True
    )
    return f"{path}?{text}" if text else path
