"""[core] The registry as a state machine: ``decide`` answers a command with facts, ``apply`` alone changes state.

Rules
  1. One schema text (with its references) has one id, in whatever subjects it is registered.
  2. Ids count up from 1; an id once given is never given again, also after a hard delete.
  3. The first binding of an id holds; a later record that binds it to another text is reported and ignored.
  4. Versions of a subject count up and are never given again while the subject has any record.
  5. Soft-deleted versions do not bind compatibility; they can be read with ``deleted=true`` and by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hub.errors import CallerError
from hub.schema_registry.compatibility import LEVELS, Incompatibility, check
from hub.schema_registry.facts import (
    Fact,
    LevelSet,
    ModeSet,
    Nothing,
    Reference,
    SchemaErased,
    SchemaStored,
    SubjectDeleted,
    Unreadable,
)
from hub.schema_registry.formats import InvalidSchema, avro

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"


class Refused(CallerError):
    """A request that Confluent's registry answers with (status, error_code)."""

    def __init__(self, status: int, error_code: int, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, code=f"HUB-12{error_code % 100:02d}")
        self.status = status
        self.error_code = error_code


def subject_not_found(subject: str) -> Refused:
    return Refused(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> Refused:
    return Refused(404, 40402, f"Version {version} not found.")


def schema_not_found(schema_id: object = None) -> Refused:
    return Refused(
        404, 40403, f"Schema {schema_id} not found" if schema_id is not None else "Schema not found"
    )


@dataclass(frozen=True, slots=True)
class RegisterSchema:
    subject: str
    schema: str
    schema_type: str = "AVRO"
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeleteVersion:
    subject: str
    version: int | str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSubject:
    subject: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class SetLevel:
    subject: str | None
    level: str | None


@dataclass(frozen=True, slots=True)
class SetMode:
    subject: str | None
    mode: str | None


Command = RegisterSchema | DeleteVersion | DeleteSubject | SetLevel | SetMode


class Decision(NamedTuple):
    """What to append ([] when nothing changes) and what to answer once that is read back."""

    facts: Sequence[Fact]
    answer: Any


@dataclass
class Registry:
    """The state: everything that ``_schemas`` says, in memory."""

    subjects: dict[str, dict[int, SchemaStored]] = field(default_factory=dict)
    ids: dict[int, SchemaStored] = field(default_factory=dict)
    by_text: dict[tuple[str, tuple[Reference, ...], str], int] = field(default_factory=dict)
    levels: dict[str | None, LevelSet] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)
    highest_id: int = 0
    conflicts: list[str] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)

    # ---- apply: live and on replay

    def apply(self, fact: Fact) -> None:
        """Take one fact in. Total: whatever the log says, the state stays consistent."""
        match fact:
            case SchemaStored():
                self._store(fact)
            case SchemaErased():
                self._erase(fact)
            case SubjectDeleted():
                for version, stored in self.subjects.get(fact.subject, {}).items():
                    if version <= fact.version and not stored.deleted:
                        self.subjects[fact.subject][version] = _deleted(stored)
            case LevelSet():
                self._set(self.levels, fact.subject, fact if fact.level is not None or fact.more else None)
            case ModeSet():
                self._set(self.modes, fact.subject, fact.mode)
            case Unreadable():
                self.unreadable.append(fact)
            case Nothing():
                pass

    def _store(self, fact: SchemaStored) -> None:
        self.highest_id = max(self.highest_id, fact.schema_id)
        bound = self.ids.get(fact.schema_id)
        if bound is not None and (bound.schema, bound.references) != (fact.schema, fact.references):
            self.conflicts.append(
                f"id {fact.schema_id} is {bound.subject} version {bound.version}; "
                f"{fact.subject} version {fact.version} claims it too and is ignored"
            )
            return
        self.ids.setdefault(fact.schema_id, fact)
        self.by_text.setdefault((fact.schema_type, fact.references, fact.schema), fact.schema_id)
        self.subjects.setdefault(fact.subject, {})[fact.version] = fact

    def _erase(self, fact: SchemaErased) -> None:
        versions = self.subjects.get(fact.subject, {})
        stored = versions.pop(fact.version, None)
        if not versions:
            self.subjects.pop(fact.subject, None)
        if stored is not None and not self.uses_of(stored.schema_id, deleted=True):
            self.ids.pop(stored.schema_id, None)
            self.by_text.pop((stored.schema_type, stored.references, stored.schema), None)

    @staticmethod
    def _set(into: dict[Any, Any], key: str | None, value: Any) -> None:
        if value is None:
            into.pop(key, None)
        else:
            into[key] = value

    # ---- decide: pure, on a state that is caught up

    def decide(self, command: Command) -> Decision:
        """The facts that carry a command out and its answer. Raises Refused."""
        match command:
            case RegisterSchema():
                return self._register(command)
            case DeleteVersion():
                return self._delete_version(command)
            case DeleteSubject():
                return self._delete_subject(command)
            case SetLevel():
                if command.level is not None and command.level not in LEVELS:
                    raise Refused(
                        422,
                        42203,
                        "Invalid compatibility level. Valid values are none, backward, forward, full, "
                        "backward_transitive, forward_transitive, and full_transitive",
                    )
                if (
                    command.level is None
                    and command.subject is not None
                    and command.subject not in self.levels
                ):
                    raise subject_not_found(command.subject)
                return Decision([LevelSet(command.subject, command.level)], self.level_of(command.subject))
            case SetMode():
                if command.mode is not None and command.mode not in ("READWRITE", "READONLY", "IMPORT"):
                    raise Refused(422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT")
                return Decision([ModeSet(command.subject, command.mode)], self.mode_of(command.subject))

    def _register(self, command: RegisterSchema) -> Decision:
        self._writable(command.subject)
        if not command.subject or len(command.subject) > 256:
            raise Refused(422, 42208, f"The specified subject '{command.subject[:80]}' is not a valid.")
        parsed, text = self.parsed(command.schema, command.schema_type, command.references)
        known = self.find(command.subject, text, command.schema_type, command.references)
        same = command.metadata is None or (known is not None and known.metadata == command.metadata)
        if known is not None and same:
            return Decision([], known)
        versions = self.live(command.subject)
        earlier = [
            (each.version, self.parsed(each.schema, each.schema_type, each.references)[0])
            for each in versions
        ]
        reasons = check(parsed, earlier, self.level_of(command.subject), self.named(command.references))
        if reasons:
            raise Refused(
                409,
                40901,
                f"Schema being registered is incompatible with an earlier schema for subject "
                f'"{command.subject}", details: [{"; ".join(map(str, reasons))}], '
                f"compatibility: {self.level_of(command.subject)}",
            )
        schema_id = self.by_text.get((command.schema_type, command.references, text), self.highest_id + 1)
        stored = SchemaStored(
            command.subject,
            max(self.subjects.get(command.subject, {0: None})) + 1,
            schema_id,
            text,
            command.schema_type,
            command.references,
            False,
            command.metadata,
            command.rule_set,
        )
        return Decision([stored], stored)

    def _delete_version(self, command: DeleteVersion) -> Decision:
        self._writable(command.subject)
        stored = self.version(command.subject, command.version, deleted=True)
        self._unreferenced(stored)
        if command.permanent:
            if not stored.deleted:
                raise Refused(
                    404,
                    40407,
                    f"Subject '{stored.subject}' Version {stored.version} was not deleted first before being "
                    "permanently deleted",
                )
            return Decision([SchemaErased(stored.subject, stored.version)], stored.version)
        if stored.deleted:
            raise Refused(
                404,
                40406,
                f"Subject '{stored.subject}' Version {stored.version} was soft deleted. "
                "Set permanent=true to delete permanently",
            )
        return Decision([_deleted(stored)], stored.version)

    def _delete_subject(self, command: DeleteSubject) -> Decision:
        self._writable(command.subject)
        every = self.subjects.get(command.subject)
        if not every:
            raise subject_not_found(command.subject)
        live = self.live(command.subject)
        for stored in every.values():
            self._unreferenced(stored)
        if command.permanent:
            if live:
                raise Refused(
                    404,
                    40405,
                    f"Subject '{command.subject}' was not deleted first before being permanently deleted",
                )
            erased: list[Fact] = [SchemaErased(command.subject, version) for version in sorted(every)]
            if command.subject in self.levels:
                erased.append(LevelSet(command.subject, None))
            return Decision(erased, sorted(every))
        if not live:
            raise Refused(
                404,
                40404,
                f"Subject '{command.subject}' was soft deleted. Set permanent=true to delete permanently",
            )
        versions = [each.version for each in live]
        return Decision([SubjectDeleted(command.subject, max(versions))], versions)

    def _writable(self, subject: str) -> None:
        if self.mode_of(subject) == "READONLY":
            raise Refused(422, 42205, f"Subject {subject} is in read-only mode")

    def _unreferenced(self, stored: SchemaStored) -> None:
        if self.referenced_by(stored.subject, stored.version):
            raise Refused(
                422,
                42206,
                f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={stored.subject},"
                f"version={stored.version}}}.",
            )

    # ---- questions

    def parsed(
        self, schema: str, schema_type: str, references: Iterable[Reference], depth: int = 0
    ) -> tuple[Any, str]:
        """(parsed, canonical text). Raises Refused 42201."""
        if schema_type != "AVRO":
            raise Refused(422, 42201, f"Invalid schema type {schema_type}: this registry knows AVRO")
        try:
            parsed = avro.parse(schema, self.named(references, depth))
        except InvalidSchema as error:
            raise Refused(422, 42201, f"Invalid schema: {error.message}") from None
        return parsed, avro.canonical(parsed)

    def named(self, references: Iterable[Reference], depth: int = 0) -> dict[str, Any]:
        """The parsed schemas of referenced types, those they reference first."""
        if depth > 16:
            raise Refused(422, 42201, "Invalid schema: references nest deeper than 16")
        found: dict[str, Any] = {}
        for reference in references:
            try:
                stored = self.version(reference.subject, reference.version, deleted=True)
            except Refused:
                raise Refused(
                    422,
                    42201,
                    f'Invalid schema: no schema for reference "{reference.name}" '
                    f"({reference.subject} version {reference.version})",
                ) from None
            found |= self.named(stored.references, depth + 1)
            found[reference.name] = self.parsed(
                stored.schema, stored.schema_type, stored.references, depth + 1
            )[0]
        return found

    def live(self, subject: str) -> list[SchemaStored]:
        """The versions that are not deleted, oldest first."""
        return [each for _, each in sorted(self.subjects.get(subject, {}).items()) if not each.deleted]

    def version(self, subject: str, version: int | str, *, deleted: bool = False) -> SchemaStored:
        """One version; "latest" and -1 are the newest. Raises Refused 40401, 40402, 42202."""
        every = [
            each for _, each in sorted(self.subjects.get(subject, {}).items()) if deleted or not each.deleted
        ]
        if not every:
            raise subject_not_found(subject)
        number = version_number(version)
        found = every[-1] if number == -1 else next((each for each in every if each.version == number), None)
        if found is None:
            raise version_not_found(number)
        return found

    def find(
        self,
        subject: str,
        text: str,
        schema_type: str,
        references: tuple[Reference, ...],
        *,
        deleted: bool = False,
    ) -> SchemaStored | None:
        """The newest version of a subject with this canonical text."""
        for _, each in sorted(self.subjects.get(subject, {}).items(), reverse=True):
            kept = deleted or not each.deleted
            alike = each.schema_type == schema_type and each.references == references
            if kept and alike and (each.schema == text or _same(each.schema, text)):
                return each
        return None

    def uses_of(self, schema_id: int, *, deleted: bool = False) -> list[SchemaStored]:
        """Every (subject, version) with this id."""
        return [
            each
            for versions in self.subjects.values()
            for each in versions.values()
            if each.schema_id == schema_id and (deleted or not each.deleted)
        ]

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """Ids of live schemas that reference this one."""
        return sorted(
            {
                each.schema_id
                for versions in self.subjects.values()
                for each in versions.values()
                if not each.deleted
                for reference in each.references
                if (reference.subject, reference.version) == (subject, version)
            }
        )

    def level_of(self, subject: str | None) -> str:
        """The effective compatibility level: the subject's own, else the global one, else BACKWARD."""
        for key in dict.fromkeys((subject, None)):
            found = self.levels.get(key)
            if found is not None and found.level is not None:
                return found.level
        return DEFAULT_LEVEL

    def mode_of(self, subject: str | None) -> str:
        return self.modes.get(subject) or self.modes.get(None) or DEFAULT_MODE

    def incompatibilities(
        self, subject: str, command: RegisterSchema, version: int | str | None
    ) -> list[Incompatibility]:
        """Why a schema may not follow one version of a subject, or (version None) those its level looks at."""
        parsed, _ = self.parsed(command.schema, command.schema_type, command.references)
        level = self.level_of(subject)
        if version is None:
            versions = self.live(subject)
        elif version_number(version) == -1 and not self.live(subject):
            versions = []
        else:
            versions = [self.version(subject, version)]
        earlier = [
            (each.version, self.parsed(each.schema, each.schema_type, each.references)[0])
            for each in versions
        ]
        return check(parsed, earlier, level, self.named(command.references))


def version_number(version: int | str) -> int:
    """The number in a path: "latest" is -1. Raises Refused 42202."""
    if version == "latest":
        return -1
    try:
        number = int(version)
    except ValueError:
        number = 0
    if (number < 1 and number != -1) or number > 2**31 - 1:
        raise Refused(
            422,
            42202,
            f"The specified version '{version}' is not a valid version id. Allowed values are between "
            '[1, 2^31-1] and the string "latest"',
        )
    return number


def _same(stored: str, text: str) -> bool:
    """Equal canonical texts; a topic taken over may hold a text that another registry spelled."""
    try:
        return avro.canonical(avro.parse(stored)) == text
    except InvalidSchema:
        return False


def _deleted(stored: SchemaStored) -> SchemaStored:
    return SchemaStored(
        stored.subject,
        stored.version,
        stored.schema_id,
        stored.schema,
        stored.schema_type,
        stored.references,
        True,
        stored.metadata,
        stored.rule_set,
    )
