"""[shell] The port on the server's own registry node: the same answers as over HTTP, from memory.

A version is known the moment that this node has registered it. What is not found here may have been
registered on another node, so the node reads its log to the end before it answers "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hub.errors import CallerError, Conflict, HubError, NotFound
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.registry.across_contexts import version_anywhere
from hub.schema_registry.registry.commands import RegisterSchema
from hub.schema_registry.registry.errors import RequestRefused, subject_not_found
from hub.schema_registry.registry.state_machine import Registry
from hub.schema_registry.server.node import RegistryNode

T = TypeVar("T")


class InProcessRegistry:
    """``port.SchemaRegistry`` on a registry node. Asks for no permission: the hub itself is the caller."""

    def __init__(self, node: RegistryNode) -> None:
        self.node = node

    def subjects(self) -> list[str]:
        return self._read(lambda registry: sorted(each for each in registry.subjects if registry.live(each)))

    def latest(self, subject: str) -> RegisteredSchema:
        return self._find(lambda registry: _version(registry, subject, "latest"))

    def known_latest(self, subject: str) -> RegisteredSchema | None:
        try:
            return self.node.read(lambda registry: _version(registry, subject, "latest"))
        except RequestRefused as refused:
            if refused.is_missing:
                return None
            raise _translated(refused) from None

    def catch_up(self) -> None:
        for _ in self.node.catching_up():
            pass

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return self._find(lambda registry: _version(registry, subject, version))

    def versions(self, subject: str) -> list[RegisteredSchema]:
        def every(registry: Registry) -> list[RegisteredSchema]:
            target = registry.target(names.normal(subject))
            numbers = registry.numbers(target, deleted=True)
            if not numbers:
                raise subject_not_found(target)
            return [_registered(registry.subjects[target][number]) for number in numbers]

        try:
            return self._find(every)
        except NotFound:
            return []

    def source(self, schema_id: int) -> SchemaSource:
        def read_source(registry: Registry) -> SchemaSource:
            stored = registry.by_id(schema_id)
            return replace(registry.source_of(stored), rule_set=stored.rule_set, metadata=stored.metadata)

        return self._find(read_source)

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        def read_subjects(registry: Registry) -> frozenset[str]:
            registry.by_id(schema_id)
            return frozenset(each.subject for each in registry.uses_of(schema_id, deleted=True))

        return self._find(read_subjects)

    def compatibility(self, subject: str) -> str:
        return self._read(lambda registry: registry.level_of(names.place(subject)))

    def register(self, subject: str, schema: str) -> int:
        try:
            stored, _ = self.node.submit(RegisterSchema(names.normal(subject), schema))
        except RequestRefused as refused:
            raise _translated(refused) from None
        assert isinstance(stored, SchemaStored)
        return stored.schema_id

    def _read(self, question: Callable[[Registry], T]) -> T:
        try:
            return self.node.read(question)
        except RequestRefused as refused:
            raise _translated(refused) from None

    def _find(self, question: Callable[[Registry], T]) -> T:
        """Run a query, and again while the node catches up if something does not exist."""
        try:
            return self.node.caught_up(lambda: self.node.read(question))
        except RequestRefused as refused:
            raise _translated(refused) from None


def _version(registry: Registry, subject: str, version: int | str) -> RegisteredSchema:
    target = registry.target(names.normal(subject))
    return _registered(version_anywhere(registry, target, version))


def _registered(stored: SchemaStored) -> RegisteredSchema:
    return RegisteredSchema(stored.schema_id, stored.version, stored.schema, stored.schema_type)


def _translated(refused: RequestRefused) -> HubError:
    """Return the error that the HTTP client raises for the same refusal."""
    message = f"schema registry: {refused.message}"
    if refused.status == 404:
        return NotFound(message)
    if refused.status == 409:
        return Conflict(message, hint="make the change compatible, or change the level")
    return CallerError(message)
