"""[core] Durations counted into fixed buckets: bounded memory, and exact sums over processes and minutes.

An edge belongs to the bucket below it (Prometheus' ``le``). An objective becomes an edge, so the share of
events within it is counted, not interpolated. Quantiles are interpolated within a bucket, as PromQL's
``histogram_quantile`` does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

# A duration below -SKEW_MS comes from clocks that disagree and is unknown; synchronized clocks differ by
# less.
SKEW_MS = 1_000
EDGES_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


@lru_cache(maxsize=1_000)  # called for each change that each subscriber receives
def edges_with(*objectives_s: float | None) -> tuple[float, ...]:
    """Return the default edges and each objective, ascending.

    >>> edges_with(2.0, None)[4:8]
    (1.0, 2.0, 2.5, 5.0)
    """
    return tuple(sorted({*EDGES_S, *(each for each in objectives_s if each is not None and each > 0)}))


@dataclass(slots=True)
class Histogram:
    """Durations by bucket. ``counts[i]``: durations up to ``edges[i]`` seconds and above the edge before;
    the last count has no edge."""

    edges: tuple[float, ...] = EDGES_S
    counts: list[int] = field(default_factory=list)
    sum_s: float = 0.0

    def __post_init__(self) -> None:
        self.counts = list(self.counts) or [0] * (len(self.edges) + 1)
        if len(self.counts) != len(self.edges) + 1 or list(self.edges) != sorted(set(self.edges)):
            raise ValueError("a histogram has ascending edges and one count more than edges")

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, seconds: float, count: int = 1) -> None:
        self.counts[bisect_left(self.edges, seconds)] += count
        self.sum_s += seconds * count

    def copy(self) -> Histogram:
        return Histogram(self.edges, list(self.counts), self.sum_s)

    def since(self, before: Histogram | None) -> Histogram:
        """Return the counts added after ``before``, an earlier state; all counts if the histogram was
        reset meanwhile."""
        if before is None or before.edges != self.edges:
            return self.copy()
        added = [now - then for now, then in zip(self.counts, before.counts, strict=True)]
        if min(added) < 0:
            return self.copy()
        return Histogram(self.edges, added, max(0.0, self.sum_s - before.sum_s))

    def quantile(self, share: float) -> float | None:
        """Return the duration that the share ``share`` stays within, interpolated; None for an empty
        histogram.

        Beyond the last edge it is that edge, as a lower bound (``beyond``).
        """
        total = self.count
        if total == 0:
            return None
        rank, below, low = share * total, 0, 0.0
        for edge, count in zip(self.edges, self.counts, strict=False):
            if count and below + count >= rank:
                return low + (edge - low) * max(0.0, rank - below) / count
            below, low = below + count, edge
        return self.edges[-1]

    def beyond(self, share: float) -> bool:
        """Return whether that quantile is beyond the last edge, so that only a lower bound is known."""
        return self.count > 0 and sum(self.counts[:-1]) < share * self.count

    def within(self, seconds: float) -> float | None:
        """Return the share of durations up to ``seconds``; None for an empty histogram, or if ``seconds``
        is not an edge."""
        if seconds not in self.edges or self.count == 0:
            return None
        return sum(self.counts[: self.edges.index(seconds) + 1]) / self.count

    def cumulative(self) -> list[tuple[str, float]]:
        """Return Prometheus' buckets: (le, number of durations up to it)."""
        buckets, total = [], 0
        for edge, count in zip([*map(_le, self.edges), "+Inf"], self.counts, strict=True):
            total += count
            buckets.append((edge, float(total)))
        return buckets

    def body(self) -> dict[str, Any]:
        return {"edges": list(self.edges), "counts": self.counts, "sum_s": round(self.sum_s, 3)}


def histogram_of(body: Mapping[str, Any]) -> Histogram:
    """Return the histogram in a body. Raises ValueError when the body is invalid."""
    try:
        edges: Sequence[float] = body["edges"]
        counts = [int(each) for each in body["counts"]]
        if min(counts, default=0) < 0:
            raise ValueError("a negative count")
        return Histogram(tuple(float(each) for each in edges), counts, float(body["sum_s"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no histogram: {error}") from None


def _le(edge: float) -> str:
    return str(float(edge))
