"""[core] The plan of a folder's changes to a registry. Everything that it needs is in its arguments."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hub.errors import nearest
from hub.schema_registry.compat.compatibility import Incompatibility
from hub.schema_registry.describe import describe, warnings
from hub.schema_registry.folder.changes import SchemaChange
from hub.schema_registry.folder.diff import diff_schemas
from hub.schema_registry.folder.files import SETTINGS_FILE, Folder, SchemaFile, WantedReference, place_of
from hub.schema_registry.folder.references import distinct, ordered
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model.data_contract import same_metadata
from hub.schema_registry.model.facts import Reference
from hub.schema_registry.registry.snapshot import (
    ParsedSchema,
    RegistryState,
    SubjectState,
    SubjectVersion,
    differences,
    named_by,
    parse,
    parsed_version,
)

_NEW_READS = "consumers with the new schema could not read what producers with the old one wrote"
_OLD_READS = "consumers with the old schema could not read what producers with the new one write"


class Status(StrEnum):
    """Planned outcome of a subject."""

    new = "new"
    changed = "changed"
    unchanged = "unchanged"
    refused = "refused"
    only_in_registry = "only in the registry"


@dataclass(frozen=True, slots=True)
class FolderItem:
    """One subject of a plan. ``version`` is its current or next one; ``changes`` are relative to the latest.

    ``registers``: a version will be registered. ``level`` is (effective level, wanted level) when it will be
    set. ``old`` and ``new`` are for further checks (broken views, unreadable events); ``new`` is None when
    the file cannot be parsed.
    """

    subject: str
    status: Status
    version: int | None = None
    file: SchemaFile | None = None
    references: tuple[Reference, ...] = ()
    level: tuple[str, str] | None = None
    reasons: tuple[Incompatibility, ...] = ()
    changes: tuple[SchemaChange, ...] = ()
    remark: str = ""
    registers: bool = False
    warnings: tuple[Incompatibility, ...] = ()
    old: ParsedSchema | None = field(default=None, repr=False, compare=False)
    new: ParsedSchema | None = field(default=None, repr=False, compare=False)

    def place(self, reason: Incompatibility | None = None) -> tuple[int, int]:
        """Return the approximate (line, column) in the file that a reason refers to."""
        if self.file is None:
            return 1, 1
        if self.file.problem is not None:
            return self.file.problem.line, self.file.problem.column
        if reason is not None and (position := _POSITION.search(reason.what)) and reason.rule == "INVALID":
            if position["line"]:
                return int(position["line"]), int(position["column"])
            return place_of(self.file.text, position["name"])
        if reason is not None and reason.field:
            return place_of(self.file.text, reason.field.rpartition(".")[2])
        return 1, 1


# protoc's ``line:column``, or a name that a parser quotes
_POSITION = re.compile(r'(?:^|: )(?P<line>\d+):(?P<column>\d+): |["`](?P<name>[^"`\n]{1,200})["`]')


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """Plan of every subject: those of the folder in reference order, then those that only the registry
    has.
    """

    items: tuple[FolderItem, ...]

    def of(self, *statuses: Status) -> list[FolderItem]:
        return [each for each in self.items if each.status in statuses]

    @property
    def steps(self) -> list[FolderItem]:
        """The items that apply executes, in order."""
        return self.of(Status.new, Status.changed)

    @property
    def refused(self) -> list[FolderItem]:
        return self.of(Status.refused)

    @property
    def exit_code(self) -> int:
        """0: nothing to do; 2: changes; 1: a refusal."""
        return 1 if self.refused else 2 if self.steps else 0


Rule = Callable[[SchemaFile, ParsedSchema, SubjectState], Iterable[Incompatibility]]


@dataclass(frozen=True, slots=True)
class SchemaRequirements:
    """Checks of a schema besides its compatibility level; each returns reasons, or none.

    ``warn`` checks refuse nothing. ``levels`` checks apply where a level is set without a new version.
    Checks may raise InvalidSchema.
    """

    more: tuple[Rule, ...] = ()
    warn: tuple[Rule, ...] = ()
    levels: tuple[Rule, ...] = ()


def reason_at(path: str, rule: str, message: str, fix: str) -> Incompatibility:
    """Return the reason of a rule other than compatibility.

    ``path`` is the field's dotted path or the type's name, "" for the whole schema.
    """
    return Incompatibility(rule, "/", f"{path}: {message}" if path else message, fix, "", field=path)


def plan(
    folder: Folder, state: RegistryState, rules: SchemaRequirements = SchemaRequirements()
) -> FolderPlan:
    """Plan the changes from a registry's state to a folder. Pure; problems of schemas are not raised.

    Items of files for an alias have the alias' subject, because the registry stores their schemas there.
    """
    folder = _with_aliases_resolved(folder, state)
    planner = _Planner(folder, state, rules)
    items = [planner.item(each) for each in folder.files]
    wanted = {each.subject for each in folder.files}
    left = [
        FolderItem(name, Status.only_in_registry, subject.live[-1].version)
        for name, subject in sorted(state.subjects.items())
        if name not in wanted and subject.live
    ]
    return FolderPlan((*items, *left))


def _with_aliases_resolved(folder: Folder, state: RegistryState) -> Folder:
    """Replace aliases with their subjects: schemas registered under an alias are found only under its
    subject.
    """
    if not state.aliases:
        return folder
    files = [
        replace(
            each,
            subject=state.resolve_alias(each.subject),
            references=tuple(replace(to, subject=state.resolve_alias(to.subject)) for to in each.references),
            alias=each.subject if state.resolve_alias(each.subject) != each.subject else "",
        )
        for each in folder.files
    ]
    # the subject's own file is the right one
    return replace(folder, files=tuple(ordered(distinct(sorted(files, key=lambda each: each.alias != "")))))


def _remarks(old: ParsedSchema, new: ParsedSchema) -> Iterator[Incompatibility]:
    """Yield warnings about changes that no compatibility level reports, for schemas that can be described."""
    if old.schema_type == new.schema_type:
        with contextlib.suppress(InvalidSchema):
            for each in warnings(*(describe(of.schema_type, of.schema, of.named) for of in (old, new))):
                yield reason_at(each.path, each.rule, each.what, each.fix)


def as_state(folder: Folder, default_level: str = "BACKWARD") -> RegistryState:
    """Return a folder's schemas as if each was registered once, for comparisons with another revision.

    Files with problems are left out.
    """
    state = RegistryState({}, default_level)
    subject_states: dict[str, SubjectState] = {}
    for file in folder.files:
        if file.problem is None and file.subject not in subject_states:
            references = tuple(
                Reference(each.name, each.subject, 1)
                for each in file.references
                if each.subject in subject_states
            )
            version = SubjectVersion(1, file.text, file.schema_type, references, file.metadata)
            subject_states[file.subject] = SubjectState((version,), file.compatibility or default_level)
    return replace(state, subjects=subject_states)


@dataclass
class _Planner:
    folder: Folder
    state: RegistryState
    rules: SchemaRequirements
    made: dict[str, FolderItem] = field(default_factory=dict)

    def item(self, file: SchemaFile) -> FolderItem:
        made = self._item(file)
        self.made.setdefault(file.subject, made)
        return made

    def _item(self, file: SchemaFile) -> FolderItem:
        if file.problem is not None:
            return self._refused(file, "INVALID", file.problem.what, file.problem.fix)
        references = []
        for wanted in file.references:
            found = self._reference(wanted)
            if isinstance(found, Incompatibility):
                return FolderItem(file.subject, Status.refused, file=file, reasons=(found,))
            references.append(found)
        try:
            new = parse(file.schema_type, file.text, self._named(references))
        except InvalidSchema as error:
            return self._refused(file, "INVALID", error.message, _fix_of(error.message))
        return self._judged(file, new, tuple(references))

    def _judged(self, file: SchemaFile, new: ParsedSchema, references: tuple[Reference, ...]) -> FolderItem:
        subject = self.state.subject(file.subject)
        level = file.compatibility or subject.level
        set_level = (subject.level, level) if level != subject.level else None
        live = subject.live
        same = self._registered(file, new, references, subject)
        if same is not None:
            level_rules = self.rules.levels if set_level else ()
            loose = tuple(each for rule in level_rules for each in rule(file, new, subject))
            status = Status.refused if loose else Status.changed if set_level else Status.unchanged
            later = live[-1].version
            remark = f"it is version {same.version}, the registry has {later}" if same is not live[-1] else ""
            return FolderItem(
                file.subject, status, same.version, file, references, set_level, loose, remark=remark, new=new
            )
        try:
            reasons = [
                *self._incompatible(new, live, level),
                *(each for rule in self.rules.more for each in rule(file, new, subject)),
            ]
            old = parsed_version(self.state, live[-1]) if live else None
            changes = tuple(diff_schemas(file.schema_type, old, new)) if old is not None else ()
            warned = [each for rule in self.rules.warn for each in rule(file, new, subject)]
        except InvalidSchema as error:
            return self._refused(file, "NOT_COMPARABLE", error.message, "make the schema simpler")
        if old is not None and not changes:
            changes = _beside(file, references, subject)
        status = Status.refused if reasons else Status.changed if live else Status.new
        return FolderItem(
            file.subject,
            status,
            subject.next_version,
            file,
            references,
            set_level,
            tuple(reasons),
            changes,
            registers=not reasons,
            warnings=(*warned, *(_remarks(old, new) if old is not None else ())),
            old=old,
            new=new,
        )

    def _refused(self, file: SchemaFile, rule: str, message: str, fix: str) -> FolderItem:
        return FolderItem(
            file.subject, Status.refused, file=file, reasons=(Incompatibility(rule, "/", message, fix, ""),)
        )

    def _reference(self, wanted: WantedReference) -> Reference | Incompatibility:
        if wanted.version is not None:
            return Reference(wanted.name, wanted.subject, wanted.version)
        target = self.made.get(wanted.subject)
        if target is not None:
            if target.status is Status.refused or target.version is None:
                message = (
                    f"it refers to `{wanted.name}` of the subject `{wanted.subject}`, which is refused itself"
                )
                return Incompatibility(
                    "REFERENCE_REFUSED", "/", message, f"first correct {wanted.subject}", ""
                )
            return Reference(wanted.name, wanted.subject, target.version)
        live = self.state.subject(wanted.subject).live
        if not live:
            guess = nearest(wanted.subject, [*self.made, *self.state.subjects])
            fix = f"did you mean {guess}?" if guess else "put a file for it into the folder, or register it"
            message = (
                f"it refers to the subject `{wanted.subject}`, which is neither in the folder nor registered"
            )
            return Incompatibility("REFERENCE_MISSING", "/", message, fix, "")
        return Reference(wanted.name, wanted.subject, live[-1].version)

    def _named(self, references: Iterable[Reference]) -> dict[str, Any]:
        """Return the parsed types behind references, from this plan if it makes that version, else from the
        registry.
        """
        found: dict[str, Any] = {}
        for reference in references:
            target = self.made.get(reference.subject)
            if target is not None and target.new is not None and target.version == reference.version:
                found |= target.new.named
                found[reference.name] = target.new.schema
            else:
                found |= named_by(self.state, [reference])
        return found

    def _registered(
        self, file: SchemaFile, new: ParsedSchema, references: tuple[Reference, ...], subject: SubjectState
    ) -> SubjectVersion | None:
        """Return the newest version with the same schema and metadata, whatever its spelling; else None."""
        text: str | None = None
        for each in reversed(subject.live):
            if each.schema_type != file.schema_type or each.references != references:
                continue
            text = new.normalized if text is None else text
            if each.text != file.text:
                try:
                    if parsed_version(self.state, each).normalized != text:
                        continue
                except InvalidSchema:  # another registry accepted it: it differs from this valid one
                    continue
            if _has_metadata(each, file, subject):
                return each
        return None

    def _incompatible(
        self, new: ParsedSchema, live: Sequence[SubjectVersion], level: str
    ) -> list[Incompatibility]:
        if level == "NONE":
            return []
        direction = level.removesuffix("_TRANSITIVE")
        incompatibilities: list[Incompatibility] = []
        for version in reversed(live if level.endswith("_TRANSITIVE") else live[-1:]):
            old = parsed_version(self.state, version)
            for reader_is, reader, writer in ((_NEW_READS, new, old), (_OLD_READS, old, new)):
                if direction == "FULL" or direction == ("BACKWARD" if reader is new else "FORWARD"):
                    incompatibilities += [
                        Incompatibility(
                            each.rule, each.path, each.what, each.fix, reader_is, version.version, each.field
                        )
                        for each in differences(reader, writer)
                    ]
            if incompatibilities:
                break  # newest first: one incompatible version is enough
        return incompatibilities


def _beside(
    file: SchemaFile, references: tuple[Reference, ...], subject: SubjectState
) -> tuple[SchemaChange, ...]:
    """Return the differences that make a new version although the schema is equivalent."""
    found, latest = [], subject.live[-1]
    if references != latest.references:
        moved = ", ".join(f"{each.subject} version {each.version}" for each in references) or "nothing"
        found.append(SchemaChange("references", "", f"it refers to {moved}"))
    if not _has_metadata(latest, file, subject):
        found.append(SchemaChange("metadata", "", "its metadata (owner, tags, properties) is another"))
    return tuple(found) or (SchemaChange("spelling", "", "it has the same meaning with another text"),)


def _has_metadata(version: SubjectVersion, file: SchemaFile, subject: SubjectState) -> bool:
    """Return True if a version has the metadata that the file's results in.

    A version number in the metadata is managed by the registry and ignored.
    """
    if file.metadata is None:
        return True
    return same_metadata(
        _declared_metadata(subject.metadata_of(file.metadata)), _declared_metadata(version.metadata)
    )


def _declared_metadata(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return metadata without empty values, which other registries write out."""
    return {key: each for key, each in (metadata or {}).items() if each}


def _fix_of(message: str) -> str:
    if "unknown type" in message or "was not found" in message or "is not defined" in message:
        return (
            "define it in the file, put a file that defines it into the folder, or name it under "
            f"references in {SETTINGS_FILE}"
        )
    return "correct the schema"
