"""[shell] Progress and states of views, waiting to be written to ``_hub.progress``."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.kafka.connection import is_no_answer
from hub.log import Writer
from hub.materializers.progress.batch_traces import BatchTraces
from hub.materializers.progress.published import published_progress
from hub.materializers.progress.records import Progress, ViewState
from hub.record import Positions, TopicPartition

log = logging.getLogger(__name__)

_SILENT_S = 30.0


@dataclass
class ProgressQueue:
    """Progress and states of views, waiting to be written to the progress topic. Keeps the newest of each per
    view. Thread-safe.

    ``live``: last progress of each view that was not in bulk mode. From then on its generation has every key.
    Read by views that use it as a source. ``public`` returns the view's own name for the version that is
    served, None for other versions. ``ask_at``: when to ask again for the end offsets of changelogs that did
    not answer; such a request takes the full timeout. ``run``: names this run of the materializer.
    """

    cluster: KafkaCluster
    writer: Writer
    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: dict[str, tuple[Progress, str]] = field(default_factory=dict)
    states: dict[str, ViewState] = field(default_factory=dict)
    live: dict[str, Progress] = field(default_factory=dict)
    public: Callable[[str], str | None] = lambda table: table
    run: str = ""
    ask_at: dict[str, float] = field(default_factory=dict)
    traces: BatchTraces = field(init=False)
    news: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.traces = BatchTraces(self.cluster)

    def report(self, progress: Progress, changelog: str) -> None:
        with self.lock:
            self.progress[progress.view] = (progress, changelog)
        self.news.set()

    def forget(self, table: str) -> None:
        """Drop the waiting progress of a version: its changelog may be gone."""
        with self.lock:
            self.progress.pop(table, None)

    def report_state(self, state: ViewState) -> None:
        with self.lock:
            self.states[state.view] = state
        self.news.set()
        log.info("view %s: %s%s", state.view, state.state, f" ({state.reason})" if state.reason else "")

    def live_of(self, table: str, logged: Progress | None) -> Progress | None:
        """Return the latest live progress of a version. ``logged``: its last progress in the log, which may
        be that of its own process."""
        here = self.live.get(table)
        if logged is None or logged.mode == "bulk":
            return here
        return here if here is not None and here.generation >= logged.generation else logged

    def load_live(self, changelogs: Mapping[str, str], timeout_s: float) -> None:
        """Load live progress from before this process started, of versions that have not reported since.

        ``changelogs``: the changelog topic of each version. Raises PeerError as ``published_progress`` does.
        """
        for table in changelogs.keys() - self.live.keys():
            progress = published_progress(self.cluster, table, changelogs[table], timeout_s)
            if progress is not None and progress.mode != "bulk":
                self.live.setdefault(table, progress)

    def post(self) -> None:
        """Write waiting progress and states to the progress topic. Keep what Kafka does not accept for the
        next call."""
        self.news.clear()
        with self.lock:
            progress, states = self.progress, self.states
            self.progress, self.states = {}, {}
        if not progress and not states:
            return
        progress = {
            name: (self.traces.traced(done), changelog) for name, (done, changelog) in progress.items()
        }
        try:
            ends = self._ends([changelog for _, changelog in progress.values()])
            known = [
                replace(done, changelog=ends[changelog])
                for done, changelog in progress.values()
                if changelog in ends
            ]
            records = [state.record(self.run) for state in states.values()]
            self.writer.append(records + [each.record() for each in known])
        except HubError as error:
            log.warning("progress not written, tried again: %s", error.message)
            self._again(progress, states)
            return
        self.live |= {each.view: each for each in known if each.mode != "bulk"}
        published = self._publish(known)
        self._again({name: each for name, each in progress.items() if each[0].view not in published}, {})

    def _publish(self, progress: Sequence[Progress]) -> set[str]:
        """Publish progress as offsets of consumer groups, for other tools. Return the views that need not be
        written again: a group that Kafka refuses is left as it is.
        """
        groups = {
            each.view: f"hub.view.{name}" for each in progress if (name := self.public(each.view)) is not None
        }
        due = {groups[each.view]: each.sources for each in progress if each.view in groups}
        try:
            errors: Mapping[str, HubError] = self.cluster.publish_groups(due)
        except HubError as error:
            errors = dict.fromkeys(due, error)
        for group, failed in errors.items():
            again = ", tried again" if is_no_answer(failed) else ""
            log.warning("group %s is not written%s: %s", group, again, failed.message)
        return {each.view for each in progress if not is_no_answer(errors.get(groups.get(each.view, "")))}

    def _ends(self, changelogs: Sequence[str]) -> Mapping[str, Positions]:
        """Return the end offsets of changelogs, read after the commit: at or past the end of everything that
        the batches wrote.

        A changelog whose ends Kafka does not return is left out and asked for again after ``_SILENT_S``, so
        that it does not delay the progress of other views.
        """
        now_s = time.monotonic()
        due = [each for each in changelogs if now_s >= self.ask_at.get(each, 0.0)]
        if not due:
            return {}
        counts = self.cluster.partition_counts(due)
        partitions = [
            TopicPartition(name, number) for name, count in counts.items() for number in range(count)
        ]
        known = self.cluster.known_ends(partitions) if partitions else Positions()
        ends = {name: known.of_topics([name]) for name in due}
        positions = {name: end for name, end in ends.items() if len(end) == counts.get(name)}
        for name in due:
            self.ask_at.pop(name, None)
            if name not in positions:
                log.warning('topic "%s" does not report its end: its view\'s progress waits', name)
                self.ask_at[name] = now_s + _SILENT_S
        return positions

    def _again(self, progress: Mapping[str, tuple[Progress, str]], states: Mapping[str, ViewState]) -> None:
        """Put back what could not be written, unless something newer is waiting."""
        with self.lock:
            self.progress = {**progress, **self.progress}
            self.states = {**states, **self.states}
