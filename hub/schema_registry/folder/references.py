"""[core] References between the files of a folder: found in their texts, and the order that they imply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath
from typing import Any

from hub.schema_registry.folder.files import FileProblem, SchemaFile, WantedReference, place_of
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.formats.avro.types import every_type, types_of


def distinct(files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Report a problem for each file whose subject an earlier file has already."""
    first: dict[str, SchemaFile] = {}
    found = []
    for each in files:
        before = first.setdefault(each.subject, each)
        if before is not each:
            subject = f'"{each.subject}"' + (f', of which "{each.alias}" is an alias,' if each.alias else "")
            message = f"the subject {subject} is that of the file {before.path} already"
            problem = FileProblem(message, "rename one, or say its subject in schemas.yaml")
            each = replace(each, problem=each.problem or problem)
        found.append(each)
    return found


def connected(files: Sequence[SchemaFile]) -> list[SchemaFile]:
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
    declared = {each.name for each in file.references}
    wanted_references = list(file.references)
    for name in needs[file.path].used:
        if name in declared:
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
                *place_of(file.text, name),
            )
            return replace(file, problem=problem)
        wanted_references += [WantedReference(name, each.subject) for each in offered]
    return replace(file, references=tuple(wanted_references))


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
    try:
        types = list(every_type(types_of(raw, strict=False)))
    except (InvalidSchema, RecursionError):
        return _SchemaNames((), ())
    defined = [each.name for each in types if each.name and each.kind != "unknown"]
    used = dict.fromkeys(
        each.name for each in types if each.kind == "unknown" and each.name not in set(defined)
    )
    return _SchemaNames(tuple(defined[:1]), tuple(used))


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


def ordered(files: Sequence[SchemaFile]) -> list[SchemaFile]:
    """Order files by references, dependencies first; report files with circular references as problems."""
    at = {each.subject: index for index, each in reversed(list(enumerate(files)))}
    schema_files = list(files)
    while True:
        sorter: TopologicalSorter[int] = TopologicalSorter()
        for index, file in enumerate(schema_files):
            targets = () if file.problem is not None else file.references
            sorter.add(index, *(at[each.subject] for each in targets if each.subject in at))
        try:
            return [schema_files[each] for each in sorter.static_order()]
        except CycleError as error:
            circle: list[int] = error.args[1]
            cycle = " -> ".join(schema_files[each].subject for each in reversed(circle))
            for each in circle:
                problem = FileProblem(f"references form a cycle: {cycle}", "take one of the references out")
                schema_files[each] = replace(schema_files[each], problem=problem)
