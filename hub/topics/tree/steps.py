"""[core] Steps of a plan for the tree of topics, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hub.topics.tree.tree import TopicSpec


@dataclass(frozen=True, slots=True)
class CreateTopic:
    topic: TopicSpec

    def __str__(self) -> str:
        settings = "".join(f", {key}={value}" for key, value in self.topic.config.items())
        return f"+ topic {self.topic.name}  partitions={self.topic.partitions}{settings}"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    topic: TopicSpec
    now: int

    def __str__(self) -> str:
        moved = "keys move: events of one key are in order before and after, not across"
        return f"~ topic {self.topic.name}  partitions {self.now} -> {self.topic.partitions} ({moved})"


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Change of topic settings. ``changes`` maps a key to (current value, new value); None is the cluster's
    default.
    """

    topic: TopicSpec
    changes: Mapping[str, tuple[str | None, str | None]]

    def __str__(self) -> str:
        changes = ", ".join(
            f"{key} {old or 'default'} -> {new or 'default'}" for key, (old, new) in self.changes.items()
        )
        return f"~ topic {self.topic.name}  {changes}"


@dataclass(frozen=True, slots=True)
class SetCompatibility:
    topic: TopicSpec
    level: str
    now: str

    def __str__(self) -> str:
        return f"~ subject {self.topic.subject}  compatibility {self.now} -> {self.level}"


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    topic: TopicSpec
    schema: str
    new: bool

    def __str__(self) -> str:
        return (
            f"{'+' if self.new else '~'} subject {self.topic.subject}  "
            f"{'first' if self.new else 'next'} version"
        )


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Deletion of a topic with its events. Its subject stays."""

    name: str

    def __str__(self) -> str:
        return f"- topic {self.name}  with all its events"


Step = CreateTopic | AddPartitions | AlterConfig | SetCompatibility | RegisterSchema | DeleteTopic


Right = Literal["tree", "cluster", "decide"]


@dataclass(frozen=True, slots=True)
class TreeRefusal:
    """A change that the plan refuses, and how to fix it.

    ``setting`` is the setting concerned; ``wanted`` and ``found`` are its values in the tree and in the
    cluster, if any. ``right`` is the side that can stay as it is ("decide": a person has to choose).
    """

    topic: str
    reason: str
    hint: str
    setting: str = ""
    wanted: str | None = None
    found: str | None = None
    right: Right = "decide"

    def __str__(self) -> str:
        return f'✗ topic "{self.topic}": {self.reason}\n  Hint: {self.hint}'


@dataclass(frozen=True, slots=True)
class Caution:
    """Warning about an effect of the plan or an existing condition, and how to fix it."""

    topic: str
    reason: str
    hint: str

    def __str__(self) -> str:
        return f'! topic "{self.topic}": {self.reason}\n  Hint: {self.hint}'
