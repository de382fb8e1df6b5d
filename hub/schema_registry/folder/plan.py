"""[core] A folder of schemas in git, and the plan of its changes to a registry.

::

    schemas/shop.orders-value.avsc        the subject is the file's name
    schemas/shop.orders/value.avsc        a folder a topic: shop.orders-value; also shop/orders/value.avsc
    schemas/common/address.proto          other files in a folder: <topic>-<name>, unless schemas.yaml differs
    schemas/schemas.yaml                  optional: subjects, references, owner, tags, compatibility by file

``.avsc`` is Avro, ``.json`` JSON Schema, ``.proto`` Protobuf. References to other files of the folder are
detected: a name that Avro does not know, a ``$ref``, an ``import``. Files are ordered by their references.

``plan`` is pure: everything it needs is in its arguments. A problem with one file is reported for that file
and does not affect others; only problems that make the whole folder unreadable are raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hub.errors import ConfigError, nearest
from hub.files import read_bytes
from hub.schema_registry.compat.compatibility import LEVELS, Incompatibility
from hub.schema_registry.describe import describe, warnings
from hub.schema_registry.folder.diff import SchemaChange, avro_name, diff_schemas
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import PRIMITIVES
from hub.schema_registry.model import subject_names
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
from hub.yaml import load_model, place

SETTINGS_FILE = "schemas.yaml"
SUFFIXES: Mapping[str, str] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
MOST_FILES = 5_000
MOST_BYTES = 1_048_576  # of one schema, as in the formats
_MOST_ENTRIES = 50_000  # of the folder, of any kind

_NEW_READS = "consumers with the new schema could not read what producers with the old one wrote"
_OLD_READS = "consumers with the old schema could not read what producers with the new one write"


# ---- schemas.yaml


class ReferenceSetting(BaseModel):
    """Reference of a schema. ``name`` is its name in the schema.

    Without ``version`` it is the latest of the folder or the registry.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    subject: str = Field(min_length=1)
    version: int | None = Field(None, ge=1)


class SchemaSettings(BaseModel):
    """Settings of any schema.

    ``tags`` apply to the whole schema, or by field: ``{customer.email: [pii]}``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    owner: str | None = None
    tags: list[str] | dict[str, list[str]] | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    compatibility: str | None = None

    @field_validator("compatibility")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and value.upper() not in LEVELS:
            raise ValueError(f"no compatibility level: {', '.join(LEVELS)} are")
        return value if value is None else value.upper()


class FileSettings(SchemaSettings):
    """Settings of one file. A file may be the schema of several subjects."""

    subject: str | None = Field(None, min_length=1)
    subjects: list[str] | None = Field(None, min_length=1)
    references: list[ReferenceSetting] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_of(self) -> FileSettings:
        if self.subject is not None and self.subjects is not None:
            raise ValueError("subject and subjects say the same: keep one")
        return self


class FolderSettings(BaseModel):
    """Content of schemas.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    defaults: SchemaSettings = Field(default_factory=SchemaSettings)
    schemas: dict[str, FileSettings] = Field(default_factory=dict)


# ---- the folder


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """Declaration of a schema file in another file of the project (topics.yaml)."""

    subject: str
    compatibility: str | None = None


@dataclass(frozen=True, slots=True)
class WantedReference:
    """A reference in the folder; ``version`` None follows the subject's latest."""

    name: str
    subject: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a file and its fix; ``line`` and ``column`` start at 1."""

    what: str
    fix: str
    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """A schema of the folder under one subject.

    ``path`` is relative to the folder, ``where`` opens the file; ``alias`` is the folder's name for the
    subject when the registry has it as an alias of another subject.
    """

    path: str
    where: str
    subject: str
    schema_type: str
    text: str
    references: tuple[WantedReference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    compatibility: str | None = None
    problem: FileProblem | None = None
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """Every schema, dependencies first. ``ignored`` lists files of unknown kinds."""

    where: str
    files: tuple[SchemaFile, ...]
    ignored: tuple[str, ...] = ()

    def find(self, subject: str) -> SchemaFile | None:
        return next((each for each in self.files if each.subject == subject), None)


def load(root: Path, declared: Mapping[Path, Sequence[DeclaredSchema]] | None = None) -> Folder:
    """Load a folder. ``declared``: further declarations of a file, by its resolved path.

    Settings of the file itself in schemas.yaml take precedence, but two different compatibility levels are a
    problem of the file; defaults of schemas.yaml come last. Raises ConfigError (HUB-1106) for a folder that
    is missing or too large, for a misplaced schemas.yaml, and for an invalid one with line and column.
    """
    paths = _paths(root)
    for each in paths:
        _not_misplaced(root, each)
    settings_path = root / SETTINGS_FILE
    settings = load_model(settings_path, FolderSettings) if settings_path.exists() else FolderSettings()
    schemas = [each for each in paths if each.suffix in SUFFIXES]
    known = {each.as_posix() for each in schemas}
    for name in settings.schemas:
        if PurePosixPath(name).as_posix() not in known:
            guess = nearest(name, known)
            raise ConfigError(
                f'file "{name}" is not in the folder',
                where=place(settings_path, "schemas", name),
                hint=f'did you mean "{guess}"?' if guess else "paths are relative to the folder",
                code="HUB-1106",
            )
    given = {PurePosixPath(name).as_posix(): each for name, each in settings.schemas.items()}
    files: list[SchemaFile] = []
    for path in schemas:
        own = given.get(path.as_posix(), FileSettings())
        also = (declared or {}).get(
            Path(os.path.realpath(root / path)), ()
        )  # a link that leads to itself, too
        text, problem = _read(root / path)
        files += [
            SchemaFile(
                path.as_posix(),
                str(root / path),
                each.subject,
                SUFFIXES[path.suffix],
                text,
                tuple(
                    WantedReference(ref.name, subject_names.normal(ref.subject), ref.version)
                    for ref in own.references
                ),
                _metadata(own, settings.defaults),
                own.compatibility or each.compatibility or settings.defaults.compatibility,
                problem or _torn(own, each) or (_syntax(text) if path.suffix != ".proto" else None),
            )
            for each in _subjects(path, own, also)
        ]
    ignored = tuple(
        each.as_posix() for each in paths if each.suffix not in SUFFIXES and each.as_posix() != SETTINGS_FILE
    )
    return Folder(str(root), tuple(_ordered(_connected(_distinct(files)))), ignored)


def _not_misplaced(root: Path, path: PurePosixPath) -> None:
    """Raise ConfigError for a schemas.yaml that would be ignored: its owners, tags and subjects would be
    lost.
    """
    if path.name.lower() not in (SETTINGS_FILE, "schemas.yml") or path.as_posix() == SETTINGS_FILE:
        return
    below = path.parent.as_posix()
    raise ConfigError(
        f"only {SETTINGS_FILE} of the folder itself is read",
        where=str(root / path),
        hint=f"rename it to {SETTINGS_FILE}"
        if below == "."
        else f'move what it says into "{root / SETTINGS_FILE}", with paths from there ({below}/…)',
        code="HUB-1106",
    )


def _paths(root: Path) -> list[PurePosixPath]:
    """Return every file, sorted. Skips hidden files and does not follow links to folders."""
    if not root.is_dir():
        raise ConfigError(
            f'folder "{root}" does not exist', hint="name the folder of schemas, or make it", code="HUB-1106"
        )
    found: list[PurePosixPath] = []

    def unread(error: OSError) -> None:
        raise ConfigError(
            f'folder "{error.filename}" cannot be read ({error.strerror})',
            hint="check the folder and its rights",
            code="HUB-1106",
        ) from None

    for folder, below, names in os.walk(root, onerror=unread):
        below[:] = sorted(each for each in below if not each.startswith("."))
        inside = PurePosixPath(Path(folder).relative_to(root).as_posix())
        found += [inside / each for each in names if not each.startswith(".")]
        if len(found) > _MOST_ENTRIES:
            raise ConfigError(
                f'folder "{root}" has more than {_MOST_ENTRIES} files',
                hint="is it the folder of schemas?",
                code="HUB-1106",
            )
    schemas = sum(each.suffix in SUFFIXES for each in found)
    if schemas > MOST_FILES:
        raise ConfigError(
            f'folder "{root}" has {schemas} schemas, {MOST_FILES} are allowed',
            hint="split it: hub schema plan FOLDER takes any folder",
            code="HUB-1106",
        )
    for each in found:
        if each.suffix in SUFFIXES and not _is_text(str(each)):
            raise ConfigError(
                f"file {os.fsencode(each)!r}: its name is not UTF-8",
                hint="rename the file",
                code="HUB-1106",
            )
    return sorted(found)


def _is_text(name: str) -> bool:
    """Return False for a file name that is not valid text: Python reads it with surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read(path: Path) -> tuple[str, FileProblem | None]:
    try:
        content = read_bytes(path, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            return "", FileProblem(f"larger than {MOST_BYTES} bytes", "split the schema with references")
        return content.decode("utf-8-sig"), None
    except OSError as error:
        return "", FileProblem(f"cannot be read ({error.strerror})", "check the file and its rights")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return "", FileProblem("not UTF-8 text", "save the file as UTF-8", line)


def _syntax(text: str) -> FileProblem | None:
    """Return the first JSON syntax error, or None."""
    if text.strip() in PRIMITIVES:
        return None
    try:
        json.loads(text)
    except RecursionError:
        return FileProblem("nested too deep", "is a bracket wrong?")
    except json.JSONDecodeError as error:
        fix = "look at the line above as well: a missing comma, quote or bracket"
        return FileProblem(f"no JSON: {error.msg}", fix, error.lineno, error.colno)
    except ValueError as error:  # a number with more digits than Python reads
        return FileProblem(f"no JSON: {error}", "write a number that programs can read")
    return None


def _subjects(
    path: PurePosixPath, own: FileSettings, also: Sequence[DeclaredSchema]
) -> Sequence[DeclaredSchema]:
    if own.subjects is not None or own.subject is not None:
        levels = {each.subject: each.compatibility for each in also}
        said = [subject_names.normal(each) for each in own.subjects or [str(own.subject)]]
        return [DeclaredSchema(each, levels.get(each)) for each in said]
    if also:
        return also
    topic = ".".join(path.parts[:-1])
    return [DeclaredSchema(subject_names.normal(f"{topic}-{path.stem}" if topic else path.stem))]


def _torn(own: FileSettings, also: DeclaredSchema) -> FileProblem | None:
    """Return a problem when a subject has two different levels: each apply would undo the other's."""
    if None in (own.compatibility, also.compatibility) or own.compatibility == also.compatibility:
        return None
    return FileProblem(
        f"{SETTINGS_FILE} says compatibility {own.compatibility}, topics.yaml says {also.compatibility}"
        f" of {also.subject}",
        "say it in one of them",
    )


def _metadata(own: SchemaSettings, defaults: SchemaSettings) -> Mapping[str, Any] | None:
    """Return metadata in Confluent's form; None when none is declared, so that registered metadata stays."""
    owner = own.owner or defaults.owner
    properties = {**defaults.metadata, **own.metadata, **({"owner": owner} if owner else {})}
    tags = own.tags if own.tags is not None else defaults.tags
    by_path = {"**": tags} if isinstance(tags, list) else tags or {}
    by_path = {path: list(each) for path, each in by_path.items() if each}
    if not properties and not by_path:
        return None
    return {
        **({"tags": by_path} if by_path else {}),
        **({"properties": properties} if properties else {}),
    }


def _distinct(files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Report a problem for each file whose subject an earlier file has already."""
    first: dict[str, SchemaFile] = {}
    found = []
    for each in files:
        before = first.setdefault(each.subject, each)
        if before is not each:
            known = f'"{each.subject}"' + (f', of which "{each.alias}" is an alias,' if each.alias else "")
            what = f"the subject {known} is that of the file {before.path} already"
            problem = FileProblem(what, "rename one, or say its subject in schemas.yaml")
            each = replace(each, problem=each.problem or problem)
        found.append(each)
    return found


# ---- references


def _connected(files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Add undeclared references: names that a schema needs and another file of the folder defines."""
    needs = {each.path: _needs(each) for each in files if each.problem is None}
    providers: dict[tuple[str, str], list[SchemaFile]] = {}
    for each in {each.path: each for each in reversed(files) if each.problem is None}.values():
        for name in _provides(each, needs[each.path].defined):
            providers.setdefault((each.schema_type, name), []).append(each)
    return [_with_references(each, needs, providers) if each.path in needs else each for each in files]


def _with_references(
    file: SchemaFile,
    needs: Mapping[str, _SchemaNames],
    providers: Mapping[tuple[str, str], list[SchemaFile]],
) -> SchemaFile:
    said = {each.name for each in file.references}
    found = list(file.references)
    for name in needs[file.path].used:
        if name in said:
            continue
        names = [name]
        if file.schema_type != "AVRO":  # a path: a `$ref` starts at its file, an import at the folder's root
            beside = _normal(f"{PurePosixPath(file.path).parent}/{name}")
            names = [beside, name] if file.schema_type == "JSON" else [name, beside]
        offered = next(
            (providers[key] for each in names if (key := (file.schema_type, each)) in providers), []
        )
        offered = [each for each in offered if each.path != file.path]
        if len(offered) > 1:
            which = " and ".join(sorted(each.path for each in offered)[:5])
            problem = FileProblem(
                f"`{name}` is defined in {which}",
                f"say which one in schemas.yaml: references: [{{name: {name}, subject: …}}]",
                *_place(file.text, name),
            )
            return replace(file, problem=problem)
        found += [WantedReference(name, each.subject) for each in offered]
    return replace(file, references=tuple(found))


@dataclass(frozen=True, slots=True)
class _SchemaNames:
    """Names that a schema defines at its top, and names that it uses without defining them."""

    defined: tuple[str, ...]
    used: tuple[str, ...]


def _needs(file: SchemaFile) -> _SchemaNames:
    if file.schema_type == "PROTOBUF":
        return _SchemaNames((), tuple(dict.fromkeys(_IMPORT.findall(_without_comments(file.text)))))
    raw = _json(file.text)
    if file.schema_type == "AVRO":
        return _avro_names(raw)
    own = raw.get("$id", raw.get("id")) if isinstance(raw, dict) else None
    return _SchemaNames(
        (own.rstrip("#"),) if isinstance(own, str) else (),
        tuple(dict.fromkeys(each for each in _refs(raw) if each and each != own)),
    )


_IMPORT = re.compile(r'(?<![\w".])import\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;')


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # a bare primitive


def _refs(raw: Any) -> Iterator[str]:
    """Yield the document part of every ``$ref``."""
    left = [raw]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"].partition("#")[0]
            left.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            left.extend(reversed(node))


def _avro_names(raw: Any) -> _SchemaNames:
    """Collect the names of a schema; errors in it are left to the parser."""
    defined: dict[str, None] = {}
    used: dict[str, None] = {}
    left: list[tuple[Any, str]] = [(raw, "")]
    while left:
        node, space = left.pop()
        if isinstance(node, list):
            left.extend((each, space) for each in reversed(node))
        elif isinstance(node, str):
            if node not in PRIMITIVES:
                used[f"{space}.{node}" if space and "." not in node else node] = None
        elif isinstance(node, dict):
            kind, inside = node.get("type"), space
            if kind in ("record", "error", "enum", "fixed"):
                if isinstance(node.get("name"), str):
                    defined[avro_name(node, space)] = None
                    inside = avro_name(node, space).rpartition(".")[0]
                fields = node.get("fields")
                below = [
                    each["type"]
                    for each in (fields if isinstance(fields, list) else ())
                    if isinstance(each, dict) and "type" in each
                ]
            elif kind in ("array", "map"):
                below = [node[part] for part in ("items", "values") if part in node]
            else:
                below = [kind]
            left.extend((each, inside) for each in reversed(below))
    top = next(iter(defined), None)
    return _SchemaNames(
        (top,) if top is not None else (), tuple(each for each in used if each not in defined)
    )


def _provides(file: SchemaFile, defined: Iterable[str]) -> Iterator[str]:
    yield from defined
    if file.schema_type != "AVRO":
        yield file.path


def _normal(path: str) -> str:
    parts: list[str] = []
    for each in PurePosixPath(path).parts:
        if each == ".." and parts:
            parts.pop()
        elif each != ".":
            parts.append(each)
    return "/".join(parts)


def _ordered(files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Order files by references, dependencies first; report files with circular references as problems."""
    at = {each.subject: index for index, each in reversed(list(enumerate(files)))}
    found = list(files)
    while True:
        sorter: TopologicalSorter[int] = TopologicalSorter()
        for index, file in enumerate(found):
            targets = () if file.problem is not None else file.references
            sorter.add(index, *(at[each.subject] for each in targets if each.subject in at))
        try:
            return [found[each] for each in sorter.static_order()]
        except CycleError as error:
            circle: list[int] = error.args[1]
            said = " -> ".join(found[each].subject for each in reversed(circle))
            for each in circle:
                problem = FileProblem(f"references go in a circle: {said}", "take one of the references out")
                found[each] = replace(found[each], problem=problem)


# ---- the plan


class Status(StrEnum):
    """Planned outcome of a subject."""

    new = "new"
    changed = "changed"
    unchanged = "unchanged"
    refused = "refused"
    only_in_registry = "only in the registry"


@dataclass(frozen=True, slots=True)
class Item:
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
        if reason is not None and (stated := _POSITION.search(reason.what)) and reason.rule == "INVALID":
            if stated["line"]:
                return int(stated["line"]), int(stated["column"])
            return _place(self.file.text, stated["name"])
        if reason is not None and reason.field:
            return _place(self.file.text, reason.field.rpartition(".")[2])
        return 1, 1


# protoc's ``line:column``, or a name that a parser quotes
_POSITION = re.compile(r'(?:^|: )(?P<line>\d+):(?P<column>\d+): |["`](?P<name>[^"`\n]{1,200})["`]')


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """Plan of every subject: those of the folder in reference order, then those that only the registry
    has.
    """

    items: tuple[Item, ...]

    def of(self, *statuses: Status) -> list[Item]:
        return [each for each in self.items if each.status in statuses]

    @property
    def steps(self) -> list[Item]:
        """The items that apply executes, in order."""
        return self.of(Status.new, Status.changed)

    @property
    def refused(self) -> list[Item]:
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


def reason_at(path: str, rule: str, what: str, fix: str) -> Incompatibility:
    """Return the reason of a rule other than compatibility.

    ``path`` is the field's dotted path or the type's name, "" for the whole schema.
    """
    return Incompatibility(rule, "/", f"{path}: {what}" if path else what, fix, "", field=path)


def plan(
    folder: Folder, state: RegistryState, rules: SchemaRequirements = SchemaRequirements()
) -> FolderPlan:
    """Plan the changes from a registry's state to a folder. Pure; problems of schemas are not raised.

    Items of files for an alias have the alias' subject, because the registry stores their schemas there.
    """
    folder = _as_meant(folder, state)
    planner = _Planner(folder, state, rules)
    items = [planner.item(each) for each in folder.files]
    wanted = {each.subject for each in folder.files}
    left = [
        Item(name, Status.only_in_registry, subject.live[-1].version)
        for name, subject in sorted(state.subjects.items())
        if name not in wanted and subject.live
    ]
    return FolderPlan((*items, *left))


def _as_meant(folder: Folder, state: RegistryState) -> Folder:
    """Replace aliases with their subjects: schemas registered under an alias are found only under its
    subject.
    """
    if not state.aliases:
        return folder
    files = [
        replace(
            each,
            subject=state.meant(each.subject),
            references=tuple(replace(to, subject=state.meant(to.subject)) for to in each.references),
            alias=each.subject if state.meant(each.subject) != each.subject else "",
        )
        for each in folder.files
    ]
    # the subject's own file is the right one
    return replace(folder, files=tuple(_ordered(_distinct(sorted(files, key=lambda each: each.alias != "")))))


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
    found: dict[str, SubjectState] = {}
    for file in folder.files:
        if file.problem is None and file.subject not in found:
            references = tuple(
                Reference(each.name, each.subject, 1) for each in file.references if each.subject in found
            )
            version = SubjectVersion(1, file.text, file.schema_type, references, file.metadata)
            found[file.subject] = SubjectState((version,), file.compatibility or default_level)
    return replace(state, subjects=found)


@dataclass
class _Planner:
    folder: Folder
    state: RegistryState
    rules: SchemaRequirements
    made: dict[str, Item] = field(default_factory=dict)

    def item(self, file: SchemaFile) -> Item:
        made = self._item(file)
        self.made.setdefault(file.subject, made)
        return made

    def _item(self, file: SchemaFile) -> Item:
        if file.problem is not None:
            return self._refused(file, "INVALID", file.problem.what, file.problem.fix)
        references = []
        for wanted in file.references:
            found = self._reference(wanted)
            if isinstance(found, Incompatibility):
                return Item(file.subject, Status.refused, file=file, reasons=(found,))
            references.append(found)
        try:
            new = parse(file.schema_type, file.text, self._named(references))
        except InvalidSchema as error:
            return self._refused(file, "INVALID", error.message, _fix_of(error.message))
        return self._judged(file, new, tuple(references))

    def _judged(self, file: SchemaFile, new: ParsedSchema, references: tuple[Reference, ...]) -> Item:
        subject = self.state.subject(file.subject)
        level = file.compatibility or subject.level
        set_level = (subject.level, level) if level != subject.level else None
        live = subject.live
        same = self._registered(file, new, references, subject)
        if same is not None:
            asked = self.rules.levels if set_level else ()
            loose = tuple(each for rule in asked for each in rule(file, new, subject))
            status = Status.refused if loose else Status.changed if set_level else Status.unchanged
            later = live[-1].version
            remark = f"it is version {same.version}, the registry has {later}" if same is not live[-1] else ""
            return Item(
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
        return Item(
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

    def _refused(self, file: SchemaFile, rule: str, what: str, fix: str) -> Item:
        return Item(
            file.subject, Status.refused, file=file, reasons=(Incompatibility(rule, "/", what, fix, ""),)
        )

    def _reference(self, wanted: WantedReference) -> Reference | Incompatibility:
        if wanted.version is not None:
            return Reference(wanted.name, wanted.subject, wanted.version)
        target = self.made.get(wanted.subject)
        if target is not None:
            if target.status is Status.refused or target.version is None:
                what = (
                    f"it refers to `{wanted.name}` of the subject `{wanted.subject}`, which is refused itself"
                )
                return Incompatibility("REFERENCE_REFUSED", "/", what, f"first mend {wanted.subject}", "")
            return Reference(wanted.name, wanted.subject, target.version)
        live = self.state.subject(wanted.subject).live
        if not live:
            guess = nearest(wanted.subject, [*self.made, *self.state.subjects])
            fix = f"did you mean {guess}?" if guess else "put a file for it into the folder, or register it"
            what = (
                f"it refers to the subject `{wanted.subject}`, which is neither in the folder nor registered"
            )
            return Incompatibility("REFERENCE_MISSING", "/", what, fix, "")
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
            if _says_metadata(each, file, subject):
                return each
        return None

    def _incompatible(
        self, new: ParsedSchema, live: Sequence[SubjectVersion], level: str
    ) -> list[Incompatibility]:
        if level == "NONE":
            return []
        direction = level.removesuffix("_TRANSITIVE")
        found: list[Incompatibility] = []
        for version in reversed(live if level.endswith("_TRANSITIVE") else live[-1:]):
            old = parsed_version(self.state, version)
            for told, reader, writer in ((_NEW_READS, new, old), (_OLD_READS, old, new)):
                if direction == "FULL" or direction == ("BACKWARD" if reader is new else "FORWARD"):
                    found += [
                        Incompatibility(
                            each.rule, each.path, each.what, each.fix, told, version.version, each.field
                        )
                        for each in differences(reader, writer)
                    ]
            if found:
                break  # newest first: one incompatible version is enough
        return found


def _beside(
    file: SchemaFile, references: tuple[Reference, ...], subject: SubjectState
) -> tuple[SchemaChange, ...]:
    """Return the differences that make a new version although the schema is equivalent."""
    found, latest = [], subject.live[-1]
    if references != latest.references:
        moved = ", ".join(f"{each.subject} version {each.version}" for each in references) or "nothing"
        found.append(SchemaChange("references", "", f"it refers to {moved}"))
    if not _says_metadata(latest, file, subject):
        found.append(SchemaChange("metadata", "", "its metadata (owner, tags, properties) is another"))
    return tuple(found) or (SchemaChange("spelling", "", "it says the same in other words"),)


def _says_metadata(version: SubjectVersion, file: SchemaFile, subject: SubjectState) -> bool:
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
    return "mend the schema"


def _place(text: str, name: str) -> tuple[int, int]:
    """Return (line, column) of the first occurrence of a name as a word, quoted if possible; else (1, 1)."""
    found = re.search(rf'"{re.escape(name)}"', text) or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    if found is None:
        return 1, 1
    before = text[: found.start()]
    return before.count("\n") + 1, len(before) - before.rfind("\n")
