"""[shell] The process of previews: started by the first one, ended when none is asked for, one at a time."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from hub.config import Settings
from hub.errors import HubError, PeerError
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.golden.cases import Case, CaseOutcome
from hub.materializers.types.avro_types import AvroType
from hub.materializers.workbench.computer import PreviewTask, compute_previews

BUSY, UNAVAILABLE = "HUB-3095", "HUB-3096"
# Longest wait for another caller's preview, for one answer, and for the next preview before the process ends.
_TURN_S, _ANSWER_S, _IDLE_S = 20.0, 120.0, 300.0
_END_S = 15.0


class PreviewProcess:
    """Computes previews in a process with Spark. Thread-safe; every wait is bounded."""

    def __init__(self, settings: Settings, idle_s: float = _IDLE_S) -> None:
        self._settings, self._idle_s = settings, idle_s
        self._turn = threading.Lock()
        self._process: BaseProcess | None = None
        self._tasks: Connection | None = None
        self._idle: threading.Timer | None = None

    @property
    def why_not(self) -> str:
        """Return why this server computes no previews; "" if it does."""
        if not self._settings.preview_heap_mb:
            return "previews are off in hub.yaml (preview_heap_mb: 0)"
        return "" if find_spec("pyspark") else "Spark is not installed with this server"

    def compute(self, view: SqlView, schemas: Mapping[str, AvroType], case: Case) -> CaseOutcome:
        """Return what the view makes of the case's events. Blocks.

        Raises ConfigError for a view that Spark refuses, PeerError (HUB-3095) while others are computed,
        PeerError (HUB-3096) where no preview can be computed or one takes too long.
        """
        if why_not := self.why_not:
            raise PeerError(why_not, hint="`hub view test` computes rows where Spark is", code=UNAVAILABLE)
        if not self._turn.acquire(timeout=_TURN_S):
            raise PeerError("another preview is being computed", hint="try again in a moment", code=BUSY)
        try:
            if self._idle is not None:
                self._idle.cancel()
            return self._computed(PreviewTask(view, schemas, case))
        finally:
            if self._process is not None:
                self._idle = threading.Timer(self._idle_s, self._end_idle)
                self._idle.daemon = True
                self._idle.start()
            self._turn.release()

    def end(self) -> None:
        """End the process, and a preview that is being computed. Idempotent."""
        process, tasks, self._process, self._tasks = self._process, self._tasks, None, None
        if self._idle is not None:
            self._idle.cancel()
        if tasks is not None:
            tasks.close()
        if process is not None:
            process.join(_END_S)
            if process.is_alive():
                process.kill()

    def _end_idle(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self.end()
            finally:
                self._turn.release()

    def _computed(self, task: PreviewTask) -> CaseOutcome:
        tasks = self._tasks if self._tasks is not None and self._is_alive() else self._start()
        try:
            tasks.send(task)
            answer = _answer_within(tasks, _ANSWER_S)
        except TimeoutError:
            self._kill()
            raise PeerError(
                f"the preview was not computed within {_ANSWER_S:.0f} s",
                hint="try again with fewer events, or a simpler SELECT",
                code=UNAVAILABLE,
            ) from None
        except (EOFError, OSError):
            self._kill()
            raise PeerError(
                "the process of previews has ended, perhaps for lack of memory",
                hint="try again with fewer events; preview.log in the home folder has its last words",
                code=UNAVAILABLE,
            ) from None
        if isinstance(answer, HubError):
            raise answer
        assert isinstance(answer, CaseOutcome)
        return answer

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _start(self) -> Connection:
        """Start the process and wait until its Spark has. Raises PeerError."""
        self._kill()
        context = multiprocessing.get_context("spawn")
        tasks, theirs = context.Pipe()
        process = context.Process(
            target=compute_previews, args=(_sendable(self._settings), theirs), name="previews", daemon=True
        )
        process.start()
        theirs.close()
        self._process, self._tasks = process, tasks
        try:
            answer = _answer_within(tasks, self._settings.start_timeout_s + _ANSWER_S)
        except (EOFError, OSError, TimeoutError):
            self._kill()
            raise PeerError(
                "Spark did not start for the preview",
                hint="read preview.log in the home folder; `hub doctor` checks Java",
                code=UNAVAILABLE,
            ) from None
        if isinstance(answer, HubError):
            self._kill()
            raise PeerError(answer.message, hint=answer.hint, code=UNAVAILABLE)
        return tasks

    def _kill(self) -> None:
        if self._process is not None and self._process.is_alive():
            self._process.kill()
        self.end()


def _sendable(settings: Settings) -> Settings:
    """Return the settings as an instance that pickle takes: those of a project have a class of their own."""
    return Settings.model_construct(**{name: getattr(settings, name) for name in Settings.model_fields})


def _answer_within(tasks: Connection, seconds: float) -> object:
    if not tasks.poll(seconds):
        raise TimeoutError
    return tasks.recv()
