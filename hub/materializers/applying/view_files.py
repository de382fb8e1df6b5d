"""[edge] The project's views by file, for a loop that asks again and again."""

from __future__ import annotations

import logging
from pathlib import Path

from hub.errors import HubError
from hub.files import Stamp, stamp_if_there
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_view import SqlView

log = logging.getLogger(__name__)


class ViewFiles:
    """The project's views by file. A file is reread only when it changed; one that fails to load keeps its
    last view.
    """

    def __init__(self, project: Path) -> None:
        self.project = project
        self._known: dict[Path, tuple[Stamp, View | SqlView | None]] = {}

    def views(self) -> list[View | SqlView]:
        found: dict[Path, tuple[Stamp, View | SqlView | None]] = {}
        for path in view_files(self.project):
            stamp = stamp_if_there(path)
            if stamp is None:
                continue  # removed meanwhile
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = (stamp, _loaded(path) or (known[1] if known is not None else None))
            found[path] = known
        self._known = found
        return [view for _, view in found.values() if view is not None]


def _loaded(path: Path) -> View | SqlView | None:
    """Load a view; None on an error, which the materializer reports."""
    try:
        return load_view(path)
    except (HubError, OSError) as error:
        log.debug("%s", error)
        return None
