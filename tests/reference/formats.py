"""Durable formats, from ``hub.formats.table``."""

from __future__ import annotations

from hub.formats.table import FORMATS, DurableFormat

from .text import table

_INTRO = """# Formats of the state

State outlives the release that wrote it. Each durable format has a version. State without a version is of version 1.
[Upgrade](../how-to/upgrade.md) has the steps; [ADR 0055](../adr/0055-versions-of-formats.md) the reasons.

## Formats with a version

"Noted in" is the place of the version: `home` is the file `formats/<format>.json` in the home folder, `topics` the topic
`_hub.formats` of the cluster, `itself` the state. Files are in the home folder.
"""  # noqa: E501
_RULES = """
## What a release does with a version

| version of the state | the release |
|---|---|
| its own | reads and writes |
| older, and still read | reads; the process that writes the format upgrades or rebuilds it when it starts |
| older than it reads | refuses by name ([HUB-1150](errors.md)); start the releases in between first |
| newer | refuses by name before it writes anything ([HUB-1150](errors.md)) |

- `hub up` refuses to start when any state is refused, and lists all of it.
- A process that is started alone refuses to start when a format that it writes is refused; the other processes run.
- A view whose checkpoint is refused is `failed` with the reason; the other views run. So is a store.
- A process notes its versions before its first write. Without Kafka, the server starts all the same and logs a warning.
- Releases before the versions (0.1.0 and earlier) check only incremental state, offset maps, backups and plans.

## Fields of records

- A release adds fields, and ignores fields that it does not know. It raises the version when an older release must not ignore a field.
- `kept`: the field stays when an older release rewrites the entry. `refused`: the format has no room for others.
- Records of kinds that a release does not know are skipped in `_hub.mirror.control`, `_hub.mirror.status` and `_hub.progress`.
- Headers of events are never changed or removed.
- Unknown keys of YAML files are errors ([HUB-1104](errors.md)). Deprecated keys work for two minor versions, with a warning.

## State without a version of the hub

| state | format | upgrade |
|---|---|---|
| `_schemas`, `_dek_registry_keys` | Confluent's registries | never changed |
| `_hub.connect-*` | Kafka Connect | by Kafka Connect |
| `kafka/` in the home | Kafka's log and metadata | the embedded Kafka keeps the metadata version that it was made with |
| `checkpoints/<view>/<generation>/` | Spark's checkpoint | Spark reads those of its earlier versions |
| Iceberg tables | table format 2, and the property `hub.schema-version` | columns follow the registry |
| stores' tables of views | one column a field | columns are added and removed in place |
| `registry.db`, tables of the registry | cache of `_schemas` | dropped and made again |
| `_hub.canary`, `_hub.applies` | records of seconds | a new release overwrites them |
| `contact/`, `isolation/`, `lake.json`, `sinks.json`, `outbox.json` | state of running processes | overwritten every few seconds |
"""  # noqa: E501
_OLDER = {"nothing": "read as it is", "upgrade": "upgraded in place", "rebuild": "computed again"}


def page() -> str:
    """Return the page."""
    heads = ("format", "where", "noted in", "version", "reads", "written by", "older state", "unknown fields")
    return "\n".join([_INTRO, *table(heads, map(_row, FORMATS)), _RULES.strip()])


def _row(format: DurableFormat) -> tuple[str, ...]:
    reads = str(format.version) if format.oldest == format.version else f"{format.oldest} to {format.version}"
    older = _OLDER[format.older] if format.version > 1 else "none yet"
    writers = ", ".join(format.writers) or "commands"
    where = ", ".join(f"`{each}`" if "`" not in each else each for each in format.where.split(", "))
    return (
        f"`{format.name}`",
        where,
        format.noted,
        str(format.version),
        reads,
        writers,
        older,
        format.unknown,
    )
