"""[shell] Search index over all subjects; only subjects that changed are read again."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from hub.caller import sees_subject
from hub.observability.web.pages.estate import HasRegistry, ask
from hub.schema_registry.folder.search import SearchEntry, entry_of
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.snapshot import SubjectVersion
from hub.schema_registry.registry.state_machine import Registry


@dataclass
class SearchIndex:
    """Search index, thread safe. ``entries`` brings it up to date with the node."""

    registry: HasRegistry
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _position: int = -1
    _known: dict[str, tuple[tuple[int, int], SearchEntry]] = field(default_factory=dict)

    def entries(self) -> list[SearchEntry]:
        """Return one entry for each subject with a version that the caller may see, by name.

        Raises PeerError while the registry is not ready.
        """
        with self._lock:
            if self._position != self.registry.position:
                self._refresh()
            return [entry for name, (_, entry) in self._known.items() if sees_subject(name)]

    def _refresh(self) -> None:
        position = self.registry.position
        latest = ask(self.registry, latest_of)
        known: dict[str, tuple[tuple[int, int], SearchEntry]] = {}
        for stored in latest:
            mark = (stored.version, stored.schema_id)
            before = self._known.get(stored.subject)
            if before is None or before[0] != mark:
                before = (mark, entry_of(stored.subject, version_of(stored)))
            known[stored.subject] = before
        self._known, self._position = known, position


def latest_of(registry: Registry) -> list[SchemaStored]:
    """Return the newest version of every subject that has one, by name."""
    return [
        registry.subjects[subject][numbers[-1]]
        for subject in sorted(registry.subjects)
        if (numbers := registry.numbers(subject))
    ]


def version_of(stored: SchemaStored) -> SubjectVersion:
    """Convert a stored version for plans and searches."""
    return SubjectVersion(
        stored.version,
        stored.schema,
        stored.schema_type,
        tuple(stored.references),
        stored.metadata,
        stored.schema_id,
        stored.deleted,
    )
