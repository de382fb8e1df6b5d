"""[core] One run of a piece of work, shared by all callers that wait for it at the same time.

A caller gets the result of a run that began after its call, so the result is never older than the call. At
most one run is active and one more is due, however many callers wait: a flood of requests costs as much as
one request at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from hub.errors import HubError, PeerError

T = TypeVar("T")


class SharedRun(Generic[T]):
    """Share ``work`` among threads.
    After a failure all callers get the same error for ``failed_for_s`` seconds."""

    def __init__(self, work: Callable[[], T], failed_for_s: float = 2.0) -> None:
        self._work = work
        self._failed_for_s = failed_for_s
        self._changed = threading.Condition()
        self._started = self._ended = 0
        self._result: T | HubError | None = None
        self._failed_until_s = float("-inf")

    def result(self, timeout_s: float) -> T:
        """Return the result of a run that begins now or later.

        Raises the HubError of that run; PeerError after ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            wanted = self._started + 1
            while self._ended < wanted:
                if isinstance(self._result, HubError) and time.monotonic() < self._failed_until_s:
                    raise self._result
                if self._started == self._ended:
                    self._started += 1
                    break
                if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    raise PeerError("the question before this one has no answer yet", hint="try again")
            else:
                return self._last_result()
        return self._run()

    def _last_result(self) -> T:
        if isinstance(self._result, HubError):
            raise self._result
        return self._result  # type: ignore[return-value]

    def _run(self) -> T:
        result: T | HubError = PeerError("the question could not be asked", hint="try again")
        try:
            result = self._work()
        except HubError as error:
            result = error
        finally:
            with self._changed:
                self._ended += 1
                self._result = result
                if isinstance(result, HubError):
                    self._failed_until_s = time.monotonic() + self._failed_for_s
                self._changed.notify_all()
        if isinstance(result, HubError):
            raise result
        return result
