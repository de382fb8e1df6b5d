"""[edge] Load a folder of schemas: files, ``schemas.yaml``, subjects and references.

::

    schemas/shop.orders-value.avsc        the subject is the file's name
    schemas/shop.orders/value.avsc        a folder a topic: shop.orders-value; also shop/orders/value.avsc
    schemas/common/address.proto          other files in a folder: <topic>-<name>, unless schemas.yaml differs
    schemas/schemas.yaml                  optional: subjects, references, owner, tags, compatibility by file

``.avsc`` is Avro, ``.json`` JSON Schema, ``.proto`` Protobuf. References to other files of the folder are
detected: a name that Avro does not know, a ``$ref``, an ``import``. Files are ordered by their references.

A problem with one file is reported for that file and does not affect others; only problems that make the
whole folder unreadable are raised.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from hub.errors import ConfigError, did_you_mean
from hub.files import read_bytes
from hub.schema_registry.folder.files import (
    SETTINGS_FILE,
    DeclaredSchema,
    FileProblem,
    FileSettings,
    Folder,
    FolderSettings,
    SchemaFile,
    SchemaSettings,
    WantedReference,
)
from hub.schema_registry.folder.references import connected, distinct, ordered
from hub.schema_registry.formats.avro.types import PRIMITIVES
from hub.schema_registry.model import subject_names
from hub.yaml import load_model, place

SUFFIXES: Mapping[str, str] = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
MOST_FILES = 5_000
MOST_BYTES = 1_048_576  # of one schema, as in the formats
_MOST_ENTRIES = 50_000  # of the folder, of any kind


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
            raise ConfigError(
                f'file "{name}" is not in the folder',
                where=place(settings_path, "schemas", name),
                hint=did_you_mean(name, known, "paths are relative to the folder"),
                code="HUB-1106",
            )
    by_path = {PurePosixPath(name).as_posix(): each for name, each in settings.schemas.items()}
    files: list[SchemaFile] = []
    for path in schemas:
        own = by_path.get(path.as_posix(), FileSettings())
        also = (declared or {}).get(
            Path(os.path.realpath(root / path)), ()
        )  # a link that leads to itself, too
        files += _files_of(root, path, own, also, settings.defaults)
    ignored = tuple(
        each.as_posix() for each in paths if each.suffix not in SUFFIXES and each.as_posix() != SETTINGS_FILE
    )
    return Folder(str(root), tuple(ordered(connected(distinct(files)))), ignored)


def _files_of(
    root: Path,
    path: PurePosixPath,
    own: FileSettings,
    also: Sequence[DeclaredSchema],
    defaults: SchemaSettings,
) -> list[SchemaFile]:
    """Return a file as its subjects declare it; ``own`` are its settings, ``also`` further declarations."""
    text, problem = _read(root / path)
    return [
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
            _metadata(own, defaults),
            own.compatibility or each.compatibility or defaults.compatibility,
            problem or _torn(own, each) or (_syntax(text) if path.suffix != ".proto" else None),
        )
        for each in _subjects(path, own, also)
    ]


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
        else f'move its content into "{root / SETTINGS_FILE}", with paths from there ({below}/…)',
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
        return FileProblem(f"not JSON: {error.msg}", fix, error.lineno, error.colno)
    except ValueError as error:  # a number with more digits than Python reads
        return FileProblem(f"not JSON: {error}", "write a number that programs can read")
    return None


def _subjects(
    path: PurePosixPath, own: FileSettings, also: Sequence[DeclaredSchema]
) -> Sequence[DeclaredSchema]:
    if own.subjects is not None or own.subject is not None:
        levels = {each.subject: each.compatibility for each in also}
        subjects = [subject_names.normal(each) for each in own.subjects or [str(own.subject)]]
        return [DeclaredSchema(each, levels.get(each)) for each in subjects]
    if also:
        return also
    topic = ".".join(path.parts[:-1])
    return [DeclaredSchema(subject_names.normal(f"{topic}-{path.stem}" if topic else path.stem))]


def _torn(own: FileSettings, also: DeclaredSchema) -> FileProblem | None:
    """Return a problem when a subject has two different levels: each apply would undo the other's."""
    if None in (own.compatibility, also.compatibility) or own.compatibility == also.compatibility:
        return None
    return FileProblem(
        f"{SETTINGS_FILE} declares compatibility {own.compatibility}, topics.yaml declares "
        f"{also.compatibility} for {also.subject}",
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
