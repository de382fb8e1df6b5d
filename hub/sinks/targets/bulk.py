"""[core] Requests and answers of the ``_bulk`` API of Elasticsearch and OpenSearch.

An action has an external version, so that a repeated or late one changes nothing: the cluster answers 409,
which counts as delivered. The version of a row of a view is its own (``hub.version``), that of a record
its offset + 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from hub.record import Record
from hub.sinks.events import RefusedRecord, SinkEvent
from hub.sinks.sinks_file import VIEWS
from hub.sinks.targets.webhook_answers import FIRST_PAUSE_S, MOST_PAUSE_S

# Limit of Elasticsearch, in bytes.
_LONGEST_ID = 512
_BUSY = (429, 502, 503, 504)
_OF_ADDRESS = (401, 403)
_MOST_REASON = 300
_VERSION = "hub.version"


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One document, written or deleted. ``body``: its lines of the request."""

    event: SinkEvent
    body: bytes
    deletes: bool


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """``again``: actions that the cluster did not take now, and why. ``refused``: those it never takes.
    ``failed``: of ``again``, those that may be the reason themselves.
    """

    again: Sequence[BulkAction]
    refused: Sequence[RefusedRecord]
    reason: str = ""
    failed: frozenset[str] = frozenset()


def actions_of(index: str, events: Sequence[SinkEvent]) -> tuple[list[BulkAction], list[RefusedRecord]]:
    """Return the newest action of each document, and the events that cannot be one."""
    newest: dict[str, SinkEvent] = {}
    refused = []
    for event in events:
        id = event.key if event.key is not None else event.id
        if not id or len(id.encode()) > _LONGEST_ID:
            refused.append(
                RefusedRecord(
                    event.record, f"its key has {len(id.encode())} bytes; an id has 1 to {_LONGEST_ID}"
                )
            )
        else:
            newest.pop(id, None)
            newest[id] = event
    return [_action(index, id, event) for id, event in newest.items()], refused


def _action(index: str, id: str, event: SinkEvent) -> BulkAction:
    deletes = event.row is None
    about = {
        "_index": index,
        "_id": id,
        "version": version_of(event.record),
        "version_type": "external",
    }
    lines = [orjson.dumps({"delete" if deletes else "index": about})]
    if not deletes:
        lines.append(orjson.dumps(event.row, default=str, option=orjson.OPT_NON_STR_KEYS))
    return BulkAction(event, b"\n".join(lines) + b"\n", deletes)


def version_of(record: Record) -> int:
    """Return a number that grows with every record of a key."""
    noted = record.header(_VERSION) if record.topic.startswith(VIEWS) else None
    return int(noted) if noted is not None and noted.isdigit() else record.offset + 1


def chunks_of(actions: Sequence[BulkAction], most_bytes: int) -> Iterator[list[BulkAction]]:
    """Yield the actions in requests of at most this size; a larger document has one of its own."""
    chunk: list[BulkAction] = []
    size = 0
    for action in actions:
        if chunk and size + len(action.body) > most_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(action)
        size += len(action.body)
    if chunk:
        yield chunk


def judge_items(body: Any, sent: Sequence[BulkAction]) -> BulkOutcome:
    """Return the outcome of each action. Raises ValueError for an answer that is not that of ``_bulk``."""
    items = body.get("items") if isinstance(body, Mapping) else None
    if not isinstance(items, list) or len(items) != len(sent):
        raise ValueError("the answer is not that of _bulk")
    again, refused, failed, reason = list[BulkAction](), list[RefusedRecord](), set[str](), ""
    for action, item in zip(sent, items, strict=True):
        result: Mapping[str, Any] = next(iter(item.values()))
        status, error = int(result["status"]), _error(result)
        if status < 300 or status == 409 or (action.deletes and status == 404):
            continue
        if status in (*_BUSY, *_OF_ADDRESS, 404) or status >= 500:
            again.append(action)
            reason = reason or error
            if status >= 500 and status not in _BUSY:
                failed.add(action.event.id)
        else:
            refused.append(RefusedRecord(action.event.record, error))
    return BulkOutcome(again, refused, reason, frozenset(failed))


def _error(result: Mapping[str, Any]) -> str:
    error = result.get("error")
    if isinstance(error, Mapping):
        error = f"{error.get('type')}: {error.get('reason')}"
    return f"status {result['status']}: {' '.join(str(error or 'no reason given').split())[:_MOST_REASON]}"


def is_about_request(status: int | None) -> bool:
    """Return whether an answer means that this request is too large or malformed, not that the cluster is
    down or its address wrong."""
    return status in (400, 406, 413, 415, 422)


def pause_s(failures: int, retry_after_s: float | None) -> float:
    """Return the pause before the next request. ``failures``: how many failed in a row before."""
    grown_s = min(FIRST_PAUSE_S * 2.0 ** min(failures, 16), MOST_PAUSE_S)
    return grown_s if retry_after_s is None else retry_after_s
