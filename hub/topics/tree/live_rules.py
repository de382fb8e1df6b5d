"""[shell] The project's rules, reloaded when their files change. An invalid file keeps the previous rules."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.schema_registry.policy.policy import POLICIES_FILE, Policies, load_policies
from hub.schema_registry.registry.rulebook import Rulebook
from hub.topics.tree.tree import load
from hub.yaml import is_there

log = logging.getLogger(__name__)

TOPICS_FILE = "topics.yaml"
_LOOK_EVERY_S = 1.0


class LiveRules:
    """Call it to get the current rulebook. Thread safe. ``error`` is the reason why the current files are not
    in effect.

    The constructor raises ConfigError if the rules cannot be read: a registry without its rules would accept
    what they forbid.
    """

    def __init__(self, project: Path) -> None:
        self.error: ConfigError | None = None
        self._owners: dict[str, str] = {}
        self._files = (project / POLICIES_FILE, project / TOPICS_FILE)
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        self._stamps = self._stamped()
        self._book = self._read()

    def __call__(self) -> Rulebook:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at < _LOOK_EVERY_S:
                return self._book
            self._looked_at = now
            stamps = self._stamped()
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._book, self.error = self._read(), None
                    log.info("rules of the tree: read again")
                except ConfigError as error:
                    self.error = error
                    log.error("the rules stay as they were: %s", error)
            return self._book

    def _stamped(self) -> list[Stamp | None]:
        return [stamp_if_there(path) for path in self._files]

    def _read(self) -> Rulebook:
        policies, topics = self._files
        try:
            self._owners = (
                {topic.name: topic.owner for topic in load(topics).topics} if is_there(topics) else {}
            )
        except ConfigError as error:  # hub topic plan reports the error; the previous owners stay in effect
            log.warning("owners of topics could not be updated: %s", error)
        owners = self._owners
        found = load_policies(policies, owners) if is_there(policies) else Policies(topics=owners)
        return Rulebook(found, owners)
