"""[edge] Changes of a folder of schemas as text, JSON, and annotations of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from hub.cli.schema.impact import NOBODY, Touched
from hub.cli.terminal.output import Output, note, show_one

if TYPE_CHECKING:
    from hub.schema_registry.folder.plan import FolderItem, FolderPlan


_MARKS = {"new": "+", "changed": "~", "refused": "x", "unchanged": "=", "only in the registry": "?"}
_MOST_CHANGES = 20


class Annotations(StrEnum):
    """Annotation formats: the CI system that shows them."""

    github = "github"


def _places(failures: Sequence[object]) -> list[str]:
    from hub.schema_registry.client.stored_events_check import Failure

    return [
        f"partition {each.partition} offset {each.offset} ({each.reason})"
        for each in failures
        if isinstance(each, Failure)
    ]


def _head(item: FolderItem) -> str:
    status = item.status.value
    if item.registers:
        status = f"{status}, version {item.version}"
    if item.level is not None:
        status += f", compatibility {item.level[0]} -> {item.level[1]}"
    file = f"  ({item.file.where})" if item.file is not None else ""
    return f"{_MARKS[item.status.value]} {item.subject}: {status}{file}"


def show_changes(made: FolderPlan, impacts: Mapping[str, Touched], output: Output) -> None:
    if output is Output.json:
        show_one(
            {
                "exit_code": made.exit_code,
                "items": [as_json(item, impacts.get(item.subject, NOBODY)) for item in made.items],
            },
            output,
        )
        return
    for item in made.items:
        if item.status.value in ("only in the registry", "unchanged") and not item.remark:
            continue
        print(_head(item))
        if item.remark:
            print(f"    {item.remark}")
        for reason in item.reasons:
            line, column = item.place(reason)
            print(f"    {item.file.where if item.file else ''}:{line}:{column}: {reason_text(reason)}")
        for warning in item.warnings:
            print(f"    ! {reason_text(warning)}")
        for change in item.changes[:_MOST_CHANGES]:
            print(f"    {change}")
        if len(item.changes) > _MOST_CHANGES:
            print(f"    and {len(item.changes) - _MOST_CHANGES} more changes: -o json")
        for impact in impacts.get(item.subject, NOBODY).lines():
            print(f"    ! {impact}")
    count = {mark: sum(each.status.value == mark for each in made.items) for mark in _MARKS}
    note(", ".join(f"{number} {status}" for status, number in count.items() if number) + ".")


def reason_text(reason: object) -> str:
    """Return a reason as one line; reasons without a reader have no place in a schema."""
    from hub.schema_registry.compat.compatibility import Incompatibility

    assert isinstance(reason, Incompatibility)
    return str(reason) if reason.reader_is else f"{reason.rule}: {reason.what}; fix: {reason.fix}"


def as_json(item: FolderItem, impact: Touched) -> dict[str, object]:
    return {
        "subject": item.subject,
        "status": item.status.value,
        "version": item.version,
        "registers": item.registers,
        "file": item.file.where if item.file else None,
        "schema_type": item.file.schema_type if item.file else None,
        "references": [each.as_json() for each in item.references],
        "level": {"from": item.level[0], "to": item.level[1]} if item.level else None,
        "remark": item.remark,
        "reasons": [
            {
                "rule": each.rule,
                "path": each.path,
                "field": each.field,
                "what": each.what,
                "fix": each.fix,
                "who": each.reader_is,
                "against": each.against,
                "line": item.place(each)[0],
                "column": item.place(each)[1],
            }
            for each in item.reasons
        ],
        "warnings": [{"rule": each.rule, "what": each.what, "fix": each.fix} for each in item.warnings],
        "changes": [{"kind": each.kind, "path": each.path, "what": each.what} for each in item.changes],
        **impact.as_json(),
    }


def show_checked(
    made: FolderPlan, impacts: Mapping[str, Touched], annotations: Annotations | None, output: Output
) -> None:
    """Print a check's findings, as annotations of a CI system if these are wanted."""
    if annotations is not None:
        for line in annotated(made, impacts):
            print(line)
    if annotations is None or output is Output.json:
        show_changes(made, impacts, output)


def annotated(made: FolderPlan, found: Mapping[str, Touched]) -> Iterator[str]:
    """Yield GitHub's workflow commands: an error per reason, a warning per impact, a notice per reader. Paths
    are relative to the current folder.
    """
    for item in made.items:
        if item.file is None:
            continue
        for reason in item.reasons:
            line, column = item.place(reason)
            yield _command("error", item.file.where, line, column, item.subject, reason_text(reason))
        for warning in item.warnings:
            yield _command(
                "warning", item.file.where, *item.place(warning), item.subject, reason_text(warning)
            )
        touch = found.get(item.subject, NOBODY)
        for kind, impacts in (("warning", (*touch.views, *touch.queries)), ("notice", touch.readers)):
            for impact in impacts:
                yield _command(kind, item.file.where, *item.place(), item.subject, str(impact))


def _command(kind: str, file: str, line: int, column: int, title: str, message: str) -> str:
    path = Path(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        file = path.relative_to(Path.cwd()).as_posix()
    place = f"file={_property(file)},line={line},col={column},title={_property(title)}"
    return f"::{kind} {place}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
