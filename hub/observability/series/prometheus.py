"""[edge] httpx: series from Prometheus' HTTP API (``/api/v1/query_range``), where ``prometheus_url`` names
one.

Source of the format: prometheus.io/docs/prometheus/latest/querying/api. Several servers export the same
object: the expressions take the largest of them, so nothing is counted twice.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite

import httpx2
import orjson

from hub.errors import PeerError
from hub.observability.cluster.connect import without_password
from hub.observability.series.catalog import METRICS, matchers
from hub.observability.series.database import SeriesName
from hub.observability.series.rollup import SampleBucket, SeriesWindow, bucket_of

TIMEOUT_S = 5.0
MOST_BYTES = 8_000_000
# Answers that are kept for other viewers of the same chart.
CACHED, CACHED_S = 500, 5.0
# Shortest window of a rate: some scrapes must be in it.
SHORTEST_RATE_S = 60

Points = list[tuple[int, SampleBucket]]


@dataclass
class PrometheusSeries:
    """Reader of a Prometheus. Thread safe."""

    url: str
    timeout_s: float = TIMEOUT_S
    now_s: Callable[[], float] = time.monotonic
    _cache: OrderedDict[tuple[str, SeriesWindow], tuple[float, Points]] = field(default_factory=OrderedDict)
    _cache_lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, names: Sequence[SeriesName], window: SeriesWindow) -> dict[SeriesName, Points]:
        """Return the points of the series that ``/metrics`` exports; others are not in the answer. All
        together take ``timeout_s`` at most. Raises PeerError (HUB-3098)."""
        deadline_s = self.now_s() + self.timeout_s
        found = {}
        for about, metric in names:
            promql = METRICS[about.kind][metric].promql
            if promql:
                window_s = max(SHORTEST_RATE_S, window.step_ms // 1000)
                query = promql.replace("$of", matchers(about)).replace("$w", f"{window_s}s")
                found[about, metric] = self._points(query, window, deadline_s)
        return found

    def _points(self, query: str, window: SeriesWindow, deadline_s: float) -> Points:
        now_s = self.now_s()
        with self._cache_lock:
            at_s, points = self._cache.get((query, window), (now_s - CACHED_S, []))
        if now_s - at_s < CACHED_S:
            return points
        points = self._query(query, window, deadline_s)
        with self._cache_lock:
            self._cache[query, window] = (now_s, points)
            while len(self._cache) > CACHED:
                self._cache.popitem(last=False)
        return points

    def _query(self, query: str, window: SeriesWindow, deadline_s: float) -> Points:
        left_s = deadline_s - self.now_s()
        if left_s <= 0:
            raise self._trouble(f"no answer within {self.timeout_s:g} s")
        # A point stands for the bucket that begins there, so it is evaluated at the bucket's end.
        parameters: dict[str, str | float] = {
            "query": query,
            "start": (window.start_ms + window.step_ms) / 1000,
            "end": window.end_ms / 1000,
            "step": window.step_ms / 1000,
        }
        try:
            body = bytearray()
            address = f"{self.url.rstrip('/')}/api/v1/query_range"
            with httpx2.stream("GET", address, params=parameters, timeout=left_s) as answer:
                for part in answer.iter_bytes():
                    body += part
                    if len(body) > MOST_BYTES or self.now_s() > deadline_s:
                        raise self._trouble(f"its answer is over {MOST_BYTES} bytes or {self.timeout_s:g} s")
            answer_body = orjson.loads(body)
            if answer_body.get("status") != "success":
                raise self._trouble(f"HTTP {answer.status_code} ({str(answer_body.get('error'))[:200]})")
            return _parsed(answer_body["data"]["result"], window)
        except httpx2.TimeoutException:
            raise self._trouble(f"no answer within {self.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._trouble(f"no answer ({error or type(error).__name__})") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._trouble(f"the server there is not Prometheus ({error})") from None

    def _trouble(self, why: str) -> PeerError:
        return PeerError(
            f"Prometheus at {without_password(self.url)}: {why}",
            hint="check prometheus_url in hub.yaml",
            code="HUB-3098",
        )


def _parsed(result: Sequence[dict[str, list[list[float | str]]]], window: SeriesWindow) -> Points:
    """Return the points of the first series of an answer. NaN, as of a quantile of nothing, is a gap."""
    points = []
    for at_s, text in result[0]["values"] if result else ():
        value = float(text)
        if isfinite(value):
            points.append((round(float(at_s) * 1000) - window.step_ms, bucket_of(value)))
    return points
