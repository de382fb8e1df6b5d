"""[shell] Backup of a registry as a file: the records of ``_schemas`` byte for byte, and their restore.

A backup is JSON lines: a header, one line per record, and a footer with the number of records and the
SHA-256 of all lines before it::

    {"format":"hub-schemas","version":1,"topic":"_schemas"}
    {"timestamp_ms":1700000000000,"key":"{\\"keytype\\":\\"SCHEMA\\",…","value":"{…}"}
    {"records":1,"sha256":"…"}

Keys and values are stored as text; bytes that are not UTF-8 are base64 (``key_base64``). Ids and versions
are in the records' values, so a restored registry keeps them. Offsets are not stored, because a compacted
topic has gaps.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from hub.errors import ConfigError, Conflict, HubFault
from hub.formats.table import SCHEMA_BACKUP
from hub.log import Log
from hub.record import Headers, NewRecord, Record, TopicPartition
from hub.schema_registry.client.stored_events_check import last_records
from hub.schema_registry.model.facts import SCHEMAS_TOPIC, fact_of
from hub.schema_registry.registry.snapshot import RegistryState, state_of
from hub.schema_registry.registry.state_machine import Registry

FORMAT, VERSION = "hub-schemas", SCHEMA_BACKUP.version
MOST_BYTES = 1 << 30
_WRITER = "hub.schema-registry"  # fences the registry's nodes, which then open a new writer
Progress = Callable[[int, int], None]


def _silent(_done: int, _all: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class BackupRecord:
    """One record of a backup."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers = ()


# ---- the file


def lines(records: Iterable[BackupRecord]) -> Iterator[bytes]:
    """Return the lines of a backup, each with its line break."""
    digest, count = hashlib.sha256(), 0
    head = orjson.dumps({"format": FORMAT, "version": VERSION, "topic": SCHEMAS_TOPIC}) + b"\n"
    digest.update(head)
    yield head
    for each in records:
        count += 1
        line = orjson.dumps(_as_json(each)) + b"\n"
        digest.update(line)
        yield line
    yield orjson.dumps({"records": count, "sha256": digest.hexdigest()}) + b"\n"


def records(content: Iterable[bytes], where: str) -> list[BackupRecord]:
    """Parse a backup's lines.

    Raises ConfigError (HUB-1108) for another format, a truncated or a changed file.
    """
    digest, backup_records = hashlib.sha256(), list[BackupRecord]()
    foot: dict[str, Any] | None = None
    size = 0
    for number, line in enumerate(content, 1):
        size += len(line)
        if size > MOST_BYTES:
            raise _wrong(where, number, f"larger than {MOST_BYTES >> 20} MiB")
        if foot is not None:
            raise _wrong(where, number, "there is more after its last line")
        try:
            value = orjson.loads(line)
            if number == 1 and (value["format"], value["version"]) != (FORMAT, VERSION):
                raise _wrong(where, 1, f"version {value['version']} of {value['format']} is not known")
            if number > 1 and "sha256" in value:
                foot = value
                continue
            if number > 1:
                backup_records.append(_backup_record(value))
        except (ValueError, KeyError, TypeError, AttributeError):
            message = "no backup of a registry" if number == 1 else "no record of a backup"
            raise _wrong(where, number, message) from None
        digest.update(line)
    if foot is None:
        raise _wrong(where, 1, "it is cut off: the last line, with the checksum, is missing")
    if foot.get("records") != len(backup_records) or foot["sha256"] != digest.hexdigest():
        raise _wrong(
            where, len(backup_records) + 2, "the checksum does not match: the file was changed or is corrupt"
        )
    return backup_records


def state_in(content: Iterable[bytes], where: str) -> RegistryState:
    """Rebuild the registry's state from a backup, without Kafka. Raises ConfigError."""
    registry = Registry()
    for offset, each in enumerate(records(content, where)):
        registry.apply(fact_of(Record(SCHEMAS_TOPIC, 0, offset, each.timestamp_ms, each.key, each.value)))
    return state_of(registry)


def _as_json(backup_record: BackupRecord) -> dict[str, Any]:
    made: dict[str, Any] = {"timestamp_ms": backup_record.timestamp_ms}
    made |= {**_bytes("key", backup_record.key), **_bytes("value", backup_record.value)}
    if backup_record.headers:
        made["headers"] = [
            [name, None if value is None else base64.b64encode(value).decode()]
            for name, value in backup_record.headers
        ]
    return made


def _bytes(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _backup_record(value: dict[str, Any]) -> BackupRecord:
    def of(name: str) -> bytes | None:
        if f"{name}_base64" in value:
            return _decoded(value[f"{name}_base64"])
        text = value[name]
        return None if text is None else text.encode()

    headers = tuple(
        (str(name), None if each is None else _decoded(each)) for name, each in value.get("headers", ())
    )
    return BackupRecord(of("key"), of("value"), int(value["timestamp_ms"]), headers)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _wrong(where: str, line: int, message: str) -> ConfigError:
    return ConfigError(
        message,
        where=f"{where}:{line}:1",
        hint="make a new one: hub schema backup FILE; nothing was restored",
        code="HUB-1108",
    )


# ---- the topic


def read_all(cluster: Log, progress: Progress = _silent, topic: str = SCHEMAS_TOPIC) -> list[BackupRecord]:
    """Return every record of the topic, in order. Raises NotFound when the topic does not exist."""
    backup_records: list[BackupRecord] = []
    last_records(
        cluster,
        topic,
        None,
        lambda each: backup_records.append(
            BackupRecord(each.key, each.value, each.timestamp_ms, each.headers)
        ),
        progress,
    )
    return backup_records


def restore(
    backup_records: Sequence[BackupRecord],
    cluster: Log,
    *,
    replication_factor: int = 1,
    progress: Progress = _silent,
    topic: str = SCHEMAS_TOPIC,
) -> None:
    """Write a backup's records into the topic, all or none, and read them back.

    Creates the topic when it is missing. Raises Conflict when the topic has records, HubFault when the
    records read back differ from those written.
    """
    if topic not in cluster.topics():
        cluster.create_topic(
            topic,
            partitions=1,
            config={"cleanup.policy": "compact"},
            replication_factor=replication_factor,
        )
    writer = cluster.writer(_WRITER)
    try:
        log = TopicPartition(topic, 0)  # looked at only now: every other writer is fenced
        # A restore that was interrupted leaves transaction markers, and no readable record.
        ends, begins = cluster.end_offsets([topic]), cluster.beginning_offsets([topic])
        if ends.get(log) > begins.get(log) and read_all(cluster, topic=topic):
            raise Conflict(
                f'topic "{topic}" has records: a backup is restored into an empty registry only',
                hint="restore into a new cluster; or back this one up, stop its registry, delete the topic "
                f'"{topic}" and restore again',
                code="HUB-1911",
            )
        writer.append(
            [
                NewRecord(topic, each.key, each.value, each.headers, each.timestamp_ms, 0)
                for each in backup_records
            ]
        )
    finally:
        writer.close()
    cluster.writer(_WRITER).close()  # waits until the committed records can be read
    _verify(backup_records, read_all(cluster, progress, topic), topic)


def _verify(backup_records: Sequence[BackupRecord], found: Sequence[BackupRecord], topic: str) -> None:
    for index, (each, there) in enumerate(zip(backup_records, found, strict=False), 1):
        # librdkafka takes a timestamp of 0 for "now", so that it is written as 1
        if replace(each, timestamp_ms=max(1, each.timestamp_ms)) != there:
            raise HubFault(
                f'topic "{topic}": record {index} of the backup is read back as another',
                hint="did somebody write to it meanwhile? Delete the topic and restore again",
            )
    # A running registry may have appended records; compaction leaves a topic's last segment alone.
    if len(found) < len(backup_records):
        raise HubFault(
            f'topic "{topic}": {len(backup_records)} records were written and {len(found)} are read back',
            hint="delete the topic and restore again",
        )
