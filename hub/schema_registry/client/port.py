"""[core] The registry as the hub's own parts use it: in process in the server, over HTTP in other processes.

``in_process.py`` implements the port on the server's own node, ``registry_client.py`` over HTTP. Both answer
"unknown" only after a node has read its log to the end that it had at the time of the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hub.schema_registry.compat.resolved_schema import SchemaSource


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a subject; ``schema`` is its text."""

    id: int
    version: int
    schema: str
    schema_type: str = "AVRO"


class SchemaRegistry(Protocol):
    """Registry operations of the hub's own parts. Thread safe.

    Each method raises NotFound for what does not exist, Conflict and CallerError for what is refused, and
    PeerError if the registry or its log does not answer.
    """

    def subjects(self) -> list[str]:
        """Return every subject with a version that is not deleted."""

    def latest(self, subject: str) -> RegisteredSchema: ...

    def known_latest(self, subject: str) -> RegisteredSchema | None:
        """Return the latest version as this process knows it, None for none.

        In process this does not wait: a version that another node registered a moment ago may be missing.
        ``catch_up`` and a second call find it.
        """

    def catch_up(self) -> None:
        """Wait until all versions that were registered before this call are known."""

    def version(self, subject: str, version: int) -> RegisteredSchema: ...

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return every version, deleted ones included, oldest first; [] when the subject does not exist."""

    def source(self, schema_id: int) -> SchemaSource:
        """Return the schema with this id, its references, rules and metadata, ready to be parsed."""

    def subjects_of(self, schema_id: int) -> frozenset[str]:
        """Return every subject that has the schema with this id, soft-deleted ones included."""

    def compatibility(self, subject: str) -> str:
        """Return the subject's effective compatibility level."""

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema unless it is registered already; return its id."""
