"""[shell] Trace spans of applied batches, linked to the events that they cover."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.materializers.applying.followed_view import AppliedView
from hub.materializers.stores.store import ViewBatch
from hub.record import Positions
from hub.tracing import MOST_LINKS, Span, parse, spans


def batch_spans(
    store: str,
    followed: Mapping[str, AppliedView],
    batches: Sequence[ViewBatch],
    records: dict[str, Any],
) -> dict[str, Span]:
    """Return a span for each batch that covers traced progress, linked to it, by view.

    The span's context goes to the store with the rows (``records``), and the changelog range that it covers;
    a push finds it by that.
    """
    known, found = spans(), {}
    for batch in batches if known is not None else ():
        view = followed[batch.view]
        links = [trace for each in view.covered if (trace := parse(each.trace)) is not None]
        if known is None or not links:
            continue
        span = known.start(
            f"apply {batch.view}",
            "consumer",
            links=links[-MOST_LINKS:],
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.operation.name": "apply",
                "messaging.destination.name": view.view.changelog,
                "messaging.batch.message_count": len(batch.changes),
                "hub.view": batch.view,
                "hub.store": store,
            },
        )
        end = view.covered[-1].changelog
        if view.traced_to is not None:
            stretch = {"first": _by_partition(view.traced_to), "end": _by_partition(end)}
            view.traced.append({"traceparent": span.trace.traceparent, **stretch})
            records[f"trace:{batch.view}"] = {"batches": list(view.traced)}
        view.traced_to = end
        found[batch.view] = span
    return found


def _by_partition(positions: Positions) -> dict[str, int]:
    return {str(tp.partition): offset for tp, offset in positions}
