"""[core] The one state of each view, from the log, the store, the project's folder and the processes.

The record ``state:<view>`` is the materializer's last report. ``judged`` replaces it where it is outdated,
and all pages, commands, routes, series and alerts read the replaced record. The first line that applies:

========= ==================================================================================================
removed   the materializer, or the folder that both read, has no file of this name
stopped   the materializer reported that it stops, or the serving store stopped the view
unknown   the materializer has not been heard for ``SILENT_S``; the reason names the link that is silent
starting  the materializer was started again, and has not reported the view since then
otherwise the state that the materializer reported
========= ==================================================================================================

A state that a materializer of a later version writes needs no change here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hub.materializers.progress.engine_reports import EngineReport

Newest = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From a store's progress records to those with what is newer in the log,
and the state of each view as it is now."""
SILENT_S = 30.0
REMOVED, STARTING, UNKNOWN = "removed", "starting", "unknown"
_STATE = "state:"


@dataclass(frozen=True, slots=True)
class Links:
    """State of the links from the materializer to this process.

    ``engine``: its last report; None: none was ever received, so no state is replaced. ``silent_s``: time
    since that report. ``kafka``: why Kafka does not answer this process, "" while it does. ``process``:
    description of the materializer's process. ``files``: names of the views that have a file in this
    process's own folder ``folder``; None: it cannot be read. ``others``: views of active materializers of
    other projects on this Kafka.
    """

    engine: EngineReport | None = None
    silent_s: float = 0.0
    kafka: str = ""
    process: str = ""
    files: frozenset[str] | None = None
    folder: str = ""
    others: frozenset[str] = frozenset()

    @property
    def is_silent(self) -> bool:
        return self.engine is not None and self.silent_s > SILENT_S

    def why_silent(self) -> str:
        """Name the silent link, the last that answers, and the process behind it."""
        return why_silent("materializer", self.silent_s, self.kafka, self.process)


def why_silent(process: str, silent_s: float, kafka: str, process_text: str) -> str:
    """Name the silent link, the last that answers, and the process behind it. ``kafka``: see Links."""
    silent = f"the {process}'s reports in _hub.progress have been missing for {_span(silent_s)}"
    answers = f"Kafka does not answer: {kafka}" if kafka else "Kafka answers"
    return f"{silent}; {answers}; {process_text}"


def judged(records: Mapping[str, Any], links: Links) -> dict[str, Any]:
    """Return the progress records with the state of each view as it is now.

    ``records``: the records by key, each view's under its own name (``Store.progress``). A view that was
    removed before it had any row is left out.
    """
    if links.engine is None:
        return dict(records)
    found = dict(records)
    for key, state in records.items():
        if not key.startswith(_STATE):
            continue
        view = key.removeprefix(_STATE)
        if _is_removed(view, state, links):
            if f"progress:{view}" in records:
                found[key] = {**state, "state": REMOVED, "reason": _why_removed(view)}
            else:
                del found[key]
        elif links.is_silent and view not in links.others and state.get("state") not in ("stopped", "failed"):
            last = f"; it was {state.get('state', UNKNOWN)} in its last report"
            found[key] = {**state, "state": UNKNOWN, "reason": links.why_silent() + last}
        elif not links.is_silent and view in links.engine.views and _is_of_earlier_run(state, links.engine):
            why = f"the materializer was started again; the view was {state.get('state', UNKNOWN)} before"
            found[key] = {**state, "state": STARTING, "reason": why}
    return found


def _is_of_earlier_run(state: Mapping[str, Any], engine: EngineReport) -> bool:
    # A state without a run is the serving store's own.
    run = state.get("run", "")
    return run != "" and engine.run not in ("", run)


def _is_removed(view: str, state: Mapping[str, Any], links: Links) -> bool:
    assert links.engine is not None
    if view in links.others:
        return False
    if links.files is not None and links.folder == links.engine.folder:
        return view not in links.files
    # A view that was added since its last report is not in it yet.
    return view not in links.engine.views and (state.get("since_ms") or 0) <= links.engine.at_ms


def _why_removed(view: str) -> str:
    return (
        f'its file views/{view}.yaml is gone; its rows stay as they were, and its topic "views.{view}" stays'
    )


def _span(seconds: float) -> str:
    for size, unit in ((172_800, 86_400), (7_200, 3_600), (120, 60)):
        if seconds >= size:
            return f"{seconds / unit:.0f} {({86_400: 'd', 3_600: 'h', 60: 'min'})[unit]}"
    return f"{seconds:.0f} s"
