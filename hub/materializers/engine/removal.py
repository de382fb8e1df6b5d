"""[shell] Remove the topic, subject and checkpoint of dropped versions."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field

from hub.errors import NotFound
from hub.materializers.definition.declared import changelog_of, table_of
from hub.materializers.engine.parts import EngineParts

log = logging.getLogger(__name__)

# A dropped version is removed after this delay, when its readers have switched to another version.
_REMOVE_AFTER_S = 10.0


@dataclass
class VersionRemover:
    """Removes dropped versions after ``_REMOVE_AFTER_S``, once no view reads them."""

    parts: EngineParts
    due_at_s: dict[str, float] = field(default_factory=dict)

    def step(self, read: AbstractSet[str]) -> None:
        """Remove what is due. ``read``: topics that views read now. Raises HubError; the next step tries
        again."""
        for view, state in self.parts.versions.all().items():
            for suffix in state.dropping:
                table, now_s = table_of(view, suffix), time.monotonic()
                if now_s < self.due_at_s.setdefault(table, now_s + _REMOVE_AFTER_S):
                    continue
                # next try, if it fails or another view still reads it
                self.due_at_s[table] = now_s + _REMOVE_AFTER_S
                if changelog_of(table) in read:
                    continue
                self._remove(view, suffix)
                del self.due_at_s[table]

    def _remove(self, view: str, suffix: int | None) -> None:
        table, cluster = table_of(view, suffix), self.parts.cluster
        topic = changelog_of(table)
        shutil.rmtree(self.parts.settings.checkpoints / table, ignore_errors=True)
        if cluster.partition_counts([topic]):
            cluster.delete_topic(topic)
        with suppress(NotFound):
            self.parts.registry.delete(f"{topic}-value")
        self.parts.versions.removed(view, suffix)
        log.info("view %s: topic %s, its subject and its checkpoint removed", view, topic)
