"""[core] Canaries: numbered records, a second apart, and the outcome of each on every route.

A route (``way``) is the place where canaries are read: ``read`` (a plain consumer), ``mirror:<name>`` (at its
target), ``view`` (in a store). A probe that is not read within ``LATE_S`` is *lost*; if it arrives later, it
is *late* and no longer lost. Counts are exact: open probes are tracked by number, so repeated and reordered
ones are detected. Completed probes are counted and dropped.

=========  ==========================================================================================
FAILING    nothing is acknowledged, or nothing arrives, for ``FAIL_S``
LOSING     probes were lost within the last ``WINDOW_S``
LATE       probes arrived late within the last ``WINDOW_S``
UNKNOWN    nothing was sent yet, or the route is not read now (the cause gives the reason)
OK         all of the last ``WINDOW_S`` arrived in time
=========  ==========================================================================================
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hub.metrics.histogram import Histogram
from hub.record import NewRecord, Record
from hub.schema_registry.codecs.wire_format import encode, parsed

CANARY_CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": str(3_600_000),
    "segment.ms": str(600_000),
    "message.timestamp.type": "CreateTime",
}
EVERY_S = 1.0
LATE_S = 20.0
FAIL_S = 30.0
WINDOW_S = 300.0
# A lost probe is tracked for this long.
FORGET_S = 600.0
ACK = "ack"


class CanaryState(StrEnum):
    """Route states of the table above, worst first."""

    FAILING = "FAILING"
    LOSING = "LOSING"
    LATE = "LATE"
    UNKNOWN = "UNKNOWN"
    OK = "OK"


SEVERITY = {state: rank for rank, state in enumerate(CanaryState)}


@dataclass(frozen=True, slots=True)
class Probe:
    """A canary record. ``run`` identifies this start of the sender; ``seq`` counts within run and
    partition.
    """

    run: str
    partition: int
    seq: int
    sent_ms: int

    @property
    def stream(self) -> str:
        """The key of the record, and of its row in the view."""
        return f"{self.run}-{self.partition}"

    def record(self, topic: str, schema_id: int, more: tuple[tuple[str, bytes], ...] = ()) -> NewRecord:
        """Build the record. ``more`` holds headers that mirrors' filters require."""
        body = {"stream": self.stream, "seq": self.seq, "sent_ms": self.sent_ms}
        value = encode(schema_id, _PARSED, body)
        # The header repeats the value, so readers need not decode it.
        headers = (("hub.canary", f"{self.run}|{self.seq}|{self.sent_ms}".encode()), *more)
        return NewRecord(topic, self.stream.encode(), value, headers, self.sent_ms, self.partition)


def probe_of(record: Record) -> Probe | None:
    """Parse the probe in a record; None if there is none."""
    try:
        run, seq, sent_ms = (record.header("hub.canary") or b"").decode().split("|")
        return Probe(run, record.partition, int(seq), int(sent_ms))
    except ValueError:
        return None


SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Canary",
    "namespace": "hub",
    "fields": [
        {"name": "stream", "type": "string"},
        {"name": "seq", "type": "long"},
        {"name": "sent_ms", "type": "long"},
    ],
}
_PARSED = parsed(SCHEMA)
VIEW = "hub_canary"


def view_file(topic: str) -> str:
    """Return the YAML of the view for the route ``view``: the last number and the count of each stream."""
    return (
        f"view: {VIEW}\n"
        "doc: The way of canaries through a view; hub canary shows it.\n"
        f"sources:\n  c: {{topic: {topic}, key: stream, order: seq}}\n"
        "fields:\n  seq: max(c.seq)\n  seen: count(c.seq)\n"
    )


@dataclass
class _OpenProbe:
    sent_s: float
    lost: bool = False


@dataclass
class CanaryRoute:
    """One route. Call ``expected`` for each sent probe and ``came`` when it is read; times are in seconds of
    one clock.

    ``why`` is the reason if the route is not read now; then nothing is expected and nothing is lost.
    """

    name: str
    since_s: float
    why: str | None = None
    expected_count: int = 0
    read: int = 0
    late: int = 0
    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    last_s: float | None = None
    spans: Histogram = field(default_factory=Histogram)
    open: dict[tuple[int, int], _OpenProbe] = field(default_factory=dict)
    highest: dict[int, int] = field(default_factory=dict)
    bad: deque[tuple[float, CanaryState]] = field(default_factory=lambda: deque(maxlen=1_000))

    def expected(self, probe: Probe, sent_s: float) -> None:
        if self.why is None:
            self.expected_count += 1
            self.open[probe.partition, probe.seq] = _OpenProbe(sent_s)

    def came(self, probe: Probe, now_s: float) -> None:
        self.last_s = now_s
        open_probe = self.open.pop((probe.partition, probe.seq), None)
        if open_probe is None:
            self.repeated += probe.seq <= self.highest.get(probe.partition, -1)
            return
        if probe.seq < self.highest.get(probe.partition, -1):
            self.reordered += 1
        self.highest[probe.partition] = max(probe.seq, self.highest.get(probe.partition, -1))
        self.read += 1
        took_s = now_s - open_probe.sent_s
        self.spans.add(max(0.0, took_s))
        if open_probe.lost:
            self.lost -= 1
        if took_s > LATE_S:
            self.late += 1
            self.bad.append((now_s, CanaryState.LATE))

    def passed(self, now_s: float) -> None:
        """Update the route to ``now_s``: overdue probes become lost, and old ones are dropped."""
        for key, each in list(self.open.items()):
            age_s = now_s - each.sent_s
            if age_s > LATE_S and not each.lost:
                each.lost = True
                self.lost += 1
                self.bad.append((now_s, CanaryState.LOSING))
            if age_s > FORGET_S:
                del self.open[key]

    def blind(self, why: str | None) -> None:
        """Set the reason why the route is not read (None: it is read). Open probes are dropped without
        counting as lost.
        """
        if why is not None and self.why is None:
            self.open = {key: each for key, each in self.open.items() if each.lost}
        self.why = why

    def state(self, now_s: float) -> tuple[CanaryState, str]:
        if self.why is not None:
            return CanaryState.UNKNOWN, self.why
        if self.expected_count == 0:
            return CanaryState.UNKNOWN, "nothing was sent yet"
        quiet_s = now_s - (self.since_s if self.last_s is None else self.last_s)
        waiting_s = max((now_s - each.sent_s for each in self.open.values()), default=0.0)
        if quiet_s > FAIL_S and waiting_s > FAIL_S:
            return CanaryState.FAILING, f"nothing came for {quiet_s:.0f} s"
        lately = [state for at_s, state in self.bad if now_s - at_s <= WINDOW_S]
        still_lost = sum(each.lost for each in self.open.values())
        if CanaryState.LOSING in lately and still_lost:
            return CanaryState.LOSING, f"{still_lost} did not come within {LATE_S:.0f} s"
        if lately:
            return (
                CanaryState.LATE,
                f"some took longer than {LATE_S:.0f} s in the last {WINDOW_S / 60:.0f} minutes",
            )
        if self.read == 0:
            return CanaryState.UNKNOWN, "none has come yet"
        return CanaryState.OK, "all came in time"


@dataclass(frozen=True, slots=True)
class CanaryRouteRow:
    """Reported state of a route. ``p50_s`` and ``p99_s`` cover all probes that arrived since the start; None:
    none did.
    """

    way: str
    state: CanaryState
    cause: str
    expected: int
    read: int
    waiting: int
    lost: int
    late: int
    repeated: int
    reordered: int
    p50_s: float | None
    p99_s: float | None


@dataclass
class Canary:
    """All probes of one sender, by route. Route ``ack`` is Kafka's acknowledgement."""

    run: str
    now_s: float
    sent: dict[int, int] = field(default_factory=dict)
    sent_s: float | None = None  # of the last probe
    failed: int = 0
    # A refused probe may still be in the log; if it arrives, it does not count as repeated.
    unsure: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=500))
    ways: dict[str, CanaryRoute] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.way(ACK, self.now_s)

    def way(self, name: str, now_s: float) -> CanaryRoute:
        return self.ways.setdefault(name, CanaryRoute(name, now_s))

    def next(self, partition: int, sent_ms: int, now_s: float) -> Probe:
        """Create the next probe of a partition. It is counted as sent before it is sent."""
        seq = self.sent.get(partition, 0)
        self.sent[partition], self.sent_s = seq + 1, now_s
        probe = Probe(self.run, partition, seq, sent_ms)
        self.ways[ACK].expected(probe, now_s)
        for name, way in self.ways.items():
            if name != ACK:  # expected before it is sent: it may be read before it is acknowledged
                way.expected(probe, now_s)
        return probe

    def acknowledged(self, probe: Probe, now_s: float) -> None:
        self.ways[ACK].came(probe, now_s)

    def refused(self, probe: Probe) -> None:
        """Handle a failed probe: it is not in the log, or the outcome is unknown, so no route expects it."""
        self.failed += 1
        self.unsure.append((probe.partition, probe.seq))
        for name, way in self.ways.items():
            open_probe = way.open.get((probe.partition, probe.seq))
            if name != ACK and open_probe is not None and not open_probe.lost:
                del way.open[probe.partition, probe.seq]
                way.expected_count -= 1

    def came(self, name: str, probe: Probe, now_s: float) -> None:
        """Count a probe that was read. Probes of other senders and of earlier starts are ignored."""
        if probe.run == self.run and (probe.partition, probe.seq) not in self.unsure:
            self.ways[name].came(probe, now_s)

    def passed(self, now_s: float) -> None:
        for way in self.ways.values():
            way.passed(now_s)

    def shown(self, name: str, partition: int, seq: int, count: int, now_s: float) -> None:
        """Count the probes in a view row: ``count`` probes of a partition, up to ``seq``. If there is a gap,
        only the last one is known to have arrived.
        """
        way = self.ways[name]
        first = 0 if count > seq else seq
        for number in sorted(each for of, each in way.open if of == partition and first <= each <= seq):
            way.came(Probe(self.run, partition, number, 0), now_s)

    def rows(self, now_s: float) -> list[CanaryRouteRow]:
        """Return the routes, worst first."""
        found = []
        for way in self.ways.values():
            state, cause = way.state(now_s)
            waiting = sum(not each.lost for each in way.open.values())
            numbers = (way.expected_count, way.read, waiting, way.lost, way.late, way.repeated, way.reordered)
            spans = (way.spans.quantile(0.5), way.spans.quantile(0.99))
            found.append(CanaryRouteRow(way.name, state, cause, *numbers, *spans))
        return sorted(found, key=lambda row: (SEVERITY[row.state], row.way))


def worst(rows: list[CanaryRouteRow]) -> tuple[CanaryState, str]:
    """Return the worst state and its cause. Routes in state UNKNOWN are ignored unless all are UNKNOWN."""
    route_rows = [row for row in rows if row.state is not CanaryState.UNKNOWN]
    if not route_rows:
        return CanaryState.UNKNOWN, rows[0].cause if rows else "nothing was sent yet"
    first = route_rows[0]
    return first.state, f"{first.way}: {first.cause}"
