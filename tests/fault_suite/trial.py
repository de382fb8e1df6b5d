"""One trial: inject faults into a world under load, round by round, by seed; then check everything."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx2
import psutil
from patience import patient

from fault_suite.checks import check_all, settle
from fault_suite.copies import GroupMover
from fault_suite.counts import count, count_violations, shown
from fault_suite.faults import Kind, choose, kills, possible
from fault_suite.journal import Journal
from fault_suite.probes import PROBES_OF, Probe, RegistryProbe
from fault_suite.readers import KeyReader, ListReader, Reader, SqlReader, Subscriber, TokenReader
from fault_suite.world import Size, World, running_world
from fault_suite.writers import HttpWriter, KafkaWriter, SloppyWriter, Source, TransactionalWriter, Writer

BACK_S = 120.0
"""Longest that a service may stay away after the last fault of a round was healed, times patience."""
START_S = 600.0
"""Longest that the first start of all processes at once may take, times patience."""
FILES_MOST, MEMORY_MOST_MB = 3_000, 3_000
"""Limits for one process of the hub at the end of a trial."""


@dataclass(frozen=True)
class Order:
    """Parameters of a trial. ``rounds``: maximum number of rounds;
    ``minutes``: no round starts after this time."""

    seed: int
    events: int = 6_000
    rounds: int = 60
    minutes: float = 6.0
    size: Size = field(default_factory=Size)
    only: tuple[str, ...] = ()
    """Kinds of faults by a part of their names; empty: all that the world can suffer."""
    kills_first: bool = False
    """Begin with rounds that kill each process once, whatever the time;
    other kinds follow while there is time."""
    first_only: bool = False
    """End with the first violation: whether there is one is all that is asked."""


@dataclass
class Report:
    """Result of a trial. ``wrong`` is empty when every guarantee held."""

    order: Order
    wrong: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    recovery_s: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """(kind of fault, service) → seconds from healing to the service's first success.
    Only of rounds of one fault."""
    sent: int = 0
    acknowledged: int = 0
    took_s: float = 0.0
    cpu_s: float = 0.0
    memory_mb: dict[str, float] = field(default_factory=dict)
    met: dict[str, int] = field(default_factory=dict)


def abilities(size: Size) -> frozenset[str]:
    """Return the abilities of a world of this size, which kinds of faults may need."""
    return frozenset(
        name for name, there in (("three brokers", size.brokers > 1), ("own disk", size.disk_mb > 0)) if there
    )


def kinds_of(order: Order) -> list[Kind]:
    """The kinds of faults of a trial. Raises ValueError when none is left."""
    silence = {"silence"} if order.only else set()  # minutes each: only on request
    kinds = [
        each
        for each in possible(abilities(order.size) | silence)
        if not order.only or any(part in each.name for part in order.only)
    ]
    if not kinds:
        raise ValueError(f"no kind of fault has one of {', '.join(order.only)} in its name")
    return kinds


def run(order: Order, folder: Path, say: Callable[[str], None] = print) -> Report:
    """Run one trial in an empty folder. Call it from the main thread."""
    report = Report(order)
    began = time.monotonic()
    with prepared_environment(folder), running_world(folder, order.size, lambda _: None) as world:
        say(f"seed {order.seed}: the world runs after {time.monotonic() - began:.0f} s")
        trial = _Trial(world, order, report, say)
        trial.start()
        try:
            report.wrong += trial.settled()
            count(world)  # so that the page has states while something is hurt; open transactions are unread
            if not report.wrong:
                trial.hurt()
            trial.end_writing()
            say(
                f"  healed; {report.acknowledged} of {report.sent} events acknowledged; "
                "waiting until it is quiet"
            )
            seen = list(world.journal.wrong) if order.first_only else []
            report.wrong += seen or trial.settled()
            if not (report.wrong and order.first_only):
                report.wrong += check_all(world, trial.subscriber, trial.ids, say, order.first_only)
            report.wrong += trial.resources()
            for line in report.wrong:
                say(f"  WRONG: {line}")
        finally:
            trial.stop()
    report.took_s = time.monotonic() - began
    report.met = dict(world.journal.met)
    return report


@contextmanager
def prepared_environment(folder: Path) -> Iterator[None]:
    """The hub's processes of this trial load tests/planted_bugs/sitecustomize.py:
    the clock that can be set, and bugs."""
    planted = str(Path(__file__).parents[1] / "planted_bugs")
    folder.mkdir(parents=True, exist_ok=True)
    clock = folder / "clock"
    clock.write_text("0")
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "HUB_FAULT_CLOCK")}
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (planted, before["PYTHONPATH"])))
    os.environ["HUB_FAULT_CLOCK"] = str(clock)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Trial:
    def __init__(self, world: World, order: Order, report: Report, say: Callable[[str], None]) -> None:
        self.world, self.order, self.report, self.say = world, order, report, say
        self.chance = Random(order.seed)
        self.source = Source(order.seed)
        self.writers = self._writers(world.journal)
        self.probes: dict[str, Probe] = {name: made(world) for name, made in PROBES_OF.items()}
        readers = (TokenReader, KeyReader, SqlReader, ListReader)
        self.readers: list[Reader] = [made(world.journal, world.settings.url, order.seed) for made in readers]
        self.subscriber = Subscriber(world.settings.url, "customer_totals")
        self.group = GroupMover(world, order.seed)
        self._subscribed = False

    def _writers(self, journal: Journal) -> list[Writer]:
        per_s = self.order.events / (self.order.minutes * 60.0)
        codec, through = self.world.codec, self.world.home.through

        def enough() -> bool:
            self.source.schema_id = self.world.schema_id
            return journal.counts()[0] >= self.order.events

        made: list[Writer] = [
            KafkaWriter("kafka", journal, self.source, codec, 0.7 * per_s, through),
            SloppyWriter("sloppy", journal, self.source, codec, max(0.5, 0.05 * per_s), through),
            TransactionalWriter("transactions", journal, self.source, codec, max(0.2, 0.02 * per_s), through),
            HttpWriter("http", journal, self.source, codec, max(0.5, 0.05 * per_s), self.world.http_url),
        ]
        for each in made:
            each.limit = enough
        return made

    @property
    def ids(self) -> dict[int, str]:
        probe = self.probes["registry"]
        assert isinstance(probe, RegistryProbe)
        return dict(probe.ids)

    def start(self) -> None:
        for writer in self.writers:
            writer.start()
        for probe in self.probes.values():
            probe.start()
        limit_s = BACK_S if self.order.first_only else START_S
        self._wait_for(self.probes, time.monotonic(), "at the start", limit_s)
        self.subscriber.start()
        self._subscribed = True
        for reader in self.readers:
            reader.start()
        self.group.start()

    def settled(self) -> list[str]:
        """Wait until all views are live; the violation when they do not get there."""
        try:
            settle(self.world, self.say)
        except AssertionError as error:
            return [f"it does not get quiet: {error}"]
        return []

    def hurt(self) -> None:
        """Round after round until they are done, the time is over, or something is wrong."""
        until = time.monotonic() + self.order.minutes * 60.0
        kinds = kinds_of(self.order)
        first = kills(kinds, self.chance) if self.order.kills_first else []
        plan = [*first, *choose(kinds, self.chance, self.order.rounds)]
        for number, together in enumerate(plan, 1):
            late = time.monotonic() > until and number > len(first)
            if late or self.world.journal.wrong:
                break
            self._round(number, together)
            self.world.live(self.chance.uniform(0.2, 2.0))

    def _round(self, number: int, together: Sequence[Kind]) -> None:
        names = " + ".join(each.name for each in together)
        lasts = self.chance.uniform(
            max(each.seconds[0] for each in together), max(each.seconds[1] for each in together)
        )
        began = time.monotonic()
        try:
            with ExitStack() as hurt:
                for each in together:
                    hurt.enter_context(each.hurt(self.world, self.chance))
                    self.report.faults[each.name] += 1
                self.world.live(lasts)
                self._look_at_counts(names)
        except Exception as error:  # noqa: BLE001 (the trial fails by it)
            self.world.journal.accuse(f"{names}: the fault itself failed: {type(error).__name__}: {error}")
            return
        healed = time.monotonic()
        away = self._wait_for(self.probes, healed, names)
        if len(together) == 1:
            for service, seconds in away.items():
                self.report.recovery_s[together[0].name, service].append(seconds)
        worst = max(away.items(), key=lambda each: each[1], default=("", 0.0))
        self.say(
            f"  {number:3} {names} for {healed - began:.1f} s: all back after {worst[1]:.1f} s"
            + (f" ({worst[0]} last)" if worst[0] else "")
        )

    def _look_at_counts(self, names: str) -> None:
        """What is hurt or late is not missing: no state of completeness may say so."""
        with suppress(httpx2.HTTPError):
            for each in count_violations(shown(self.world.settings.url, 5.0)):
                self.world.journal.accuse(f"{names}: {each}")

    def _wait_for(
        self, probes: dict[str, Probe], since: float, what: str, limit_s: float = BACK_S
    ) -> dict[str, float]:
        """Live until each service answered; seconds to that from ``since``, by service."""
        deadline = time.monotonic() + patient(limit_s)
        back: dict[str, float] = {}
        while len(back) < len(probes):
            for service, probe in probes.items():
                seconds = probe.recovered_s(since)
                if service not in back and seconds is not None:
                    back[service] = seconds
            if time.monotonic() > deadline:
                for service in probes.keys() - back.keys():
                    self.world.journal.accuse(
                        f"{what}: {service} is not back after {patient(limit_s):.0f} s: "
                        f"{probes[service].failure}"
                    )
                break
            self.world.live(0.1)
        return back

    def end_writing(self) -> None:
        """Stop writers after their last acknowledgement, so that the journal is complete."""
        for writer in self.writers:
            writer.stop(patient(150.0))
        for service in ("materializer", "mirror", "gateway", "registry", "reads"):
            self.probes[service].stop()
        self.group.stop()
        self.report.sent, self.report.acknowledged = self.world.journal.counts()

    def resources(self) -> list[str]:
        """Memory and open files of each process of the hub; a violation where one has more than its bound."""
        wrong: list[str] = []
        for part, process in self.world.part_processes().items():
            try:
                memory_mb, files = process.memory_info().rss / 1e6, process.num_fds()
                self.report.cpu_s += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
            self.report.memory_mb[part] = memory_mb
            if files > FILES_MOST or memory_mb > MEMORY_MOST_MB:
                wrong.append(f"{part} has {files} open files and {memory_mb:.0f} MB at the end")
        return wrong

    def stop(self) -> None:
        for writer in self.writers:
            writer.stop(5.0) if not writer.stopping else None
        for probe in self.probes.values():
            probe.stop()
        for reader in self.readers:
            reader.stop()
        self.group.stop()
        if self._subscribed:
            self.subscriber.stop()


def table(reports: Sequence[Report]) -> list[str]:
    """Recovery times as lines of a Markdown table:
    by kind of fault and service, median and longest in seconds."""
    every: dict[tuple[str, str], list[float]] = defaultdict(list)
    for report in reports:
        for key, seconds in report.recovery_s.items():
            every[key] += seconds
    services = list(PROBES_OF)
    lines = ["| fault | " + " | ".join(services) + " |", "|---" * (len(services) + 1) + "|"]
    for name in sorted({name for name, _ in every}):
        cells = [_cell(every.get((name, service), [])) for service in services]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def _cell(seconds: Sequence[float]) -> str:
    if not seconds:
        return ""
    ordered = sorted(seconds)
    median = ordered[math.floor(len(ordered) / 2)]
    return f"{median:.1f}" if len(ordered) == 1 else f"{median:.1f}, {ordered[-1]:.1f}"
