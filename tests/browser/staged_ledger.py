"""A ledger with everything that the heat map shows:
complete, explained, twice, missing, not compared, not audited."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hub.completeness.balances import SEVERITY, audit_of
from hub.completeness.counts import COUNTS_TOPIC, Cell, Cells, CountEntry, Counts, Holes, MinuteHoles, named
from hub.completeness.minutes import minute_grid_of
from hub.observability.web.pages.monitor.completeness import CountedTopics, TopicCountsRow
from hub.record import Record

MINUTE = 60_000


@dataclass
class StagedLedger:
    """Stand-in for ``hub.completeness.counts_follower``; tests set ``error`` and ``read``."""

    ledger: Counts = field(default_factory=Counts)
    error: str | None = None
    read: bool = True

    def keep(self, *entries: CountEntry) -> None:
        for entry in entries:
            new = entry.record()
            self.ledger.apply(Record(COUNTS_TOPIC, 0, 0, 0, new.key, new.value))

    def latest(self) -> CountedTopics:
        audits = [audit_of(topic, self.ledger.of(topic)) for topic in self.ledger.topics()]
        audits.sort(key=lambda each: (SEVERITY[each.state], each.topic))
        return CountedTopics(
            [TopicCountsRow(each.topic, str(each.state), each.cause, each.audited_at_ms) for each in audits],
            self.error,
            self.read,
            lambda topic: minute_grid_of(self.ledger.of(topic)),
        )


def minutes(begin_ms: int, counts: list[int]) -> Cells:
    """The given number of records in each minute from ``begin_ms`` on; a minute without records has no
    cell."""
    return Cells(
        {
            begin_ms + at * MINUTE: Cell(count, count * 7_919, count * 90)
            for at, count in enumerate(counts)
            if count
        }
    )


def entry(topic: str, cells: Cells, at_ms: int, **more: object) -> CountEntry:
    """The log's side of partition 0, from offset 0 on."""
    total = cells.total.count
    return replace(CountEntry("log", "", topic, 0, 0, total, at_ms, cells, "id"), **more)  # type: ignore[arg-type]


def lacking(cells: Cells, minute_ms: int, count: int) -> Cells:
    """A copy with fewer records in one minute; more, if the number is negative."""
    before = cells[minute_ms]
    return Cells({**cells, minute_ms: Cell(before.count - count, before.sum - count, before.size)})


def staged(now_ms: int, seed: int = 7) -> StagedLedger:
    """Audited until two minutes ago."""
    dice = random.Random(seed)
    last = now_ms // MINUTE * MINUTE - 2 * MINUTE
    begin = last - 180 * MINUTE
    kept = StagedLedger()

    def busy(quiet: float = 0.0) -> Cells:
        counts = [0 if dice.random() < quiet else dice.randrange(40, 400) for _ in range(180)]
        counts[0] = 100
        return minutes(begin, counts)

    orders = busy()
    log = entry(
        "shop.orders", orders, last, spots={last - 40 * MINUTE: MinuteHoles(Holes(markers=4, aborted=31))}
    )
    log = replace(log, holes=Holes(markers=4, aborted=31))
    short = lacking(lacking(orders, last - 12 * MINUTE, 3), last - 11 * MINUTE, 17)
    kept.keep(log, named(log, "mirror", short, last, instance="nyc-lon"))
    source = replace(
        log, tier="source", instance="gateway-5f2c09", holes=Holes(), spots={}, runs=((0, log.end),)
    )
    kept.keep(source, named(source, "found", orders, last))

    payments = busy()
    log = entry(
        "shop.payments", payments, last, repeated=12, spots={last - 25 * MINUTE: MinuteHoles(Holes(), 12)}
    )
    kept.keep(log, named(log, "mirror", lacking(payments, last - 50 * MINUTE, -2), last, instance="nyc-lon"))

    customers = busy(quiet=0.4)
    holes = {at: MinuteHoles(Holes(markers=2, aborted=dice.randrange(9))) for at in list(customers)[::7]}
    total = Holes()
    for spot in holes.values():
        total = total.plus(spot.holes)
    log = entry("crm.customers", customers, last, holes=total, spots=holes)
    kept.keep(log, named(log, "mirror", customers, last, instance="nyc-lon"))

    consent = busy(quiet=0.7)
    where = list(consent)[-6]
    log = entry(
        "crm.consent",
        consent,
        last,
        holes=Holes(unexplained=5),
        spots={where: MinuteHoles(Holes(unexplained=5))},
    )
    kept.keep(log, named(log, "mirror", consent, last, instance="nyc-lon"))

    kept.keep(entry("web.visits", busy(), last))
    profile = entry("views.customer_360", Cells({0: Cell(1_500, 99, 0)}), last)
    rows = replace(profile, tier="view", instance="main")
    kept.keep(
        entry("views.customer_360", busy(), last),
        rows,
        named(rows, "store", Cells({0: Cell(1_498, 7, 0)}), last),
    )
    return kept
