"""[shell] What the stores' applier said last, heard from the log: also of the store that serves, when it takes nothing.

Lists show what the serving store knows, and it knows what was applied into it. One that is full or held by somebody can
be read and not written: by its own words it would be live for ever, as far as it was when that began. So the server follows
the records ``store:<name>`` of ``_hub.progress`` itself, in a thread, and what it hears counts instead of what the store has.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from hub.errors import HubError
from hub.log import Cluster, Reader
from hub.materializers.progress import PROGRESS_TOPIC
from hub.materializers.store_reports import PREFIX
from hub.runtime import Backoff

log = logging.getLogger(__name__)

_LOOK_S = 2.0


class Log(Cluster, Protocol):
    def follower(self) -> Reader: ...


class StoreNews:
    """``start`` before use, ``stop`` after."""

    def __init__(self, cluster: Log) -> None:
        self.cluster = cluster
        self._heard: dict[str, Any] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="store-news", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def over(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """A store's progress records with what was heard in the place of what it has. While Kafka is away: heard before."""
        return {**told, **self._heard}

    def _run(self) -> None:
        backoff = Backoff(first_s=1.0, most_s=15.0)
        while not self._stop.is_set():
            reader: Reader | None = None
            try:
                if not self.cluster.partition_counts([PROGRESS_TOPIC]):
                    self._stop.wait(_LOOK_S)  # nothing has run yet
                    continue
                reader = self.cluster.follower()
                reader.assign(self.cluster.beginning_offsets([PROGRESS_TOPIC]))
                while not self._stop.is_set():
                    self._hear(reader)
                    backoff.reset()
            except HubError as error:
                log.warning("what the stores' applier says is not heard now: %s", error.message)
                self._stop.wait(backoff.next_s())
            except Exception:  # a fault of ours: lists show what the store has
                log.exception("what the stores' applier says is not heard")
                self._stop.wait(backoff.next_s())
            finally:
                if reader is not None:
                    reader.close()

    def _hear(self, reader: Reader) -> None:
        news = dict(self._heard)
        for record in reader.poll(5_000, 0.5):
            key = (record.key or b"").decode(errors="replace")
            if not key.startswith(PREFIX):
                continue
            try:
                body = None if record.value is None else orjson.loads(record.value)
            except orjson.JSONDecodeError as error:
                log.warning("%s[0]@%d is no report of a store: %s", PROGRESS_TOPIC, record.offset, error)
                continue
            if body is None:
                news.pop(key, None)
            else:
                news[key] = body
        self._heard = news
