"""[edge] httpx: events as requests, signed as Standard Webhooks (https://www.standardwebhooks.com).

Events of a batch are divided into lanes by key; lanes run at the same time, each in its order. A receiver
that is down stops all lanes: one at a time asks again, and the others continue once it answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx2

from hub.errors import ConfigError, PeerError
from hub.record import Positions
from hub.sinks.events import (
    Delivered,
    RefusedRecord,
    SinkBatch,
    SinkEvent,
    event_text,
    lanes_of,
    positions_before,
)
from hub.sinks.sinks_file import WebhookTarget, filled
from hub.sinks.targets.addresses import CheckedAddress
from hub.sinks.targets.target import Bury, ReportRetry
from hub.sinks.targets.webhook_answers import DeliveryVerdict, WebhookAnswer, judge
from hub.topics.tree.tree_file import duration_ms
from hub.topics.webhooks.signatures import Verification, signed_headers

_MOST_TEXT = 200


class WebhookSink:
    """The target of one sink."""

    def __init__(
        self,
        sink: str,
        target: WebhookTarget,
        environ: Mapping[str, str],
        report_retry: ReportRetry = lambda _reason: None,
        *,
        link_local: bool = False,
    ) -> None:
        self.url = filled(sink, target.url, environ)
        self.target, self._report_retry = target, report_retry
        self._address = CheckedAddress(self.url, link_local=link_local)
        present, *former = target.secrets
        secrets = [filled(sink, present, environ)]
        secrets += [environ[each[2:-1]] for each in former if environ.get(each[2:-1])]
        self._signing = [Verification("standard", [each]) for each in secrets]
        timeout_s = duration_ms(target.timeout) / 1000
        limits = httpx2.Limits(max_connections=target.parallel, max_keepalive_connections=target.parallel)
        self._client = httpx2.Client(timeout=timeout_s, follow_redirects=False, limits=limits)
        self._pool = ThreadPoolExecutor(target.parallel, thread_name_prefix=f"sink-{sink}")
        self._circuit = Circuit(report_retry)

    def positions(self, first: Positions) -> Positions:
        """See Target: a receiver holds no positions."""
        return first

    def deliver(self, batch: SinkBatch, stop: threading.Event, _bury: Bury) -> Delivered:
        """See Target. Returns when every event was delivered or refused, or ``stop`` is set."""
        events = [each for each in batch.events if not each.left]
        lanes = lanes_of(events, self.target.parallel)
        waiting, refused = list[SinkEvent](), list[RefusedRecord]()
        for lane_waiting, lane_refused in self._pool.map(lambda lane: self._lane(lane, stop), lanes):
            waiting += lane_waiting
            refused += lane_refused
        done = len(events) - len(waiting) - len(refused)
        return Delivered(positions_before(batch, waiting), done, refused)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._client.close()

    def request(self, event: SinkEvent, id: str | None = None) -> WebhookAnswer:
        """Send one event once. ``id``: of a trial. Raises ConfigError (HUB-1824)."""
        body, now_s, id = event_text(event), time.time(), id or event.id
        headers = signed_headers(self._signing[0], body, now_s, id)
        for former in self._signing[1:]:
            also = signed_headers(former, body, now_s, id)
            headers["webhook-signature"] += f" {also['webhook-signature']}"
        try:
            self._address.check()
            answer = self._client.post(
                self.url, content=body, headers={"content-type": "application/json", **headers}
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return WebhookAnswer(None, f"no connection ({error or type(error).__name__})", connected=False)
        except PeerError as error:
            return WebhookAnswer(None, error.message, connected=False)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return WebhookAnswer(None, f"no answer ({type(error).__name__})")
        text = " ".join(answer.text[:_MOST_TEXT].split())
        return WebhookAnswer(answer.status_code, text, answer.headers.get("retry-after", ""))

    def _lane(
        self, events: Sequence[SinkEvent], stop: threading.Event
    ) -> tuple[Sequence[SinkEvent], list[RefusedRecord]]:
        """Send events in their order; returns those that were not sent before ``stop``, and the refused."""
        refused: list[RefusedRecord] = []
        for number, event in enumerate(events):
            verdict = self._send_event(event, stop)
            if verdict is None:
                return events[number:], refused
            if verdict.kind == "refused":
                refused.append(RefusedRecord(event.record, verdict.reason))
        return (), refused

    def _send_event(self, event: SinkEvent, stop: threading.Event) -> DeliveryVerdict | None:
        """Send one event until it is delivered or refused; None: ``stop`` was set before."""
        attempt = 0  # attempts that the receiver answered with an error for this record
        while True:
            tries = attempt + 1

            def send(failures: int, tries: int = tries) -> DeliveryVerdict:
                answer = self._request(event)
                return judge(answer, tries, self.target.attempts, failures or tries - 1, time.time())

            verdict = self._circuit.run(send, stop)
            if verdict is None or verdict.kind in ("delivered", "refused"):
                return verdict
            if verdict.kind == "again":
                attempt = tries
                self._report_retry(f"{event.id} is tried again: {verdict.reason}")
                if stop.wait(verdict.pause_s):
                    return None

    def _request(self, event: SinkEvent) -> WebhookAnswer:
        try:
            return self.request(event)
        except ConfigError as error:
            return WebhookAnswer(None, error.message, connected=False)


class Circuit:
    """A receiver's state, shared by the lanes. While it is down, one lane at a time asks it."""

    def __init__(self, report_retry: ReportRetry, clock: Callable[[], float] = time.monotonic) -> None:
        self._report_retry, self._clock = report_retry, clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._failures, self._until_s = 0, 0.0

    @property
    def is_open(self) -> bool:
        """Return whether the receiver was down at the last request."""
        return self._failures > 0

    def run(self, send: Callable[[int], DeliveryVerdict], stop: threading.Event) -> DeliveryVerdict | None:
        """Call ``send`` with the number of failures in a row, once requests may be sent; None: ``stop`` was
        set before.
        """
        if self.is_open:
            with self._asking:
                failures = self._failures  # another lane may have heard an answer meanwhile
                if failures:
                    if stop.wait(max(0.0, self._until_s - self._clock())):
                        return None
                    return self._record_verdict(send(failures))
        return None if stop.is_set() else self._record_verdict(send(0))

    def _record_verdict(self, verdict: DeliveryVerdict) -> DeliveryVerdict:
        with self._lock:
            if verdict.kind == "down":
                self._failures += 1
                self._until_s = self._clock() + verdict.pause_s
                self._report_retry(f"the receiver does not take records: {verdict.reason}")
            else:
                if self._failures or verdict.kind == "delivered":
                    self._report_retry("")
                self._failures = 0
        return verdict
