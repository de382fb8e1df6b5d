"""[shell] Live lookup of a row by view and key. On the overview and on a view's own page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hub.errors import HubError
from hub.observability.overview.overview import Overview
from hub.observability.overview.reports import ViewSource
from hub.observability.web.card import card
from hub.times import epoch_ms

SUGGESTIONS = 8


class Lookup:
    """Live lookup of a row by view and key."""

    def __init__(self, views: ViewSource, now_ms: Callable[[], int] = epoch_ms) -> None:
        self.views = views
        self.now_ms = now_ms

    def facts(self, overview: Overview, view: str, key: str) -> dict[str, Any]:
        """Return the values of the lookup's template. Without a view or key it uses the first view and its
        latest row."""
        names = [each.name for each in overview.views]
        view = view or (names[0] if names else "")
        keys = self.recent(view) if view in names else []
        key = key.strip() or (keys[0] if keys else "")
        shown = self._nothing(view, key)
        if view in names and key:
            shown = self.card(view, key)
        return {**shown, "view_names": names, "known": view in names, "keys": keys}

    def card(self, view: str, key: str) -> dict[str, Any]:
        """Return one row as a card. ``card`` None: it does not exist; ``trouble``: why it cannot be read."""
        facts = self._nothing(view, key)
        try:
            row = self.views.row(view, key)
        except HubError as error:
            return {**facts, "trouble": error.message}
        return facts if row is None else {**facts, "card": card(row)}

    def _nothing(self, view: str, key: str) -> dict[str, Any]:
        return {"view": view, "key": key, "card": None, "trouble": None, "now_ms": self.now_ms()}

    def recent(self, view: str) -> Sequence[str]:
        """Return keys of the most recently changed rows."""
        try:
            return self.views.recent_keys(view, SUGGESTIONS)
        except HubError:
            return []  # the view has no table yet, or the store is away: the card shows the reason
