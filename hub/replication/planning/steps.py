"""[core] Steps of a mirror plan, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import orjson

from hub.log import TopicDescription
from hub.record import NewRecord, Positions
from hub.replication.maps.checkpoint import CONTROL_TOPIC
from hub.replication.planning.schema_plan import (
    DeleteSchema,
    ImportSchema,
    RegisterTargetSchema,
    RegistrySide,
    SetSubject,
    SyncedSubject,
)

Operation = str


PatternType = Literal["LITERAL", "PREFIXED"]


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One access rule in Kafka's terms. ``name`` "*" with LITERAL means every resource of its kind."""

    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Literal["ALLOW", "DENY"]
    resource: Literal["TOPIC", "TRANSACTIONAL_ID", "CLUSTER"] = "TOPIC"

    def holds_for(self, topic: str) -> bool:
        """Return whether the rule applies to a topic."""
        return self.resource == "TOPIC" and self.covers(topic)

    def covers(self, name: str) -> bool:
        """Return whether the rule covers a resource of its kind with this name."""
        if self.pattern == "PREFIXED":
            return name.startswith(self.name)
        return self.name in ("*", name)


@dataclass(frozen=True, slots=True)
class SyncedTopic:
    """Last synced state of one topic: the settings of the source, and the copied rules."""

    mirror: str
    topic: str
    config: Mapping[str, str]
    acls: frozenset[Acl] = frozenset()

    def record(self) -> NewRecord:
        rules = [
            [a.name, a.pattern, a.principal, a.host, a.operation, a.permission] for a in sorted(self.acls)
        ]
        body = {"config": dict(self.config), "acls": rules}
        return NewRecord(CONTROL_TOPIC, f"synced|{self.mirror}|{self.topic}".encode(), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class CreateTargetTopic:
    topic: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]

    def __str__(self) -> str:
        settings = "".join(f", {key}={value}" for key, value in sorted(self.config.items()))
        return (
            f"+ topic {self.topic}  partitions={self.partitions}, "
            f"replication={self.replication_factor}{settings}"
        )


@dataclass(frozen=True, slots=True)
class AddTargetPartitions:
    topic: str
    now: int
    total: int

    def __str__(self) -> str:
        return f"~ topic {self.topic}  partitions {self.now} -> {self.total}"


@dataclass(frozen=True, slots=True)
class AlterTargetConfig:
    """Change of settings. ``changes``: key to (present value, new value); None is the cluster's default."""

    topic: str
    changes: Mapping[str, tuple[str | None, str | None]]

    def __str__(self) -> str:
        parts = ", ".join(
            f"{key} {old or 'default'} -> {new or 'default'}" for key, (old, new) in self.changes.items()
        )
        return f"~ topic {self.topic}  {parts}"


@dataclass(frozen=True, slots=True)
class AlterAcls:
    topic: str
    add: tuple[Acl, ...]
    remove: tuple[Acl, ...]

    def __str__(self) -> str:
        parts = [f"+{a.principal} {a.operation}" for a in self.add] + [
            f"-{a.principal} {a.operation}" for a in self.remove
        ]
        return f"~ acls {self.topic}  {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class NewGeneration:
    """The source's topic was recreated: its records follow those of the former one, with a separate map."""

    topic: str
    old_id: str
    new_id: str
    generation: int

    def __str__(self) -> str:
        return (
            f"~ topic {self.topic}  generation {self.generation}: made again at the source, appended "
            "at the target"
        )


@dataclass(frozen=True, slots=True)
class Remember:
    """Record what is synced now: the third side of the next diff."""

    topic: str
    synced: SyncedTopic | SyncedSubject

    def __str__(self) -> str:
        return f"= topic {self.topic}  remembered as synced"


Step = (
    ImportSchema
    | RegisterTargetSchema
    | DeleteSchema
    | SetSubject
    | CreateTargetTopic
    | AddTargetPartitions
    | AlterTargetConfig
    | AlterAcls
    | NewGeneration
    | Remember
)


@dataclass(frozen=True, slots=True)
class ClusterSide:
    """State of one cluster. ``topics`` have their own settings, ``defaults`` the values of unset ones.

    ``checks_access`` False: the cluster has no authorizer. ``registry``: content of its registry's default
    context; None where there is no registry. ``begins`` and ``ends``: offsets of the topics in question,
    uncommitted records included. ``refused``: topics that the mirror's user may not describe. ``void``:
    topics that were read through and have no committed record, whatever their offsets. ``former``: by topic,
    the other name under which the cluster has the copy of its checkpoint, since `rename` was changed.
    """

    topics: Mapping[str, TopicDescription]
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    brokers: int = 1
    begins: Positions = field(default_factory=Positions)
    ends: Positions = field(default_factory=Positions)
    acls: frozenset[Acl] = frozenset()
    checks_access: bool = True
    registry: RegistrySide | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    void: frozenset[str] = frozenset()
    former: Mapping[str, str] = field(default_factory=dict)

    def effective(self, topic: str, key: str) -> str | None:
        description = self.topics.get(topic)
        return (
            self.defaults.get(key)
            if description is None
            else description.config.get(key, self.defaults.get(key))
        )
