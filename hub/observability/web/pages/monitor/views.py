"""[core] Pages of views: the list, and one view with its sources, stores, versions and access examples."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hub.errors import HubError, NotFound, did_you_mean
from hub.observability.overview.overview import RUNNING, BatchSummary, Overview, ViewLine
from hub.observability.web.pages.row_history import RowHistoryPart


@dataclass(frozen=True, slots=True)
class ViewsPage:
    """Values of the list. ``views``: matches, those not running first. ``of``: number of all views.
    ``error``: why the store cannot be read."""

    q: str
    owner: str
    state: str
    views: tuple[ViewLine, ...]
    of: int
    owners: tuple[str, ...]
    states: tuple[str, ...]
    error: str | None


@dataclass(frozen=True, slots=True)
class AccessExample:
    """An example of reading the view: its purpose and the command."""

    what: str
    command: str


@dataclass(frozen=True, slots=True)
class TextSearchPart:
    """A text search in the view's rows. ``next``: cursor of the next page. ``further``: it is a later
    page. ``trouble``: why there is no answer, ``hint``: what to do.
    """

    words: str
    rows: tuple[Mapping[str, Any], ...] = ()
    next: str | None = None
    further: bool = False
    trouble: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ViewPage:
    """Values of one view's page.

    ``stores``, ``versions``: as in ``GET /views`` and ``GET /view-versions``. ``text``: the served version's
    file. ``text_index``: fields and language of text searches; None without. ``batches``: the last
    observed ones, newest first. ``missing``: parts that could not be read, and why. ``recomputed``: result
    of the last recomputation from the sources for comparison. ``history``: None for a view without one.
    """

    line: ViewLine
    fields: tuple[str, ...]
    indexes: tuple[str, ...]
    changelog: str
    positions: str
    stores: tuple[Mapping[str, Any], ...]
    cut: Mapping[str, Any] | None
    versions: tuple[Mapping[str, Any], ...]
    served: int | None
    refusal: str | None
    text: str
    ways: tuple[AccessExample, ...]
    missing: tuple[str, ...]
    batches: tuple[BatchSummary, ...] = ()
    recomputed: Mapping[str, Any] | None = None
    text_index: Mapping[str, Any] | None = None
    search: TextSearchPart | None = None
    history: RowHistoryPart | None = None


def searched(
    search: Callable[[str, str, str], Mapping[str, Any]], page: ViewPage, words: str, after: str
) -> TextSearchPart | None:
    """Return the part of a page with the rows that have the words; None for a view without a text index."""
    if page.text_index is None:
        return None
    if not words:
        return TextSearchPart("")
    try:
        found = search(page.line.name, words, after)
    except HubError as error:
        return TextSearchPart(words, trouble=error.message, hint=error.hint or "")
    return TextSearchPart(words, tuple(found["rows"]), found["next"], further=bool(after))


def views_page(overview: Overview, q: str, owner: str, state: str) -> ViewsPage:
    """Return the list. Every word of ``q`` must be in a view's name, doc, owner or its topics' names."""
    words = q.lower().split()

    def fits(view: ViewLine) -> bool:
        text = " ".join((view.name, view.doc, view.owner, *(each.topic for each in view.sources))).lower()
        return (
            all(word in text for word in words)
            and (not owner or view.owner == owner)
            and (not state or view.state == state)
        )

    fit = [view for view in overview.views if fits(view)]
    return ViewsPage(
        q,
        owner,
        state,
        tuple(sorted(fit, key=lambda view: (view.state in RUNNING, view.name))),
        len(overview.views),
        tuple(sorted({view.owner for view in overview.views if view.owner})),
        tuple(sorted({view.state for view in overview.views})),
        overview.error,
    )


def view_page(
    overview: Overview,
    name: str,
    about: Mapping[str, Any],
    versions: Mapping[str, Any],
    keys: Sequence[str],
    base: str,
    missing: tuple[str, ...] = (),
) -> ViewPage:
    """Return the page. ``base``: the hub's address as the browser sees it. Raises NotFound with the
    nearest name."""
    line = next((view for view in overview.views if view.name == name), None)
    if line is None:
        raise NotFound(
            f'view "{name}" does not exist',
            hint=did_you_mean(name, [view.name for view in overview.views], "all that there are: /views"),
        )
    served = versions.get("served")
    versions_shown = tuple(versions.get("versions", ()))
    return ViewPage(
        line,
        tuple(about.get("fields", ())),
        tuple(about.get("indexes", ())),
        str(about.get("changelog", "")),
        str(about.get("positions", "")),
        tuple(about.get("stores", ())),
        about.get("cut"),
        tuple({key: value for key, value in each.items() if key != "text"} for each in versions_shown),
        served,
        versions.get("refusal"),
        next((str(each["text"]) for each in versions_shown if each["number"] == served), ""),
        ways(
            name,
            tuple(about.get("indexes", ())),
            next(iter(keys), "KEY"),
            base,
            searchable=about.get("text_index") is not None,
        ),
        missing,
        recomputed=versions.get("recomputed"),
        text_index=about.get("text_index"),
    )


def ways(
    view: str, indexes: Sequence[str], key: str, base: str, *, searchable: bool = False
) -> tuple[AccessExample, ...]:
    """Return examples of reading a view, as commands to paste."""
    at = f"{base.rstrip('/')}/views/{quote(view)}"
    found = [AccessExample("One row", f"curl -s {shlex.quote(f'{at}/{quote(key)}')}")]
    if indexes:
        found.append(
            AccessExample(
                "Rows by an index", f"curl -s {shlex.quote(f'{at}?{quote(indexes[0])}=VALUE&limit=10')}"
            )
        )
    if searchable:
        found.append(
            AccessExample("Rows with these words", f"curl -s {shlex.quote(f'{at}?q=WORDS&limit=10')}")
        )
    found += [
        AccessExample("Every change, as it comes", f"curl -sN {shlex.quote(f'{at}/changes')}"),
        AccessExample("SQL", f"hub sql -c {shlex.quote(f'SELECT * FROM {view} LIMIT 10')}"),
        AccessExample(
            "One row in the terminal, live", f"hub watch {shlex.quote(view)} --key {shlex.quote(key)}"
        ),
    ]
    return tuple(found)
