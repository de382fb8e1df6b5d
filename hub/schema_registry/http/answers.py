"""[edge] Shared parts of all routes: the node, cached bytes, and the caller's visibility."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hub.caller import CALLER, sees_subject
from hub.schema_registry.http.asgi import HttpAnswer, HttpCall, Ready
from hub.schema_registry.http.bodies import schema
from hub.schema_registry.http.calls import is_named
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.model.lru_cache import LruCache
from hub.schema_registry.registry.state_machine import Command, schema_not_found
from hub.schema_registry.server.node import RegistryNode

_MOST_READY_BYTES = 64 * 1_048_576
# An id's schema never changes; a version or "latest" may change at any time and must be requested again.
FOR_EVER = b"max-age=86400, immutable"
ASK_AGAIN = b"no-cache"


class Answers:
    """Answers of one node."""

    def __init__(self, node: RegistryNode) -> None:
        self.node = node
        self._ready: LruCache[tuple[str, object], tuple[SchemaStored, Ready]] = LruCache(_MOST_READY_BYTES)

    def visible_schema(self, stored: SchemaStored, requested: object) -> SchemaStored:
        """Return the schema of an id under a subject that the caller may see.

        Raises RequestRefused 40403, as for an unknown id, when there is none, so that the caller does not
        learn that it exists. ``requested``: the id or GUID of the request.
        """
        if CALLER.get() is None or sees_subject(stored.subject):
            return stored
        around = names.joined(names.context_of(stored.subject), "")
        uses = self.node.read(
            lambda registry: registry.uses_of(stored.schema_id, subject=around or None, deleted=True)
        )
        for each in uses:
            if sees_subject(each.subject):
                return each
        raise schema_not_found(requested)

    def submit(self, command: Command, render: Callable[[Any], Any] = lambda answer: answer) -> HttpAnswer:
        """Carry out a command and answer with its result."""
        answer, position = self.node.submit(command)
        return HttpAnswer.of(render(answer), position=position)

    def subject(self, call: HttpCall) -> str:
        """Return the subject of a path, normalized, with an alias replaced by its subject."""
        subject = names.normal(call.params[0])
        return self.node.registry.target(subject) if self.node.registry.levels else subject

    def text(self, call: HttpCall, stored: SchemaStored) -> str:
        """Return the schema in the requested format."""
        return self.node.formatted(stored, call.text("format"))

    def by_id(self, call: HttpCall, schema_id: int, subject: str | None) -> HttpAnswer:
        """Answer with the schema of an id."""
        stored = self.visible_schema(
            self.node.read(lambda registry: registry.by_id(schema_id, subject)), schema_id
        )
        if is_named(subject):
            return HttpAnswer.of(schema(stored, with_place=True))
        key = ("id", (names.context_of(stored.subject), schema_id))
        return self.cached_answer(key, stored, schema).answer(call, FOR_EVER)

    def cached_answer(
        self, key: tuple[str, object], stored: SchemaStored, render: Callable[[SchemaStored], Any]
    ) -> Ready:
        """Return the cached bytes of an answer, valid while the version is the same object."""
        found = self._ready.get(key)
        if found is not None and found[0] is stored:
            return found[1]
        ready = Ready.of(render(stored))
        self._ready.put(key, (stored, ready), len(ready.body) + 500)
        return ready
