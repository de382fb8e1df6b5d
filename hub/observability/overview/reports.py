"""[core] Progress and state records of a view (topic ``_hub.progress``) as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hub.observability.lag.states import ReaderState
from hub.record import Positions

EXPIRY_PREFIX = "_hub.expiry."
UNAPPLIED = "batches are committed, and the applier does not bring them into the store"


class ViewSource(Protocol):
    """Operations of the store and its push side that observability needs. Every call is short and may raise
    HubError."""

    def progress(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the records of ``_hub.progress`` in the store, by key."""

    def row_counts(self) -> Mapping[str, int]:
        """Return the number of rows that the store serves, by view."""

    def subscribers(self) -> Mapping[str, int]:
        """Return the number of open subscriptions by view, where known."""

    def row(self, view: str, key: str) -> Mapping[str, Any] | None:
        """Return a row as served: its fields, ``_version``, ``_sources``. A deleted row may come with
        ``_deleted`` true."""

    def recent_keys(self, view: str, limit: int) -> Sequence[str]:
        """Return keys of the most recently changed rows, newest first."""


@dataclass(frozen=True, slots=True)
class ViewReport:
    """Latest report of a view.

    ``positions``: positions that its committed batches have read; None: none committed yet. A realtime view
    commits only at checkpoints: between them, the positions that its rows show count too. ``applied``: the
    position of its changelog in the store; None: not reported. ``unapplied``: the log has a later batch than
    the store, so the applier is late, not the engine.
    """

    view: str
    state: str = "starting"
    reason: str | None = None
    since_ms: int | None = None
    doc: str = ""
    owner: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    positions: Positions | None = None
    input_rows: int | None = None
    batch_ms: int | None = None
    committed_at_ms: int | None = None
    applied: Positions | None = None
    ttl: str | None = None
    unapplied: bool = False

    @property
    def expired(self) -> int | None:
        """Number of row expiries that its batches have processed; None without a TTL or before the first
        commit."""
        if self.ttl is None or self.positions is None:
            return None
        return sum(at for tp, at in self.positions if tp.topic == f"{EXPIRY_PREFIX}{self.view}")

    @property
    def reader(self) -> ReaderState:
        """The view's engine as the reader of its topics."""
        silent = self.reason or "nothing was reported about it" if self.state == "unknown" else ""
        # Between checkpoints, events that change no row do not advance the position; this is normal.
        interval_s = (self.batch_ms or 0) / 1000 if self.state == "realtime" else 0.0
        return ReaderState(
            self.state,
            self.reason,
            committed_at_ms=self.committed_at_ms,
            silent=silent,
            why_stuck=UNAPPLIED if self.unapplied else "",
            interval_s=interval_s,
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that it reads: those of its positions, and those named in its file."""
        named = {topic for topic in self.sources.values() if "*" not in topic}
        read = {tp.topic for tp, _ in self.positions} if self.positions is not None else set()
        return tuple(sorted(named | read))


def reports_of(records: Mapping[str, Mapping[str, Any]]) -> tuple[ViewReport, ...]:
    """Return one report for each view, by name.

    ``records`` by key: ``state:<view>``, ``progress:<view>``, ``seen:<view>``; ``applied:<view>``, if the
    store reports its position in the changelog; and ``told:<view>``, the latest progress in the log.
    """
    names = sorted({key.partition(":")[2] for key in records if key.startswith(("state:", "progress:"))})
    return tuple(
        _report_or_why_not(
            name,
            *(records.get(f"{kind}:{name}", {}) for kind in ("state", "progress", "seen", "applied", "told")),
        )
        for name in names
    )


def _report_or_why_not(view: str, *records: Mapping[str, Any]) -> ViewReport:
    """Return one view's report, or a report in state "unknown" when its records are malformed, so that other
    views stay visible."""
    try:
        return _report(view, *records)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return ViewReport(
            view, "unknown", f"its records in _hub.progress are not understood: {error!r}"[:300]
        )


def _report(
    view: str,
    state: Mapping[str, Any],
    progress: Mapping[str, Any],
    observed: Mapping[str, Any],
    applied: Mapping[str, Any],
    reported: Mapping[str, Any],
) -> ViewReport:
    positions = _positions(progress["sources"]) if "sources" in progress else None
    committed_at_ms = progress.get("committed_at_ms")
    if state.get("state") == "realtime" and positions is not None:
        positions = positions.advanced(_positions(observed.get("sources", {})))
        committed_at_ms = max(committed_at_ms or 0, observed.get("at_ms", 0))
    unapplied = (reported.get("committed_at_ms") or 0) > (committed_at_ms or 0)
    if unapplied:
        committed_at_ms = reported["committed_at_ms"]
    return ViewReport(
        view,
        state.get("state") or progress.get("mode") or "starting",
        state.get("reason"),
        state.get("since_ms"),
        state.get("doc") or "",
        state.get("owner") or "",
        state.get("sources") or {},
        progress.get("mode"),
        positions,
        progress.get("input_rows"),
        progress.get("batch_ms"),
        committed_at_ms,
        _positions(applied["positions"]) if "positions" in applied else None,
        state.get("ttl"),
        unapplied,
    )


def _positions(by_topic: Mapping[str, Mapping[str, int]]) -> Positions:
    return Positions.of(
        (topic, int(partition), offset)
        for topic, offsets in by_topic.items()
        for partition, offset in offsets.items()
    )
