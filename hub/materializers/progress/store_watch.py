"""[shell] Follow ``_hub.progress`` in the server: the last reports of the materializer and of the stores'
applier.

Lists show the serving store's records, which are those that were applied into it. A store that is full or
locked, or whose applier is down, can be read but is not written: by its own records its views would be live
for ever. So the server follows the records ``store:``, ``state:``, ``progress:`` and ``engine:`` itself, in a
thread; they override the store's records, and ``over`` derives the states of views from them
(view_states.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hub.config import SERVING
from hub.log import Log, TopicFollower
from hub.materializers.progress.engine_reports import KEY, EngineReport, engine_report_of
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.progress.store_reports import PREFIX, silent
from hub.materializers.progress.view_states import SILENT_S, Links, judged, why_silent
from hub.record import Positions, Record

log = logging.getLogger(__name__)

_FOLLOWED = (PREFIX, "state:", "progress:")
LOG_PROGRESS = "told:"
"""Prefix of the keys under which ``over`` gives the records ``progress:`` as the log has them; the store's
own are those that its rows cover."""


@dataclass(frozen=True)
class ServerFacts:
    """Facts that the server has from other places than the log, each read on demand.

    The served tables, why Kafka does not answer, the state of the materializer's and of the applier's
    process, and which views have a file in the project's folder.
    """

    served: Callable[[], Mapping[str, str]] = dict
    kafka: Callable[[], str | None] = lambda: None
    process: Callable[[], str] = lambda: "whether its process runs is not known"
    applier: Callable[[], str] = lambda: "whether its process runs is not known"
    files: Callable[[], frozenset[str] | None] = lambda: None
    folder: str = ""
    stores: Mapping[str, str] = field(default_factory=dict)
    """URL of each store of this hub, without password:
    another hub on this Kafka may have a store of the same name."""


_MOST_ENGINES = 16


@dataclass(frozen=True, slots=True)
class _MaterializerReport:
    """A materializer's last report, and when this process received it (monotonic)."""

    report: EngineReport
    received_s: float


class StoreWatch:
    """Last reports in the log; start ``follower`` before use."""

    def __init__(self, cluster: Log, around: ServerFacts | None = None) -> None:
        self.around = around or ServerFacts()
        self._received: dict[str, Any] = {}
        self._stores_at_s: dict[str, float] = {}
        """When the last report of each store was heard (monotonic), by its key."""
        self._engines: dict[str, _MaterializerReport] = {}
        """By project folder, the one heard last at the end."""
        self._catching_up: Positions | None = None  # up to there, records may be old
        self.follower = TopicFollower(cluster, PROGRESS_TOPIC, "reports of the stores' applier", self.begin)

    def over(self, records: Mapping[str, Any]) -> dict[str, Any]:
        """Return a store's progress records, overridden by those of the log, with the current state of each
        view.

        While Kafka is unavailable, the last records read from the log apply.
        """
        received, served = self._received, self.around.served()
        found = {**records, **self._stores(received)}
        stopped = {
            view
            for view, each in ((found.get(f"{PREFIX}{SERVING}") or {}).get("views") or {}).items()
            if each.get("stopped")
        }
        for key, body in received.items():
            kind, _, table = key.partition(":")
            view = table.partition("@")[0]
            if served.get(view, view) != table:
                continue
            if kind == "state" and table not in stopped and _is_newer(body, records.get(f"state:{view}")):
                found[f"state:{view}"] = body
            elif kind == "progress":
                found[f"{LOG_PROGRESS}{view}"] = body
        return judged(found, self.links())

    def catching_up(self, views: Iterable[str]) -> tuple[str, ...]:
        """Return those of the views that read a backlog of their topics: rows of later events are missing."""
        received = self._received
        if not any(
            key.startswith("state:") and body.get("state") == "bulk" for key, body in received.items()
        ):
            return ()
        served = self.around.served()
        found = {each: received.get(f"state:{served.get(each, each)}") or {} for each in views}
        return tuple(sorted(each for each, body in found.items() if body.get("state") == "bulk"))

    def _stores(self, received: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stores' reports; the state of a store whose applier has been silent is unknown."""
        reports = {key: body for key, body in received.items() if key.startswith(PREFIX)}
        if self._catching_up is not None:
            return reports
        now_s = time.monotonic()
        for key, body in reports.items():
            silent_s = now_s - self._stores_at_s.get(key, now_s)
            if silent_s > SILENT_S:
                why = why_silent("applier", silent_s, self.around.kafka() or "", self.around.applier())
                reports[key] = silent(body, why)
        return reports

    def links(self) -> Links:
        """Return the known state of the links from the materializer to this process."""
        engines, around = dict(self._engines), self.around
        # Another folder of this machine is another project; one of another machine may be a copy of this one.
        host = around.folder.partition(":")[0]
        elsewhere = [each for folder, each in engines.items() if folder.partition(":")[0] != host]
        engine = engines.get(around.folder) or next(reversed(elsewhere), None)
        if engine is None or self._catching_up is not None:
            return Links()
        now_s = time.monotonic()
        silent_s = now_s - engine.received_s
        others = (
            each.report.views
            for each in engines.values()
            if each is not engine and now_s - each.received_s <= SILENT_S
        )
        return Links(
            engine.report,
            silent_s,
            around.kafka() or "",
            around.process() if silent_s > SILENT_S else "",
            around.files(),
            around.folder,
            frozenset().union(*others),
        )

    def begin(self, end: Positions) -> Callable[[Sequence[Record], bool], None]:
        """Begin to read at the log's beginning; ``end``: up to there, records may be old."""
        self._catching_up = end
        return self._take_records

    def _take_records(self, records: Sequence[Record], current: bool) -> None:
        news = dict(self._received)
        for record in records:
            key = (record.key or b"").decode(errors="replace")
            if key == KEY:
                self._hear_engine(record)
            if not key.startswith(_FOLLOWED):
                continue
            try:
                body = None if record.value is None else orjson.loads(record.value)
                if not isinstance(body, dict | None):
                    raise TypeError("no JSON object")
            except (ValueError, TypeError) as error:
                log.warning("%s[0]@%d is not a report: %s", PROGRESS_TOPIC, record.offset, error)
                continue
            if self._is_of_another_hub(key, body, news.get(key)):
                continue
            if body is None:
                news.pop(key, None)
            else:
                news[key] = body
            if key.startswith(PREFIX):
                self._stores_at_s[key] = time.monotonic() - self._age_s(record)
        self._received = news
        if current:
            self._catching_up = None

    def _is_of_another_hub(
        self, key: str, body: Mapping[str, Any] | None, held: Mapping[str, Any] | None
    ) -> bool:
        """Return True if the report must not replace ``held``,
        which is the report of this hub's own store."""
        url = self.around.stores.get(key.removeprefix(PREFIX)) if key.startswith(PREFIX) else None
        return (
            url is not None and held is not None and held.get("url") == url and (body or {}).get("url") != url
        )

    def _hear_engine(self, record: Record) -> None:
        try:
            report = engine_report_of(orjson.loads(record.value or b"{}"))
        except (ValueError, TypeError, KeyError) as error:
            log.warning(
                "%s[0]@%d is not a report of a materializer: %s", PROGRESS_TOPIC, record.offset, error
            )
            return
        engines = {folder: each for folder, each in self._engines.items() if folder != report.folder}
        engines[report.folder] = _MaterializerReport(report, time.monotonic() - self._age_s(record))
        self._engines = dict(list(engines.items())[-_MOST_ENGINES:])

    def _age_s(self, record: Record) -> float:
        """Return the age of a report; one that was written before this process began to follow has its
        timestamp's age.
        """
        return 0.0 if self._catching_up is None else max(0.0, time.time() - record.timestamp_ms / 1000)


def _is_newer(received: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    return known is None or (received.get("since_ms") or 0) >= (known.get("since_ms") or 0)
