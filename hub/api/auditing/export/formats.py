"""[core] Entries as syslog messages (RFC 5424), batches of CloudEvents, and OTLP logs in JSON.

Sources: RFC 5424, RFC 6587 (octet counting), CloudEvents' JSON batch format 1.0.2, OpenTelemetry Protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.access_log.actions import Outcome
from hub.access_log.entry import StoredEntry, iso

# Facility 13 (log audit); severity 4 (warning) for refused and failed requests, else 6 (informational).
_FACILITY, _WARNING, _INFO = 13, 4, 6
# Longest message by UDP, in bytes; a longer one is cut.
MOST_DATAGRAM = 8_000
_ENTERPRISE = "hub@32473"


@dataclass(frozen=True, slots=True)
class ExportedEntry:
    """An entry and its record's value."""

    stored: StoredEntry
    value: bytes


def syslog_message(entry: ExportedEntry, host: str, process: int) -> bytes:
    """Return the RFC 5424 message of an entry; its text is the CloudEvent."""
    stored, what = entry.stored, entry.stored.entry
    severity = _WARNING if what.result in (Outcome.denied, Outcome.failed) else _INFO
    facts = {
        "offset": stored.offset,
        "who": what.who.name,
        "address": what.who.address,
        "object": f"{what.kind} {what.name}".strip(),
        "result": what.result,
    }
    data = " ".join(f'{name}="{_escaped(str(value))}"' for name, value in facts.items())
    priority, name = _FACILITY * 8 + severity, host[:255] or "-"
    head = f"<{priority}>1 {iso(what.at_ms)} {name} hub {process} {what.action[:32]}"
    return f"{head} [{_ENTERPRISE} {data}] ".encode() + entry.value


def framed(message: bytes) -> bytes:
    """Return a message with its length before it, as TCP and TLS need it."""
    return str(len(message)).encode() + b" " + message


def cloud_events(entries: Sequence[ExportedEntry]) -> list[Any]:
    """Return the body of a batch of CloudEvents."""
    return [orjson.loads(each.value) for each in entries]


def otlp_logs(entries: Sequence[ExportedEntry], host: str) -> dict[str, Any]:
    """Return the body of an ExportLogsServiceRequest in JSON."""
    return {
        "resourceLogs": [
            {
                "resource": {
                    "attributes": [
                        _attribute("service.name", "hub-access-log"),
                        _attribute("host.name", host),
                    ]
                },
                "scopeLogs": [
                    {"scope": {"name": "hub.access"}, "logRecords": [_log(each) for each in entries]}
                ],
            }
        ]
    }


def _log(entry: ExportedEntry) -> dict[str, Any]:
    stored, what = entry.stored, entry.stored.entry
    warns = what.result in (Outcome.denied, Outcome.failed)
    facts = {
        "hub.id": what.id,
        "hub.offset": str(stored.offset),
        "hub.action": what.action,
        "hub.result": what.result,
        "hub.kind": what.kind,
        "hub.name": what.name,
        "enduser.id": what.who.name,
        "client.address": what.who.address,
        "hub.request_id": what.request_id,
    }
    return {
        "timeUnixNano": str(what.at_ms * 1_000_000),
        "observedTimeUnixNano": str(what.at_ms * 1_000_000),
        "severityNumber": 13 if warns else 9,
        "severityText": "WARN" if warns else "INFO",
        "body": {"stringValue": entry.value.decode()},
        "attributes": [_attribute(name, str(value)) for name, value in facts.items()],
    }


def _attribute(name: str, value: str) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value}}


def _escaped(text: str) -> str:
    for each in ("\\", '"', "]"):
        text = text.replace(each, f"\\{each}")
    return text
