"""[shell] Write the materializer's own report to ``_hub.progress`` every few seconds,
in a thread of its own."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hub.errors import HubError
from hub.log import Writer
from hub.materializers.progress.engine_reports import REPORT_EVERY_S, EngineReport
from hub.runtime import repeating
from hub.times import epoch_ms

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5


def folder_of(project: Path) -> str:
    """Return host and path of a project. Two processes with the same value read the same files."""
    return f"{socket.gethostname()}:{project.expanduser().absolute()}"


class ReportThread:
    """Writes the materializer's report from a thread. The views that exist are set with ``set_views`` inside
    ``running()``."""

    def __init__(self, writer: Writer, folder: str, run: str = "") -> None:
        self._writer = writer
        self._folder = folder
        self._run = run
        self._views: frozenset[str] | None = None
        self._written: frozenset[str] | None = None
        self._written_at_s = 0.0
        self._failed = ""

    def set_views(self, views: frozenset[str]) -> None:
        """Set the views that have a file now."""
        self._views = views

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write a report whenever the views change, and every ``REPORT_EVERY_S``,
        for as long as the block runs."""
        with repeating(
            self.step,
            name="materializer-pulse",
            pause_s=lambda _took_s: _LOOK_EVERY_S,
            failed="the materializer's report cannot be written",
        ):
            yield

    def step(self) -> None:
        """Write a report when one is due."""
        views, now_s = self._views, time.monotonic()
        if views is None or (views == self._written and now_s - self._written_at_s < REPORT_EVERY_S):
            return
        try:
            report = EngineReport(epoch_ms(), views, self._folder, self._run)
            self._writer.append([report.record()])
        except HubError as error:
            if error.message != self._failed:
                log.warning("the materializer's report is not written, tried again: %s", error.message)
            self._failed = error.message
            return
        self._written, self._written_at_s, self._failed = views, now_s, ""
