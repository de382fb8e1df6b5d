"""[edge] ``hub schema diff``, ``search`` and ``infer``: changes between versions, search in schemas, schemas
of samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.progress import counted
from hub.config import Settings
from hub.errors import CallerError, ConfigError, HubError, NotFound, did_you_mean, nearest

if TYPE_CHECKING:
    from hub.schema_registry.client.remote import RemoteRegistry
    from hub.schema_registry.folder.inference.shapes import Inferred


class Proposal(StrEnum):
    """In which form a schema is proposed."""

    avro = "avro"
    json_schema = "json-schema"
    report = "report"


class SampleFormat(StrEnum):
    """Formats of sample files."""

    json = "json"
    jsonl = "jsonl"
    csv = "csv"
    xml = "xml"


def diff(
    subject: str,
    first: Annotated[int | None, typer.Argument(metavar="[V1]", help="Default: the one before V2")] = None,
    second: Annotated[int | None, typer.Argument(metavar="[V2]", help="Default: the latest")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Describe the changes between two versions, and whether their readers and writers are compatible.

    Examples: hub schema diff shop.orders-value; hub schema diff shop.orders-value 1 4
    """
    from hub.schema_registry.folder.diff import diff_schemas, readers

    with closing(_registry()) as registry:
        since, to = _two(registry, subject, first, second)
        old, new = (registry.parsed(registry.version(subject, each)) for each in (since, to))
    changes = diff_schemas(new.schema_type, old, new)
    report = readers(old, new)
    if output is Output.json:
        show_one(
            {
                "subject": subject,
                "from": since,
                "to": to,
                "changes": [{"kind": each.kind, "path": each.path, "what": each.what} for each in changes],
                "new_reads_old": not report.new_reads_old,
                "old_reads_new": not report.old_reads_new,
                "reasons": [
                    {
                        "reader": reader,
                        "rule": each.rule,
                        "field": each.field,
                        "what": each.what,
                        "fix": each.fix,
                    }
                    for reader, reasons in (("new", report.new_reads_old), ("old", report.old_reads_new))
                    for each in reasons
                ],
            },
            output,
        )
        return
    print(f"{subject}: version {since} -> {to}")
    for change in changes:
        print(f"  {change}")
    if not changes:
        print("the schema has the same meaning")
    for line in report.lines():
        print(line)


def search(
    words: Annotated[
        list[str] | None, typer.Argument(help="Each must be found: in names, fields, docs …")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only schemas of this owner")] = None,
    tag: Annotated[str | None, typer.Option(help="Only schemas with this tag")] = None,
    field: Annotated[str | None, typer.Option(help="Only schemas with a field of this name")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Find schemas by words: subjects, names of records and fields, docs, owners, tags. Best first.

    Examples: hub schema search customer email; hub schema search --tag pii;
    hub schema search --field order_id
    """
    from hub.schema_registry.folder.search import search as searched

    if not words and owner is None and tag is None and field is None:
        raise CallerError("nothing to search for", hint="hub schema search WORDS, --owner, --tag or --field")
    with closing(_registry()) as registry:
        found = searched(registry.latest(), " ".join(words or ()), owner=owner, tag=tag, field=field)
    rows = [
        {
            "subject": each.subject,
            "version": each.version,
            "owner": each.owner,
            "tags": list(each.tags) if output is Output.json else ", ".join(each.tags),
            "found_in": list(each.where) if output is Output.json else "; ".join(each.where),
            **({"score": each.score} if output is Output.json else {}),
        }
        for each in found
    ]
    show(rows, output, ("subject", "version", "owner", "tags", "found_in"))
    if not rows:
        note("Nothing found.")


def infer(
    files: Annotated[list[Path] | None, typer.Argument(help="Files of samples; they count as one")] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Take the last events of this topic instead")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, max=100_000, help="With --topic: number of events per partition")
    ] = 500,
    kind: Annotated[SampleFormat | None, typer.Option("--format", help="Default: by the file's name")] = None,
    name: Annotated[str | None, typer.Option(help="The record's name, such as shop.Order")] = None,
    proposal: Annotated[
        Proposal,
        typer.Option("--output", "-o", help="avro, json-schema, or report: JSON with the evidence"),
    ] = Proposal.avro,
) -> None:
    """Propose a schema from samples, with the evidence for each field (on standard error). Registers nothing.

    Examples: hub schema infer orders.jsonl --name shop.Order > schemas/shop.orders-value.avsc
    hub schema infer --topic legacy.orders -o json-schema
    """
    from hub.schema_registry.folder.infer import infer as inferred

    if (topic is None) == (not files):
        raise CallerError("name files of samples, or --topic", hint="hub schema infer FILE… or --topic TOPIC")
    if topic is not None:
        with closing(_registry()) as registry:
            made = inferred(_events(load_settings(), registry, topic, sample), name or _name_of(topic))
    else:
        kinds = [_format(each, kind) for each in files or ()]
        text_only = [each in ("csv", "xml") for each in kinds]
        if len(set(text_only)) > 1:
            raise CallerError(
                "files that know text only (CSV, XML) and JSON are not taken as one", hint="one at a time"
            )
        values = (
            each for path, which in zip(files or (), kinds, strict=True) for each in _samples(path, which)
        )
        stem = (files or [Path("record")])[0].name.partition(".")[0]
        made = inferred(values, name or _name_of(stem), text_only=text_only[0])
    _show(made, proposal)


def _show(made: Inferred, proposal: Proposal) -> None:
    schema = made.json_schema if proposal is Proposal.json_schema else made.avro
    rows: list[dict[str, Any]] = [
        {
            "field": each.path or "(all)",
            "type": each.type,
            "confidence": each.confidence,
            "seen": f"{each.samples} of {each.of}",
            "nulls": each.nulls,
            "types": dict(each.types),
            "examples": list(each.examples),
            "remark": each.remark,
        }
        for each in made.fields
    ]
    if proposal is Proposal.report:
        show_one({"samples": made.samples, "schema": schema, "fields": rows}, Output.json)
        return
    print(orjson.dumps(schema, option=orjson.OPT_INDENT_2).decode())
    _report(rows)
    note(f"From {made.samples} samples. A proposal: read it before it is registered.")


def _report(rows: list[dict[str, Any]]) -> None:
    """Print the report to standard error; standard output has the schema alone."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    width = None if Console(stderr=True).is_terminal else 300
    console = Console(stderr=True, markup=False, highlight=False, emoji=False, width=width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("field", "type", "confidence", "seen", "examples", "remark"):
        table.add_column(column, overflow="fold")
    for row in rows:
        examples = ", ".join(row["examples"])
        table.add_row(
            row["field"], row["type"], f"{row['confidence']:.2f}", row["seen"], examples, row["remark"]
        )
    console.print(table)


def _format(path: Path, requested: SampleFormat | None) -> str:
    from hub.schema_registry.folder.samples import format_of

    found = requested.value if requested is not None else format_of(path.name)
    if found is None:
        raise CallerError(
            f'file "{path}": its name does not show its format', hint="--format json, jsonl, csv or xml"
        )
    return found


def _samples(path: Path, kind: str) -> Iterator[Any]:
    from hub.schema_registry.folder.samples import MOST_BYTES, samples

    try:
        with path.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"the samples cannot be read ({error.strerror})", where=str(path)) from None
    return samples(content, kind, str(path))


def _events(settings: Settings, registry: RemoteRegistry, topic: str, sample: int) -> list[Any]:
    """Return the topic's last events as JSON values: JSON text, or Avro with a schema of the registry."""
    from hub.kafka import own_cluster
    from hub.record import Record
    from hub.schema_registry.client.stored_events_check import decoded, last_records

    cluster = own_cluster(settings)
    found: list[Any] = []
    writers: dict[int, Any] = {}
    unread = 0

    def take(record: Record) -> None:
        nonlocal unread
        if record.value is None:
            return
        try:
            if record.value[:1] == b"\x00":
                value = decoded(record.value, lambda each: registry.parsed(registry.with_id(each)), writers)
                found.append(orjson.loads(orjson.dumps(value, default=_plain)))
            else:
                found.append(orjson.loads(record.value))
        except (CallerError, ValueError, TypeError):
            unread += 1

    if topic not in cluster.topics():
        raise NotFound(
            f'topic "{topic}" does not exist', hint=did_you_mean(topic, cluster.topics(), "hub topic ls")
        )
    with counted(f"Reading {topic}") as progress:
        last_records(cluster, topic, sample, take, progress)
    if unread:
        note(f"{unread} events are neither JSON nor Avro that the registry knows: left out.")
    if not found:
        raise NotFound(
            f'topic "{topic}" has no events that can be read', hint="JSON and registered Avro can be"
        )
    return found


def _plain(value: Any) -> Any:
    """Convert a value that Avro has and JSON lacks."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _name_of(text: str) -> str:
    """``shop.orders-value`` is ``shop.OrdersValue``."""
    space, _, last = text.rpartition(".")
    parts = last.replace("-", "_").replace(" ", "_").split("_")
    pascal = "".join(each[:1].upper() + each[1:] for each in parts) or "Record"
    return f"{space}.{pascal}" if space else pascal


def _registry() -> RemoteRegistry:
    from hub.schema_registry.client.remote import RemoteRegistry

    return RemoteRegistry(load_settings().registry)


def _two(registry: RemoteRegistry, subject: str, first: int | None, second: int | None) -> tuple[int, int]:
    """Return the two versions to compare."""
    numbers = _numbers(registry, subject)
    to = numbers[-1] if second is None else second
    earlier = [each for each in numbers if each < to]
    if first is None and not earlier:
        hint = f"hub schema show {subject} prints it"
        raise CallerError(f'subject "{subject}" has nothing before version {to}', hint=hint)
    return earlier[-1] if first is None else first, to


def _numbers(registry: RemoteRegistry, subject: str) -> list[int]:
    try:
        return registry.numbers(subject)
    except NotFound as error:
        try:
            guess = nearest(subject, [name for name, _ in registry.latest()])
        except HubError:
            guess = None
        raise NotFound(error.message, hint=f'did you mean "{guess}"?' if guess else "hub schema ls") from None
