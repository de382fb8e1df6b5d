"""Run the fault suite for several seeds; print recovery times and every broken promise.

    ./run bench soak --seeds 20                     20 seeds of 100,000 events and 60 rounds of faults
    ./run bench soak --events 2000000 --rounds 300 --minutes 300     one long soak
    ./run bench soak --brokers 3 --only "home Kafka" leaders          some kinds of faults, three brokers
    ./run bench soak --bugs                         planted bugs: each must be found

Needs the environment of the tests: ``./run test --fast`` makes it. Prints figures and asserts no time. Exit
code 1: a promise was broken, or a planted bug was not found. No peer publishes a suite of this kind that runs
here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this checkout, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "planted_bugs")]

from fault_suite.trial import Order, Report, kinds_of, run, table
from fault_suite.world import Size


def main() -> int:
    asked = arguments()
    disk_mb = 4_000 if os.geteuid() == 0 and not asked.no_disk else 0
    size = Size(brokers=asked.brokers, disk_mb=disk_mb)
    if asked.list:
        order = Order(asked.first, size=size, only=tuple(asked.only))
        print("\n".join(each.name for each in kinds_of(order)))
        return 0
    if asked.bugs is not None:
        return planted(asked, size)
    reports = [
        one(
            Order(seed, asked.events, asked.rounds, asked.minutes, size, tuple(asked.only)),
        )
        for seed in range(asked.first, asked.first + asked.seeds)
    ]
    return summary(reports)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--events", type=int, default=100_000, help="of one seed")
    parser.add_argument(
        "--rounds", type=int, default=60, help="of faults in one seed; a round has one to three at once"
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="after which no round begins")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="of the home region")
    parser.add_argument(
        "--only", nargs="*", default=[], help="kinds of faults with one of these texts in their name"
    )
    parser.add_argument(
        "--no-disk", action="store_true", help="no disk of its own for the home folder (needs root)"
    )
    parser.add_argument("--list", action="store_true", help="print the kinds of faults and end")
    parser.add_argument(
        "--bugs", nargs="*", default=None, help="planted bugs to find; without names all of them"
    )
    return parser.parse_args()


def one(order: Order) -> Report:
    """One trial in a folder of its own, which is kept when something was wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"hub-faults-{order.seed}-"))
    report = run(order, folder / "world", lambda text: print(time.strftime("%H:%M:%S"), text, flush=True))
    if report.wrong:
        print(f"  its logs: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def summary(reports: list[Report]) -> int:
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    print("\nseconds from healing to the first success, median and longest, of rounds with one fault:\n")
    print("\n".join(table(reports)))
    print(
        f"\n{len(reports)} seeds, {faults.total()} faults of {len(faults)} kinds; "
        f"{sum(report.sent for report in reports):,} events sent, "
        f"{sum(report.acknowledged for report in reports):,} acknowledged; "
        f"{sum(report.took_s for report in reports) / 60:.0f} minutes, "
        f"{sum(report.cpu_s for report in reports):,.0f} CPU-seconds of the processes that ran at the end"
    )
    if reports:
        parts = sorted({part for report in reports for part in report.memory_mb})
        most = {part: max(report.memory_mb.get(part, 0.0) for report in reports) for part in parts}
        print("memory at the end, MB: " + ", ".join(f"{part} {size:.0f}" for part, size in most.items()))
    met: Counter[str] = sum((Counter(report.met) for report in reports), Counter())
    print(
        "errors that clients met and got over: "
        + "; ".join(f"{n} × {text}" for text, n in met.most_common(12))
    )
    red = [report.order.seed for report in reports if report.wrong]
    print(f"seeds with something wrong: {red or 'none'}")
    return 1 if red else 0


def planted(asked: argparse.Namespace, size: Size) -> int:
    """Each bug in turn, hurt by the faults that show it; a bug that is not found is the failure here."""
    from bugs import BUGS

    names = asked.bugs or sorted(BUGS)
    missed, early = [], []
    for name in names:
        bug = BUGS[name]
        os.environ["HUB_PLANTED_BUG"] = name
        order = Order(asked.first, 1_500, 12, 2.0, size, bug.faults, first_only=True)
        try:
            report = one(order)
        finally:
            del os.environ["HUB_PLANTED_BUG"]
        if not report.wrong:
            missed.append(name)
            print(f"{name}: NOT FOUND", flush=True)
            continue
        if not report.faults:  # a machine that is too busy fails here without any bug
            early.append(name)
        when = "found" if report.faults else "found before the first fault"
        print(f"{name}: {when}: {report.wrong[0][:200]}", flush=True)
    print(
        f"{len(names) - len(missed)} of {len(names)} planted bugs were found, {len(early)} of them before "
        f"the first fault: {early}; missed: {missed}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
