"""[shell] Carries out what is approved, lets requests expire, and removes old ones.

Each result is in the log before the next step. A step that was interrupted is taken up again: writing a
grant or a topic that is there changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from hub.access_log.actions import LoggedAction, Outcome
from hub.access_log.entry import Entry, Who
from hub.access_log.writer import AccessLog
from hub.access_requests.access_file import AccessEditor, reason_of
from hub.access_requests.log import RequestLog
from hub.access_requests.model import AccessRequest, find_request, outdated, passed, put
from hub.errors import HubError
from hub.topics.editing.change import TopicChange
from hub.topics.editing.editor import TopicEditor

log = logging.getLogger(__name__)

_AGAIN_MS = 20_000  # after an effect that failed


@dataclass
class RequestRunner:
    """Call ``step`` regularly. ``open_ms``: how long an approved request may be without its effect;
    ``kept_ms``: how long a request that is over is kept."""

    log: RequestLog
    access: AccessEditor
    topics: TopicEditor
    open_ms: int
    kept_ms: int
    access_log: AccessLog | None
    now_ms: Callable[[], int]
    _again_ms: dict[str, int] = field(default_factory=dict)

    def step(self) -> None:
        """Take the next step of each request. One that fails does not stop the others."""
        access_requests = self.log.all()
        for request in access_requests.values():
            try:
                self._advance(request)
            except HubError as error:
                self._again_ms[request.id] = self.now_ms() + _AGAIN_MS
                log.warning("access request %s waits: %s", request.id, error.message)
        self._again_ms = {id: at for id, at in self._again_ms.items() if id in access_requests}
        if outdated(access_requests, self.now_ms(), self.kept_ms):
            self.log.remove(lambda now: outdated(now, self.now_ms(), self.kept_ms))

    def _advance(self, request: AccessRequest) -> None:
        request = self._changed(request, lambda one: passed(one, self.now_ms(), self._latest_ms(one)))
        if request.status != "approved" or self.now_ms() < self._again_ms.get(request.id, 0):
            return
        try:
            done, detail = self._effect(request)
        except HubError as error:
            done, detail = False, reason_of(error)
        if not done:
            self._again_ms[request.id] = self.now_ms() + _AGAIN_MS
        self._changed(request, lambda one: put(one, detail, done=done, now_ms=self.now_ms()))

    def _latest_ms(self, request: AccessRequest) -> int:
        return (request.answered_at_ms or request.requested_at_ms) + self.open_ms

    def _effect(self, request: AccessRequest) -> tuple[bool, str]:
        """Carry out an approved request. Idempotent. Returns whether it is done, and its state."""
        if request.is_grant:
            return self.access.write(request)
        change = change_of(request)
        plan = self.topics.plan(change)
        if plan.changes and plan.read_only:
            return False, f"{plan.read_only}: merge the difference, then: hub topic apply"
        if plan.changes:
            self.topics.apply(change)
        return True, "topics.yaml and Kafka have the topic"

    def _changed(
        self, request: AccessRequest, change: Callable[[AccessRequest], AccessRequest]
    ) -> AccessRequest:
        """Write a change of the request as the log has it, and note a new status in the access log."""
        if change(request) == request:
            return request
        made = self.log.submit(lambda known: change(find_request(known, request.id)))
        if made.status != request.status:
            self._note(made)
        return made

    def _note(self, request: AccessRequest) -> None:
        if self.access_log is None:
            return
        detail = {"status": request.status, "request": request.text, "state": request.detail}
        self.access_log.result(
            Entry(
                LoggedAction.access_request,
                Outcome.ok,
                Who("_hub", "own"),
                self.now_ms(),
                "access-request",
                request.id,
                detail=detail,
            )
        )


def change_of(request: AccessRequest) -> TopicChange:
    """Return the change of topics.yaml for a new topic."""
    return TopicChange(request.topic, **dict(request.settings))
