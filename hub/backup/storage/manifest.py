"""[core] Manifest: everything that one run of a backup has, and its JSON. Positions are next-to-read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from hub.errors import PeerError
from hub.record import TopicPartition
from hub.replication.planning.schema_plan import RegistrySide, SchemaVersion, SubjectSettings
from hub.schema_registry.model.facts import Reference


class UnreadableBackup(PeerError):
    """An object of a backup is missing, was changed, or cannot be decoded."""

    code = "HUB-3801"
    retriable = False


@dataclass(frozen=True, slots=True)
class SavedSegment:
    """One object with the record batches of offsets [first, next) of a partition.

    ``raw_bytes``: size of the batches; ``stored_bytes`` and ``digest`` (SHA-256, hex): of the object.
    ``newest_ms``: largest timestamp, -1: unknown. ``taken_at_ms``: all records were appended before this
    time.
    """

    name: str
    first: int
    next: int
    records: int
    raw_bytes: int
    stored_bytes: int
    digest: str
    newest_ms: int
    taken_at_ms: int


@dataclass(frozen=True, slots=True)
class SavedPartition:
    """Offsets [start, next) of one partition. ``gaps``: ranges that the cluster had deleted before they were
    read. ``read_at_ms``: when the run began that last read it to its end; 0: not yet.
    """

    start: int
    next: int
    segments: tuple[SavedSegment, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    read_at_ms: int = 0

    @property
    def end(self) -> int:
        """Position after the last saved record."""
        return self.segments[-1].next if self.segments else self.start


@dataclass(frozen=True, slots=True)
class SavedTopic:
    """A topic as the cluster had it. ``config``: settings that differ from the cluster's defaults."""

    name: str
    topic_id: str
    replication_factor: int
    config: Mapping[str, str]
    partitions: tuple[SavedPartition, ...]

    @property
    def records(self) -> int:
        return sum(segment.records for each in self.partitions for segment in each.segments)


@dataclass(frozen=True, slots=True)
class Manifest:
    """State of a backup after run ``number``. ``registry`` None: schemas were not saved.

    ``groups``: committed positions by group. ``files``: the project's definitions, text by path.
    ``rules``: access rules (ACLs), as fields of ``AccessRule``; None: not saved, or the cluster has no
    authorizer. ``complete`` False: the run has not ended.
    """

    number: int
    taken_at_ms: int
    ended_at_ms: int = 0
    topics: Mapping[str, SavedTopic] = field(default_factory=dict)
    groups: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    registry: RegistrySide | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Mapping[str, str], ...] | None = None
    complete: bool = False

    def segments(self) -> Iterator[tuple[TopicPartition, SavedSegment]]:
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                for segment in partition.segments:
                    yield TopicPartition(topic.name, number), segment

    @property
    def records(self) -> int:
        return sum(segment.records for _, segment in self.segments())

    @property
    def stored_bytes(self) -> int:
        return sum(segment.stored_bytes for _, segment in self.segments())

    def to_json(self) -> bytes:
        body = asdict(self)
        body["groups"] = {
            group: [[*tp, offset] for tp, offset in sorted(positions.items())]
            for group, positions in self.groups.items()
        }
        return orjson.dumps(body)


def manifest_of(text: bytes, name: str) -> Manifest:
    """Parse the result of ``to_json``. ``name``: of the object, for messages. Raises UnreadableBackup."""
    try:
        body: dict[str, Any] = orjson.loads(text)
        body["topics"] = {key: _topic(each) for key, each in body["topics"].items()}
        body["groups"] = {
            group: {TopicPartition(topic, number): offset for topic, number, offset in positions}
            for group, positions in body["groups"].items()
        }
        body["registry"] = None if body["registry"] is None else _registry(body["registry"])
        body["rules"] = None if body.get("rules") is None else tuple(body["rules"])
        return Manifest(**body)
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableBackup(
            f'backup object "{name}" is not a manifest of this version ({error!r})',
            hint="a newer hub wrote it, or it was changed: restore an earlier run with --run",
        ) from None


def _topic(body: dict[str, Any]) -> SavedTopic:
    partitions = tuple(_partition(each) for each in body.pop("partitions"))
    return SavedTopic(**body, partitions=partitions)


def _partition(body: dict[str, Any]) -> SavedPartition:
    segments = tuple(SavedSegment(**each) for each in body.pop("segments"))
    gaps = tuple((int(first), int(end)) for first, end in body.pop("gaps"))
    return SavedPartition(**body, segments=segments, gaps=gaps)


def _registry(body: dict[str, Any]) -> RegistrySide:
    versions = []
    for each in body["versions"]:
        references = tuple(Reference(**one) for one in each.pop("references"))
        versions.append(SchemaVersion(**each, references=references))
    settings = {name: SubjectSettings(**each) for name, each in body["settings"].items()}
    return RegistrySide(tuple(versions), settings, body["level"])
