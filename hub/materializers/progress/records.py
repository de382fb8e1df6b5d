"""[core] The topic ``_hub.progress``: how far each view has been folded, and its state.

Two kinds of records, JSON, compacted by key. ``progress:<view>`` means: *once a store's changelog positions
cover* ``changelog``, *the store covers the source positions* ``sources``. Read-your-writes, lag and freshness
of views come from it. ``state:<view>`` is the state of the view's engine with a reason; ``isolated``: it runs
in a process of its own. (For groups of views see snapshot_groups/group.py.) A record is written after its
batch is committed, so a lost one delays information and never makes it wrong; at start the last one is
written again from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from hub.errors import HubFault
from hub.formats.fields import fields_of, known_fields
from hub.record import NewRecord, Positions, Record

PROGRESS_TOPIC = "_hub.progress"
PROGRESS_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "compact",
    # It is read from its beginning at every start and whenever a view is added, so the cleaner should keep it
    # short.
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}

Mode = Literal["bulk", "live", "realtime"]
EngineState = Literal["starting", "bulk", "live", "realtime", "retrying", "failed", "isolated", "stopped"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One committed batch of a view. ``generation`` counts the view's recomputations from the start of its
    log.

    For a SQL view, ``dead_records`` and ``late_records`` count the events of this generation that became
    dead-letter records or came after the watermark. ``trace``: the traceparent of the batch's span, if it has
    one. ``read_at_ms``: when the batch took its events, all of which were in the log by then; None if unknown
    (real time).
    """

    view: str
    generation: int
    batch_id: int
    mode: Mode
    sources: Positions
    changelog: Positions
    input_rows: int
    batch_ms: int
    committed_at_ms: int
    dead_records: int = 0
    late_records: int = 0
    trace: str = ""
    read_at_ms: int | None = None

    def record(self) -> NewRecord:
        unset = [name for name in ("trace", "read_at_ms") if getattr(self, name) in ("", None)]
        body = {
            **fields_of(self, but=unset),
            "sources": by_topic(self.sources),
            "changelog": {str(tp.partition): offset for tp, offset in self.changelog},
            "rows_per_second": round(self.input_rows * 1000 / self.batch_ms, 1) if self.batch_ms else 0.0,
        }
        return NewRecord(PROGRESS_TOPIC, f"progress:{self.view}".encode(), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class ViewState:
    """State of a view's engine, since when, and the reason when it is not running."""

    view: str
    state: EngineState
    since_ms: int
    reason: str | None
    doc: str
    owner: str
    sources: Mapping[str, str]
    ttl: str | None = None
    cut: str | None = None

    def record(self, run: str = "") -> NewRecord:
        """Return the record. ``run``: names the run of the materializer that reports; "": another process."""
        body = fields_of(self, but=[name for name in ("ttl", "cut") if getattr(self, name) is None])
        body["sources"] = dict(self.sources)
        if run:
            body["run"] = run
        return NewRecord(PROGRESS_TOPIC, f"state:{self.view}".encode(), orjson.dumps(body))


def position_record(positions: Positions, at_ms: int) -> dict[str, Any]:
    """Return a store's record ``seen:<view>``: source positions that its rows show to be read, and since
    when.

    A real-time view reports positions at checkpoints only; between them its lag is measured by this record.
    """
    return {"sources": by_topic(positions), "at_ms": at_ms}


def progress_of(record: Record, changelog: str) -> Progress | None:
    """Return the Progress in a record of the topic; None for other kinds. ``changelog``: the view's changelog
    topic.

    Raises HubFault with the offset when the record is not in this hub's format.
    """
    if record.value is None or record.key is None or not record.key.startswith(b"progress:"):
        return None
    try:
        body: dict[str, Any] = orjson.loads(record.value)
        sources = Positions.of(
            (topic, int(partition), offset)
            for topic, offsets in body["sources"].items()
            for partition, offset in offsets.items()
        )
        at = Positions.of(
            (changelog, int(partition), offset) for partition, offset in body["changelog"].items()
        )
        return known_fields(Progress, {**body, "sources": sources, "changelog": at})
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise HubFault(
            f'topic "{record.topic}" partition {record.partition} offset {record.offset}: '
            f"not a progress record ({error})",
            hint="delete the topic; the materializer writes it again",
        ) from error


def by_topic(positions: Positions) -> dict[str, dict[str, int]]:
    """Group positions in Spark's offset format: ``{"topic": {"0": next}}``."""
    grouped: dict[str, dict[str, int]] = {}
    for tp, offset in positions:
        grouped.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return grouped
