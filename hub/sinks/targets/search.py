"""[edge] httpx: events as documents of an index in Elasticsearch or OpenSearch, by the ``_bulk`` API.

A request is repeated until the cluster has taken or refused every document. Repeats are harmless, because
each document has an external version. The position follows the answers.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence

import httpx2
import orjson

from hub.errors import HubError
from hub.record import Positions
from hub.sinks.events import Delivered, RefusedRecord, SinkBatch, positions_before
from hub.sinks.sinks_file import SearchTarget, filled
from hub.sinks.targets.addresses import CheckedAddress
from hub.sinks.targets.bulk import BulkAction, actions_of, chunks_of, is_about_request, judge_items, pause_s
from hub.sinks.targets.target import Bury, ReportRetry
from hub.sinks.targets.webhook_answers import WebhookAnswer, retry_after_s
from hub.topics.tree.tree_file import duration_ms

_MOST_TEXT = 300
# Parts of the answer that are read.
_FILTER = {"filter_path": "items.*.status,items.*.error.type,items.*.error.reason"}


class SearchIndexSink:
    """The target of one sink."""

    def __init__(
        self,
        sink: str,
        target: SearchTarget,
        environ: Mapping[str, str],
        report_retry: ReportRetry = lambda _reason: None,
        *,
        link_local: bool = False,
    ) -> None:
        self.url = filled(sink, target.url, environ).rstrip("/")
        self.target, self._report_retry = target, report_retry
        self._address = CheckedAddress(self.url, "search", link_local=link_local)
        headers = {"content-type": "application/x-ndjson"}
        if target.authorization is not None:
            headers["authorization"] = filled(sink, target.authorization, environ)
        self._client = httpx2.Client(
            timeout=duration_ms(target.timeout) / 1000, follow_redirects=False, headers=headers
        )

    def positions(self, first: Positions) -> Positions:
        """See Target: a cluster holds no positions."""
        return first

    def deliver(self, batch: SinkBatch, stop: threading.Event, _bury: Bury) -> Delivered:
        """See Target. Returns when every event was delivered or refused, or ``stop`` is set."""
        actions, refused = actions_of(self.target.index, batch.events)
        waiting = list[BulkAction]()
        for chunk in chunks_of(actions, int(self.target.request_mb * 1_000_000)):
            left, dead = self._send_actions(chunk, stop)
            waiting += left
            refused += dead
        left_events = [action.event for action in waiting]
        done = len(batch.events) - len(left_events) - len(refused)
        return Delivered(positions_before(batch, left_events), done, refused)

    def close(self) -> None:
        self._client.close()

    def _send_actions(
        self, chunk: Sequence[BulkAction], stop: threading.Event
    ) -> tuple[Sequence[BulkAction], list[RefusedRecord]]:
        """Send actions until each is taken or refused; returns those left when ``stop`` is set."""
        refused: list[RefusedRecord] = []
        attempts: Counter[str] = Counter()
        failures = 0
        while chunk and not stop.is_set():
            answer, body = self.request(chunk)
            if is_about_request(answer.status):
                if len(chunk) == 1:
                    return [], [*refused, RefusedRecord(chunk[0].event.record, _reason_of(answer))]
                middle = len(chunk) // 2
                first, second = (self._send_actions(half, stop) for half in (chunk[:middle], chunk[middle:]))
                return [*first[0], *second[0]], [*refused, *first[1], *second[1]]
            reason = _reason_of(answer)
            if answer.status is not None and answer.status < 300:
                try:
                    outcome = judge_items(orjson.loads(body), chunk)
                except (ValueError, TypeError, KeyError, StopIteration) as error:
                    reason = f"the address does not answer as _bulk: {error}"
                else:
                    refused += outcome.refused
                    attempts.update(outcome.failed)
                    dead = [each for each in outcome.again if self._has_no_attempt_left(attempts, each)]
                    refused += [
                        RefusedRecord(each.event.record, f"{self.target.attempts} attempts: {outcome.reason}")
                        for each in dead
                    ]
                    chunk = [each for each in outcome.again if each not in dead]
                    reason = outcome.reason
            if chunk:
                self._report_retry(f"{len(chunk)} documents wait: {reason}")
                stop.wait(pause_s(failures, retry_after_s(answer.retry_after, time.time())))
                failures += 1
        if not chunk:
            self._report_retry("")
        return chunk, refused

    def _has_no_attempt_left(self, attempts: Counter[str], action: BulkAction) -> bool:
        return attempts[action.event.id] >= self.target.attempts

    def request(self, chunk: Sequence[BulkAction]) -> tuple[WebhookAnswer, bytes]:
        """Send actions once; returns the answer and its body."""
        try:
            self._address.check()
            found = self._client.post(
                f"{self.url}/_bulk", params=_FILTER, content=b"".join(each.body for each in chunk)
            )
        except HubError as error:
            return WebhookAnswer(None, error.message, connected=False), b""
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return WebhookAnswer(None, f"no answer ({type(error).__name__})", connected=False), b""
        text = " ".join(found.text[:_MOST_TEXT].split())
        return WebhookAnswer(found.status_code, text, found.headers.get("retry-after", "")), found.content


def _reason_of(answer: WebhookAnswer) -> str:
    if answer.status is None:
        return answer.text
    return f"HTTP {answer.status}" + (f": {answer.text}" if answer.text else "")
