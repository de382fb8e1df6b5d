"""[edge] httpx: poll Kafka Connect's workers over REST, each in a thread of its own, so that a hang delays no
other.

An answer is bounded in time and bytes. Readers get the last answers without waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_

import httpx2
import orjson

from hub.errors import HubError, PeerError
from hub.observability.cluster.connect import (
    Connect,
    Connector,
    WorkerAnswer,
    connect_of,
    connectors_of,
    without_password,
)
from hub.runtime import repeating
from hub.times import epoch_ms

log = logging.getLogger(__name__)

EVERY_S = 5.0
TIMEOUT_S = 5.0
MOST_BYTES = 32_000_000
_PATH = "/connectors?expand=status&expand=info"
_BUSY_SHARE = 0.2

Ask = Callable[[str], Sequence[Connector]]


def ask(url: str, timeout_s: float = TIMEOUT_S) -> tuple[Connector, ...]:
    """Return every connector of a worker's cluster. Raises PeerError (HUB-3080)."""
    shown = without_password(url)
    deadline_s = time.monotonic() + timeout_s
    try:
        body = bytearray()
        with httpx2.stream(
            "GET", url.rstrip("/") + _PATH, timeout=timeout_s, follow_redirects=False
        ) as answer:
            for part in answer.iter_bytes():
                body += part
                if len(body) > MOST_BYTES or time.monotonic() > deadline_s:
                    raise _trouble(shown, f"its answer is longer than {MOST_BYTES} bytes or {timeout_s:g} s")
        if answer.status_code != 200:
            raise _trouble(shown, f"HTTP {answer.status_code}{_error_message(bytes(body))}")
        return connectors_of(orjson.loads(body))
    except httpx2.TimeoutException:
        raise _trouble(shown, f"no answer within {timeout_s:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise _trouble(shown, f"no answer ({error or type(error).__name__})") from None
    except (ValueError, TypeError) as error:  # includes orjson.JSONDecodeError
        raise _trouble(shown, f"the server there is not Kafka Connect ({error})") from None


def _trouble(url: str, why: str) -> PeerError:
    return PeerError(
        f"Kafka Connect at {url}: {why}",
        hint="does the worker run, and is its address in connect_urls?",
        code="HUB-3080",
    )


def _error_message(body: bytes) -> str:
    try:
        answer = orjson.loads(body)
    except ValueError:
        return ""
    message = answer.get("message") if isinstance(answer, dict) else None
    return f" ({str(message)[:200]})" if message else ""


@dataclass
class ConnectWorkers:
    """Poller of ``urls``. ``latest()`` returns from memory.

    Use ``with workers.running():``.
    """

    urls: Sequence[str]
    ask: Ask = ask
    every_s: float = EVERY_S
    now_ms: Callable[[], int] = epoch_ms
    last_answers: dict[str, WorkerAnswer] = field(default_factory=dict)
    drawn: tuple[list[WorkerAnswer], list[bool], Connect] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.last_answers = {url: WorkerAnswer(url) for url in dict.fromkeys(self.urls)}

    @contextmanager
    def running(self) -> Iterator[ConnectWorkers]:
        """Poll for as long as the block runs."""
        with ExitStack() as threads:
            for number, url in enumerate(self.last_answers):
                threads.enter_context(
                    repeating(
                        partial(self.step, url),
                        name=f"connect-{number}",
                        pause_s=lambda took_s: max(self.every_s - took_s, took_s / _BUSY_SHARE - took_s, 0.1),
                        failed="Kafka Connect could not be asked",
                    )
                )
            yield self

    def step(self, url: str) -> None:
        """Poll one worker once."""
        try:
            connectors = tuple(self.ask(url))
        except HubError as error:
            self._store(replace(self.last_answers[url], error=error.message))
            return
        self._store(self.last_answers[url].answered(connectors, self.now_ms()))

    def _store(self, answer: WorkerAnswer) -> None:
        with self.lock:
            before, self.last_answers[answer.url] = self.last_answers[answer.url], answer
        if answer.error is not None and before.error is None:
            log.warning("%s", answer.error)
        elif answer.error is None and before.error is not None:
            log.info("Kafka Connect at %s answers again", without_password(answer.url))

    def latest(self) -> Connect | None:
        """Return the state of all workers, from memory; None when no address is configured."""
        with self.lock:
            answers, now_ms = list(self.last_answers.values()), self.now_ms()
            if not answers:
                return None
            # Computed once an answer, not once a request: there may be thousands of connectors.
            stale = [each.is_stale(now_ms) for each in answers]
            before = self.drawn
            same = before is not None and before[1] == stale and all(map(is_, before[0], answers))
            if before is None or not same:
                before = self.drawn = (answers, stale, connect_of(answers, now_ms))
            return before[2]
