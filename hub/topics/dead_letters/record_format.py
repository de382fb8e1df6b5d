"""[core] Formats of the log: records of dead-letter topics, and actions in the topic ``_hub.dlq``."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b

import orjson

from hub.errors import CallerError, HubFault
from hub.record import Record
from hub.topics.conformance.rules import QUARANTINE_SUFFIX, UNKNOWN
from hub.topics.dead_letters.model import (
    COUNT,
    DLQ_SUFFIX,
    LATE_SUFFIX,
    MOST_CODE,
    REPLAY_OF,
    STATES,
    TOO_LARGE,
    UNREAD,
    DeadLetter,
    DeadLetterAction,
    Kind,
    Ledger,
    RecordPlace,
)

# Pattern of the reason that a view writes → the reason code that the record is counted under.
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), code)
    for pattern, code in (
        (UNREAD, TOO_LARGE),
        (r"not in the Confluent wire format", "framing"),
        (r"its bytes do not fit its schema id", "undecodable"),
        (r"its schema id \d+ is (?:not a|no) record schema", "unknown_schema"),
        (r"the view's key is null|the table's key .* is null|it has no record key", "null_key"),
        (r"a tombstone", "tombstone"),
        (r"its event time .* is null", "null_event_time"),
        (r"its event time .* ahead of", "event_time_ahead"),
        # The check covers only the schema and the columns that a view reads; another view may accept the
        # event.
        (
            (
                r"it does not fit its schema id|its schema id \d+ does not resolve|no JSON object of its "
                r"columns|no line of CSV|no XML document|not UTF-8|its transform gives null|"
                r"its .+ is (?:not a valid|no) "
            ),
            "unfitting",
        ),
    )
)
OTHER = "other"
# Anybody can write headers, so their contents are bounded: names to the length limit of Kafka topic names,
# codes to 100 characters, and numbers to 19 digits.
_MOST_NAME = 249
_TIME = re.compile(r"-?\d{1,19}", re.ASCII)
# Headers of Kafka Connect's queues (KIP-298), by the names of the hub's own.
_CONNECT = "__connect.errors."
_OF_CONNECT: Mapping[str, str] = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "view": "connector.name",
    "reason": "exception.message",
}
_PREFIXES: Mapping[Kind, str] = {"view": "hub.dlq.", "audit": "hub.quarantine.", "late": "hub.late."}
_SUFFIXES: Mapping[Kind, str] = {"view": DLQ_SUFFIX, "audit": QUARANTINE_SUFFIX}


def kind_of(topic: str) -> Kind | None:
    """Return the kind of a dead-letter topic, None for any other topic."""
    if topic.startswith("_"):
        return None
    if topic.endswith(DLQ_SUFFIX):
        return "view"
    if topic.endswith(QUARANTINE_SUFFIX):
        return "audit"
    if topic.startswith("views.") and topic.endswith(LATE_SUFFIX):
        return "late"
    return None


def dead_letter_of(record: Record) -> DeadLetter:
    """Parse a record of a dead-letter topic. A record that the hub did not write has no original position,
    and its ``detail`` states that. Raises CallerError for any other topic.
    """
    kind = kind_of(record.topic)
    if kind is None:
        raise CallerError(
            f'topic "{record.topic}" holds no dead-letter records',
            hint="they are in *.dlq, *.quarantine and views.*.late",
        )
    prefix = _PREFIXES[kind]
    header = _HubHeaders(record, prefix)
    of = _origin(record.topic, kind, header)
    by, reason, detail = _reason(record.topic, kind, header)
    return DeadLetter(
        RecordPlace(record.topic, record.partition, record.offset),
        kind,
        by,
        reason,
        detail,
        of,
        None if of is None else _first(of, record.header(REPLAY_OF)),
        record.key,
        record.value,
        _timestamp_ms(record, kind, header),
        record.timestamp_ms,
        tuple(each for each in record.headers if not each[0].startswith((prefix, _CONNECT))),
        None if record.value is None else blake2b(record.value, digest_size=16).digest(),
    )


@dataclass(frozen=True, slots=True)
class _HubHeaders:
    """Headers that the hub, or Kafka Connect, added to a dead-letter record, as text."""

    record: Record
    prefix: str

    def get(self, name: str) -> str | None:
        found = self.record.header(self.prefix + name)
        if found is None and name in _OF_CONNECT:
            found = self.record.header(_CONNECT + _OF_CONNECT[name])
        return None if found is None else found.decode(errors="replace")


def _origin(topic: str, kind: Kind, header: _HubHeaders) -> RecordPlace | None:
    """Return the position of the original event, None if the record does not name one."""
    of = _place(header.get("topic"), header.get("partition"), header.get("offset"))
    suffix = _SUFFIXES.get(kind)
    if of is not None and suffix is not None and of.topic + suffix != topic:
        return None  # anybody who may write to this topic could otherwise replay into any topic
    return of


def _reason(topic: str, kind: Kind, header: _HubHeaders) -> tuple[str, str, str]:
    """Return (who rejected the event, reason code, detail)."""
    if kind == "view":
        detail = header.get("reason") or "the reason is unknown: the hub did not write this record"
        reason = next((code for pattern, code in _REASONS if pattern.match(detail)), OTHER)
        return (header.get("view") or UNKNOWN)[:_MOST_NAME], reason, detail
    if kind == "audit":
        return "auditor", (header.get("reason") or OTHER)[:MOST_CODE], header.get("detail") or ""
    detail = f"event time {header.get('event_time')} is behind the watermark {header.get('watermark')}"
    return topic.removeprefix("views.").removesuffix(LATE_SUFFIX), "late", detail


def _timestamp_ms(record: Record, kind: Kind, header: _HubHeaders) -> int | None:
    time = header.get("timestamp")
    if kind == "audit" and time is None and record.timestamp_ms >= 0:
        return record.timestamp_ms  # copies written by earlier versions have the original's timestamp
    return int(time) if time is not None and _TIME.fullmatch(time) else None


def _first(of: RecordPlace, replay_of: bytes | None) -> RecordPlace:
    """Return the position used for ordering: ``of``, or the first position of an event that was a replay."""
    if replay_of is None:
        return of
    try:
        earlier = RecordPlace.parse(replay_of.decode(errors="replace"))
    except CallerError:
        return of
    same_log = earlier.topic_partition == of.topic_partition
    return earlier if same_log and earlier.offset < of.offset else of


def without_value(letter: DeadLetter) -> DeadLetter:
    """Drop the value: a list reads up to 100,000 records, and one value can take megabytes."""
    return replace(letter, value=None)


def _place(topic: str | None, partition: str | None, offset: str | None) -> RecordPlace | None:
    if (
        not topic
        or partition is None
        or offset is None
        or not COUNT.fullmatch(partition)
        or not COUNT.fullmatch(offset)
    ):
        return None
    return RecordPlace(topic, int(partition), int(offset))


# ---- actions


def entry_of(record: Record) -> DeadLetterAction:
    """Parse a record of the topic ``_hub.dlq``. Raises HubFault naming the record."""
    try:
        key, body = orjson.loads(record.key or b""), orjson.loads(record.value or b"")
        if body["state"] not in STATES:
            raise ValueError(f"state {body['state']!r}")
        return DeadLetterAction(
            RecordPlace(key["topic"], key["partition"], key["offset"]),
            body["topic_id"],
            body["state"],
            body["by"],
            body["at_ms"],
            body["why"],
            body["has_value"],
            None if body["value"] is None else base64.b64decode(body["value"]),
            None if body["key"] is None else base64.b64decode(body["key"]),
            None if body["went"] is None else RecordPlace.parse(body["went"]),
        )
    except (ValueError, KeyError, TypeError, CallerError) as error:
        raise HubFault(
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: '
            f"not an action on a dead-letter record ({error})",
            hint="a later version of the hub may have written it; the dead-letter records "
            "themselves are unchanged",
        ) from None


def folded(records: Iterable[Record], before: Ledger | None = None) -> dict[RecordPlace, DeadLetterAction]:
    """Return the last action per dead-letter record. A record without a value deletes the action."""
    letter_actions = dict(before or {})
    for record in records:
        if record.unread is not None:
            continue
        if record.value is None:
            key = orjson.loads(record.key or b"{}")
            letter_actions.pop(RecordPlace(key["topic"], key["partition"], key["offset"]), None)
        else:
            entry = entry_of(record)
            letter_actions[entry.at] = entry
    return letter_actions
