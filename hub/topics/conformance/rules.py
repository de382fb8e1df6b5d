"""[core] Judge a record against its topic's schema; tally by partition; build the quarantine copy.

A topic's values carry schemas of the subject ``<topic>-value`` (TopicNameStrategy) in the Confluent wire
format. The tally of a partition is one record of the compacted topic ``_hub.audit``: the position reached,
and the results. It is written in one transaction with the quarantine copies, so each violation is copied
exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from hub.errors import HubFault
from hub.formats.fields import fields_of, known_fields
from hub.record import NewRecord, Record, TopicPartition
from hub.schema_registry.codecs.avro_validator import BrokenValue, TooDeep
from hub.schema_registry.contracts.rules import RuleRefused

AUDIT_TOPIC = "_hub.audit"
QUARANTINE_SUFFIX = ".quarantine"
PRODUCER_HEADER = "hub.producer"
UNKNOWN = "unknown"
# Producers choose their names, so the number of names per partition is limited.
MOST_PRODUCERS = 50
OTHER = "other"

Reason = Literal[
    "framing",
    "unknown_schema",
    "foreign_schema",
    "undecodable",
    "rest",
    "too_deep",
    "too_large",
    "rule",
    "policy",
]
Mode = Literal["off", "report", "quarantine"]


@dataclass(frozen=True, slots=True)
class ConformanceViolation:
    """Reason why a record violates its schema. ``detail`` is one line for people."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema id as registered. ``check`` None: bodies of its format are not checked. ``rules`` returns why
    a body violates the schema's data rules; None: the schema has no rules that can be evaluated.
    """

    belongs: bool
    check: Callable[[bytes, int], int] | None
    rules: Callable[[bytes, int], str | None] | None = None


# (record, schema id) → why a policy rejects an otherwise valid record; None if it does not.
Policy = Callable[[Record, int], str | None]


def judge(
    record: Record, schema_of: Callable[[int], KnownSchema | None], policies: Sequence[Policy] = ()
) -> ConformanceViolation | None:
    """Return the violation of a record, None for a valid one. A tombstone is valid.

    ``schema_of`` looks up an id for the record's own subject; None: the id is not registered.
    """
    value = record.value
    if value is None:
        return (
            None
            if record.unread is None
            else ConformanceViolation("too_large", f"it is not read: {record.unread}")
        )
    if len(value) < 5 or value[0] != 0:
        if len(value) >= 5:
            detail = f"the first byte is {value[0]}, not 0"
        else:
            detail = f"{len(value)} bytes are not a magic byte and schema id"
        return ConformanceViolation("framing", detail)
    schema_id = int.from_bytes(value[1:5], "big")
    known_schema = schema_of(schema_id)
    if known_schema is None:
        return ConformanceViolation("unknown_schema", f"schema id {schema_id} is not registered")
    if not known_schema.belongs:
        return ConformanceViolation(
            "foreign_schema", f'schema id {schema_id} is not of subject "{record.topic}-value"'
        )
    conformance_violation = _judge_value(value, known_schema, schema_id)
    if conformance_violation is None:
        refusals = (policy(record, schema_id) for policy in policies)
        refused = next((each for each in refusals if each is not None), None)
        return None if refused is None else ConformanceViolation("policy", refused)
    return conformance_violation


def _judge_value(value: bytes, known_schema: KnownSchema, schema_id: int) -> ConformanceViolation | None:
    if known_schema.check is not None:
        try:
            end = known_schema.check(value, 5)
        except TooDeep as error:
            return ConformanceViolation("too_deep", str(error))
        except BrokenValue as error:
            return ConformanceViolation("undecodable", f"schema id {schema_id}: {error}")
        if end != len(value):
            return ConformanceViolation(
                "rest", f"schema id {schema_id}: {len(value) - end} bytes are left at byte {end}"
            )
    if known_schema.rules is None:
        return None
    try:
        broken = known_schema.rules(value, 5)
    except RuleRefused as error:  # the rule exceeded its limits, so its result is unknown
        broken = error.message
    except BrokenValue as error:
        broken = f"the schema's rules cannot be asked: {error}"
    return None if broken is None else ConformanceViolation("rule", f"schema id {schema_id}: {broken}")


def producer_of(record: Record) -> str:
    """Return the producer's name from its header; a consumer does not see client ids."""
    name = record.header(PRODUCER_HEADER)
    return (name.decode(errors="replace")[:100] if name else "") or UNKNOWN


def copy_of(record: Record, violation: ConformanceViolation) -> NewRecord:
    """Build the quarantine copy: key, value and headers unchanged, plus headers for origin and reason.

    The copy gets its own timestamp: retention is based on it, and would delete a copy with an old timestamp
    at once.
    """
    added = {
        "hub.quarantine.topic": record.topic,
        "hub.quarantine.partition": str(record.partition),
        "hub.quarantine.offset": str(record.offset),
        "hub.quarantine.timestamp": str(record.timestamp_ms),
        "hub.quarantine.reason": violation.reason,
        "hub.quarantine.detail": violation.detail,
    }
    headers = (*record.headers, *((name, text.encode()) for name, text in added.items()))
    return NewRecord(
        record.topic + QUARANTINE_SUFFIX,
        record.key,
        record.value,
        headers,
        None,
        record.partition,
    )


def size_of(record: NewRecord) -> int:
    """Return an upper bound of the size of a record in a batch of its own, in bytes."""
    headers = sum(len(name) * 4 + len(value or b"") + 20 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 200


@dataclass(slots=True)
class Tally:
    """Results for one partition. ``position`` is the next offset to judge.

    ``missed`` counts offsets that were deleted before they were read; ``uncopied`` violations that could not
    be copied to quarantine. ``unread`` is the reason why the record at ``position`` cannot be read, "" if it
    can.
    """

    topic: str
    partition: int
    topic_id: str
    position: int = 0
    mode: Mode = "report"
    checked: int = 0
    missed: int = 0
    quarantined: int = 0
    uncopied: int = 0
    violations: dict[tuple[str, str], int] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    unread: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def take(self, record: Record, violation: ConformanceViolation | None, copied: bool | None) -> None:
        """Count a judged record. ``copied`` None: the topic's mode is not quarantine, or the record is
        valid.
        """
        self.position = record.offset + 1
        self.unread = ""
        self.checked += 1
        if violation is None:
            return
        producer = producer_of(record)
        named = {name for _, name in self.violations}
        if producer not in named and len(named) >= MOST_PRODUCERS:
            producer = OTHER
        pair = (violation.reason, producer)
        self.violations[pair] = self.violations.get(pair, 0) + 1
        self.quarantined += copied is True
        self.uncopied += copied is False
        self.last = {
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "reason": violation.reason,
            "detail": violation.detail[:300],
            "producer": producer,
        }

    def moved(self, begin: int, end: int) -> None:
        """Move a position outside the log to the nearest valid offset, and count offsets that were never
        judged.
        """
        if self.position < begin:
            self.missed += begin - self.position
            self.position, self.unread = begin, ""
        self.position = min(self.position, end)

    def record(self) -> NewRecord:
        """Serialize the tally as a record of the audit topic."""
        violations = [
            {"reason": reason, "producer": producer, "count": count}
            for (reason, producer), count in sorted(self.violations.items())
        ]
        body = {**fields_of(self, but=("topic", "partition")), "violations": violations}
        key = orjson.dumps({"topic": self.topic, "partition": self.partition})
        return NewRecord(AUDIT_TOPIC, key, orjson.dumps(body))


def tally_of(record: Record) -> Tally:
    """Parse a record of the audit topic. Raises HubFault naming the record."""
    try:
        key, body = orjson.loads(record.key or b""), orjson.loads(record.value or b"")
        violations = {(each["reason"], each["producer"]): each["count"] for each in body["violations"]}
        return known_fields(Tally, {**body, **key, "violations": violations})
    except (ValueError, KeyError, TypeError) as error:
        raise HubFault(
            f'topic "{AUDIT_TOPIC}" partition {record.partition} offset {record.offset}: no tally ({error})',
            hint=f"delete the topic {AUDIT_TOPIC}: every checked topic is checked again from its start",
        ) from None


def summary(tallies: Iterable[Tally]) -> list[dict[str, Any]]:
    """Return one row per topic, sorted: sums over its partitions, violations by reason and by producer, the
    latest violation.
    """
    rows: dict[str, dict[str, Any]] = {}
    for tally in sorted(tallies, key=lambda each: each.topic_partition):
        row = rows.setdefault(
            tally.topic,
            {
                "topic": tally.topic,
                "audit": tally.mode,
                **dict.fromkeys(("checked", "violations", "quarantined", "uncopied", "missed"), 0),
                "by_reason": {},
                "by_producer": {},
                "positions": {},
                "unread": {},
                "last": None,
            },
        )
        for name in ("checked", "quarantined", "uncopied", "missed"):
            row[name] += getattr(tally, name)
        for (reason, producer), count in tally.violations.items():
            row["violations"] += count
            row["by_reason"][reason] = row["by_reason"].get(reason, 0) + count
            row["by_producer"][producer] = row["by_producer"].get(producer, 0) + count
        row["positions"][str(tally.partition)] = tally.position
        if tally.unread:
            row["unread"][str(tally.partition)] = tally.unread
        if tally.last is not None:
            latest = {"partition": tally.partition, **tally.last}
            if row["last"] is None or latest["timestamp_ms"] >= row["last"]["timestamp_ms"]:
                row["last"] = latest
    return list(rows.values())


def counters(tallies: Iterable[Tally]) -> list[tuple[str, str, Mapping[str, str], float]]:
    """Return (series, help, labels, value) for Prometheus; sums over the partitions of a topic."""
    sums: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}

    def add(name: str, help_text: str, value: int, **labels: str) -> None:
        place = (name, help_text, tuple(labels.items()))
        sums[place] = sums.get(place, 0) + value

    for each in tallies:
        topic = each.topic
        add("hub_audit_records", "Records that were checked", each.checked, topic=topic)
        add("hub_audit_quarantined", "Violations copied to quarantine", each.quarantined, topic=topic)
        add("hub_audit_uncopied", "Violations too large for quarantine", each.uncopied, topic=topic)
        add(
            "hub_audit_missed", "Offsets that were deleted before they were checked", each.missed, topic=topic
        )
        for (reason, producer), count in each.violations.items():
            add(
                "hub_audit_violations",
                "Records that are not what their topic's schema promises",
                count,
                topic=topic,
                reason=reason,
                producer=producer,
            )
    return [
        (name, help_text, dict(labels), value) for (name, help_text, labels), value in sorted(sums.items())
    ]
