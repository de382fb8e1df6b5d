"""[core] Schema plan: which subjects a mirror carries, and the steps that make the target's registry equal to
the source's.

Subjects are found by the names that Confluent's serializers give them: after a topic (TopicName,
TopicRecordName), or after a record alone (RecordName). A record's subject may be used by any topic, so all of
those are carried unless the file limits them (``record_subjects``). Everything that a subject refers to is
carried, too. Contexts other than the default one are not: a record does not show what their ids mean.

Ids are kept where they are free at the target. Where the target's registry has given one to another schema,
which is common for two hubs that both count from 1, the topic's records get the target's ids (``schema_ids:
auto``, the default).

States of versions and settings follow the source, three-way as topics do: changes by a person at the target
since the last synchronization stay and are reported. A version that was deleted only at the target is
restored only for subjects that are named after a mirrored topic, because those have one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.record import NewRecord, Record
from hub.replication.config.mirrors import Mirror
from hub.replication.maps.checkpoint import CONTROL_TOPIC, not_ours
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model import subjects
from hub.schema_registry.model.facts import Reference
from hub.topics.tree.steps import Caution
from hub.topics.tree.tree import matches

_CARRIED_MODES = ("READONLY", "READONLY_OVERRIDE")  # other modes are temporary states of a migration


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject with the id that records carry; ``text`` as the registry returns it.
    ``references``: the versions of other subjects that it takes types from. ``metadata`` and ``rule_set``:
    JSON text, "" for none. ``deleted``: softly.
    """

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    deleted: bool = False
    metadata: str = ""
    rule_set: str = ""

    @property
    def meaning(self) -> tuple[str, bytes]:
        """Type and text, without insignificant spaces; equal for equal schemas."""
        try:
            return self.kind, orjson.dumps(orjson.loads(self.text))
        except ValueError:
            return self.kind, self.text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class SubjectSettings:
    """Settings of a subject itself, as JSON text with sorted keys ("" for none), and its mode."""

    settings: str = ""
    mode: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, Any], mode: str | None) -> SubjectSettings:
        text = orjson.dumps(dict(settings), option=orjson.OPT_SORT_KEYS).decode() if settings else ""
        return cls(text, mode if mode in _CARRIED_MODES else "")

    def __str__(self) -> str:
        parts = [
            f"{key} {value}" for key, value in (orjson.loads(self.settings) if self.settings else {}).items()
        ]
        parts += [f"mode {self.mode}"] if self.mode else []
        return ", ".join(parts) or "none"


@dataclass(frozen=True, slots=True)
class RegistrySide:
    """The default context of one registry. ``settings``: of subjects that have their own. ``level``: of all
    others.
    """

    versions: tuple[SchemaVersion, ...] = ()
    settings: Mapping[str, SubjectSettings] = field(default_factory=dict)
    level: str = ""


@dataclass(frozen=True, slots=True)
class SyncedSubject:
    """Last synced settings of a subject: the third side of the next comparison."""

    mirror: str
    subject: str
    settings: SubjectSettings

    def record(self) -> NewRecord:
        body = {"settings": self.settings.settings, "mode": self.settings.mode}
        return NewRecord(CONTROL_TOPIC, f"subject|{self.mirror}|{self.subject}".encode(), orjson.dumps(body))


def synced_subject_of(record: Record) -> SyncedSubject | None:
    """Parse the result of ``record``; None for other kinds. Raises HubFault (HUB-5603)."""
    if record.key is None or record.value is None or not record.key.startswith(b"subject|"):
        return None
    try:
        _, mirror, subject = record.key.decode().split("|", 2)
        body: dict[str, Any] = orjson.loads(record.value)
        return SyncedSubject(mirror, subject, SubjectSettings(body["settings"], body["mode"]))
    except (ValueError, TypeError, KeyError) as error:
        raise not_ours(record, repr(error)) from None


# ---- steps


@dataclass(frozen=True, slots=True)
class ImportSchema:
    """Store a version with its id, which needs the registry's IMPORT mode for a moment."""

    topic: str
    schema: SchemaVersion

    def __str__(self) -> str:
        return f"+ schema {self.schema.subject} v{self.schema.version}  id={self.schema.id}"


@dataclass(frozen=True, slots=True)
class RegisterTargetSchema:
    """Register a schema at the target with an id of its registry."""

    topic: str
    schema: SchemaVersion

    def __str__(self) -> str:
        return f"+ schema {self.schema.subject} v{self.schema.version}  with an id of the target's"


@dataclass(frozen=True, slots=True)
class DeleteSchema:
    """Delete a version softly, as it is at the source: its id keeps its schema."""

    topic: str
    subject: str
    version: int

    def __str__(self) -> str:
        return f"- schema {self.subject} v{self.version}  deleted softly, as at the source"


@dataclass(frozen=True, slots=True)
class SetSubject:
    """Give a subject the source's settings and mode, and record them as synced."""

    topic: str
    synced: SyncedSubject
    before: SubjectSettings

    def __str__(self) -> str:
        return f"~ subject {self.synced.subject}  {self.before} -> {self.synced.settings}"


SchemaStep = ImportSchema | RegisterTargetSchema | DeleteSchema | SetSubject


# ---- selection of subjects


def topic_of(subject: str, topics: frozenset[str]) -> str | None:
    """Return the topic that a subject is named after; None: it is named after a record alone. ``topics``:
    those that exist.
    """
    found = subjects.split(subject, topics)
    if found.topic in topics or subject.endswith(("-value", "-key")):
        return found.topic
    return None


def is_carried(subject: str, mirror: Mirror, carried: Iterable[str], topics: frozenset[str]) -> bool:
    """Return whether a mirror that carries these of the source's ``topics`` carries a subject, by
    its name.
    """
    if names.context_of(subject) != names.DEFAULT_CONTEXT:
        return False
    topic = topic_of(subject, topics)
    if topic is None:
        return any(matches(pattern, subject) for pattern in mirror.record_subjects)
    return topic in carried


@dataclass(frozen=True, slots=True)
class RegistryVersions:
    """The versions of one registry: by topic, and those that are named after a record alone."""

    by_topic: Mapping[str, tuple[SchemaVersion, ...]]
    of_records: tuple[SchemaVersion, ...]
    every: Mapping[tuple[str, int], SchemaVersion]

    def of(self, topic: str) -> tuple[SchemaVersion, ...]:
        return self.by_topic.get(topic, ())

    def with_references(self, wanted: Iterable[SchemaVersion]) -> tuple[SchemaVersion, ...]:
        """Return each version after all that it refers to: a registry rejects a version whose references it
        lacks.
        """
        made: dict[tuple[str, int], SchemaVersion] = {}
        begun: set[tuple[str, int]] = set()

        def take(place: tuple[str, int]) -> None:
            if place in self.every and place not in begun:
                begun.add(place)
                for each in self.every[place].references:
                    take((each.subject, each.version))
                made[place] = self.every[place]

        for each in wanted:
            take((each.subject, each.version))
        return tuple(made.values())


def found_in(
    versions: Iterable[SchemaVersion], mirror: Mirror, carried: Iterable[str], topics: frozenset[str]
) -> RegistryVersions:
    """Return the versions that a mirror carries, grouped by topic; ``topics``: those that exist at the
    source.
    """
    wanted, by_topic = frozenset(carried), dict[str, list[SchemaVersion]]()
    of_records: list[SchemaVersion] = []
    every = sorted(versions, key=lambda each: (each.subject, each.version))
    for each in every:
        if is_carried(each.subject, mirror, wanted, topics):
            topic = topic_of(each.subject, topics)
            (of_records if topic is None else by_topic.setdefault(topic, [])).append(each)
    return RegistryVersions(
        {topic: tuple(of) for topic, of in by_topic.items()},
        tuple(of_records),
        {(each.subject, each.version): each for each in every},
    )


# ---- ids


@dataclass(frozen=True, slots=True)
class Collision:
    """A schema that cannot have its id, or its version, at the target."""

    schema: SchemaVersion
    other: SchemaVersion

    @property
    def reason(self) -> str:
        mine, other = self.schema, self.other
        if mine.id == other.id:
            return (
                f"schema id {mine.id} is {mine.subject} v{mine.version} at the source and another schema"
                f" ({other.subject} v{other.version}) at the target"
            )
        return f"{mine.subject} v{mine.version} has id {mine.id} at the source and {other.id} at the target"


def collisions_of(wanted: Iterable[SchemaVersion], target: Iterable[SchemaVersion]) -> Iterator[Collision]:
    """Yield the schemas whose ids or versions mean something else in the target's registry, whatever subject
    has them.
    """
    there = tuple(target)
    ids = {each.id: each for each in there}
    versions = {(each.subject, each.version): each for each in there}
    for each in wanted:
        other = ids.get(each.id)
        if other is not None and other.meaning != each.meaning:
            yield Collision(each, other)
            continue
        taken = versions.get((each.subject, each.version))
        if taken is not None and taken.id != each.id:
            yield Collision(each, taken)


# ---- steps of the plan


def preserving_steps(
    topic: str, wanted: Iterable[SchemaVersion], target: Iterable[SchemaVersion], *, owned: frozenset[str]
) -> Iterator[SchemaStep]:
    """Yield steps that give the target versions with their ids, then their soft deletions, users before the
    versions they use. ``owned``: subjects in which a version that only the target deleted is restored.
    """
    there = {(each.subject, each.version): each for each in target}
    every = tuple(wanted)
    for each in every:
        schema_version = there.get((each.subject, each.version))
        revived = (
            schema_version is not None
            and schema_version.deleted
            and not each.deleted
            and each.subject in owned
        )
        if schema_version is None or revived:
            yield ImportSchema(topic, each)
    for each in reversed(every):
        schema_version = there.get((each.subject, each.version))
        if each.deleted and (schema_version is None or not schema_version.deleted):
            yield DeleteSchema(topic, each.subject, each.version)


def own_id_steps(
    topic: str, wanted: Iterable[SchemaVersion], target: Iterable[SchemaVersion]
) -> Iterator[SchemaStep]:
    """Yield steps for a topic whose records get the target's ids. A deleted version is registered only when a
    record needs it, and then deleted again.
    """
    there: dict[tuple[str, tuple[str, bytes]], list[SchemaVersion]] = {}
    for each in target:
        there.setdefault((each.subject, each.meaning), []).append(each)
    every = tuple(wanted)
    live = {(each.subject, each.meaning) for each in every if not each.deleted}
    for each in every:
        place = each.subject, each.meaning
        schema_versions = there.get(place, [])
        if not each.deleted and not any(not one.deleted for one in schema_versions):
            yield RegisterTargetSchema(topic, each)
        elif each.deleted and place not in live:
            yield from (
                DeleteSchema(topic, one.subject, one.version) for one in schema_versions if not one.deleted
            )


def settings_steps(
    link: str,
    topic: str,
    wanted: Iterable[str],
    source: RegistrySide,
    target: RegistrySide,
    synced: Mapping[str, SyncedSubject],
    *,
    owned: bool,
) -> tuple[list[SetSubject], list[Caution], list[SyncedSubject]]:
    """Return (steps, cautions, equal settings that only need to be recorded) for the settings of subjects.
    ``owned``: without a former synchronization the source's win; else, where both sides have their own, both
    stay.
    """
    steps: list[SetSubject] = []
    cautions: list[Caution] = []
    remembered: list[SyncedSubject] = []
    none = SubjectSettings()
    for subject in wanted:
        mine, theirs = source.settings.get(subject, none), target.settings.get(subject, none)
        last = synced[subject].settings if subject in synced else None
        now = SyncedSubject(link, subject, mine)
        if mine == theirs:
            if last != mine and (mine != none or last is not None):
                remembered.append(now)
        elif (mine == last) or (last is None and (mine == none or (not owned and theirs != none))):
            if mine != none or last is not None:
                cautions.append(
                    Caution(
                        topic,
                        f"settings of subject {subject} are {theirs} at the target and {mine} "
                        "at the source: left so",
                        "change them at the source to have them everywhere",
                    )
                )
        else:
            steps.append(SetSubject(topic, now, theirs))
    return steps, cautions, remembered


def level_caution(source: RegistrySide, target: RegistrySide) -> Caution | None:
    """Return a caution if subjects without their own settings have another compatibility level at
    the target.
    """
    if not source.level or not target.level or source.level == target.level:
        return None
    return Caution(
        "*",
        f"subjects without a compatibility level of their own have {source.level} at the source and "
        f"{target.level} at the target",
        "make the registries' default levels equal, or set the subjects' own",
    )
