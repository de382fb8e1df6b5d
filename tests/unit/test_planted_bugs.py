"""The table of planted bugs is true of the source as it is:
each text stands once, and each edit still compiles."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = Path(__file__).parents[1] / "planted_bugs"
sys.path.append(str(PLANTED))

from bugs import BUGS


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_edits_one_place_that_is_there(name: str) -> None:
    bug = BUGS[name]
    spec = importlib.util.find_spec(bug.module)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(bug.before) == 1
    assert bug.before != bug.after
    compile(source.replace(bug.before, bug.after), spec.origin, "exec")


@pytest.mark.processes
def test_a_process_has_the_bug_that_its_environment_names() -> None:
    """The map's bytes name another run, and every other process writes the right ones."""
    asked = (
        "from hub.replication.maps.offset_map import Run, decode_runs, encode_runs; "
        "print(decode_runs(encode_runs([Run(3, 9, 2)]))[0].target)"
    )
    environment = {"PYTHONPATH": f"{PLANTED}:{Path(__file__).parents[2]}"}
    for bug, expected in ((None, "9"), ("the offset map is written one off", "8")):
        named = {} if bug is None else {"HUB_PLANTED_BUG": bug}
        done = subprocess.run(
            [sys.executable, "-c", asked],
            env={**environment, **named},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout.strip(), done.stderr) == (expected, ""), bug


def test_every_fault_that_a_bug_names_is_there() -> None:
    from fault_suite.faults import possible

    kinds = possible(frozenset({"three brokers", "own disk", "silence"}))
    for name, bug in BUGS.items():
        assert bug.faults, name
        for part in bug.faults:
            assert any(part in kind.name for kind in kinds), f"{name}: no kind of fault is called {part}"


def test_every_checker_that_a_bug_names_is_there() -> None:
    from fault_suite import checks, copies, counts, dead_letters, probes, readers, states, writers

    modules = (checks, copies, counts, dead_letters, probes, readers, states, writers)
    there = {name for module in modules for name in vars(module)}
    for name, bug in BUGS.items():
        assert bug.found_by, name
        assert set(bug.found_by) <= there, name


def test_there_are_at_least_forty_bugs_in_all_parts_of_the_hub() -> None:
    assert len(BUGS) >= 40
    parts = {bug.module.split(".")[1] for bug in BUGS.values()}
    assert parts == {"completeness", "kafka", "materializers", "replication", "schema_registry", "topics"}
