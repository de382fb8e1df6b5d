"""Seeded sample of the fault suite: some minutes of faults in a complete hub (tests/fault_suite describes
it).

./run test --faults --seed 7 --minutes 10      another seed, for longer
./run test --faults --sample                   each process is killed once, then faults for the rest of two minutes
"""  # noqa: E501

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fault_suite.trial import Order, run, table
from fault_suite.world import Size

SAMPLE_MIN = 2.0
"""Minutes of faults in the sample.
Its start, its end and the checks take about two more on a quiet machine."""


@pytest.mark.timeout(2_400)
def test_whatever_is_hurt_every_acknowledged_event_is_everywhere_once(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("--seed")
    seed = seed if seed is not None else seed_of_commit()
    sample = pytestconfig.getoption("--sample")
    minutes = SAMPLE_MIN if sample else pytestconfig.getoption("--minutes")
    how = "--sample" if sample else f"--minutes {minutes:g}"
    again = f"again: ./run test --faults {how} --seed {seed}"
    print(again)
    disk_mb = 1_500 if os.geteuid() == 0 and can_mount(tmp_path) else 0
    size = Size(disk_mb=disk_mb)
    order = Order(seed, events=round(1_000 * minutes), minutes=minutes, size=size, kills_first=sample)
    report = run(order, tmp_path / "world")
    print("\n".join(table([report])))
    print(
        f"{report.faults.total()} faults of {len(report.faults)} kinds, "
        f"{report.acknowledged} events acknowledged"
    )
    assert not report.wrong, "\n".join([again, *report.wrong])
    assert report.acknowledged > 100 * minutes, f"{again}: hardly anything was written: {report.met}"


def seed_of_commit() -> int:
    """Another seed for each commit, so that runs of CI try many."""
    return int(os.environ.get("HUB_TEST_SEED", "1")[:8] or "1", 16) % 10_000


def can_mount(folder: Path) -> bool:
    """Return whether this user may mount a disk."""
    probe = folder / "probe"
    probe.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "hub-faults", str(probe)], capture_output=True, check=False
    )
    if mounted.returncode == 0:
        subprocess.run(["umount", str(probe)], check=False, capture_output=True)
    return mounted.returncode == 0
