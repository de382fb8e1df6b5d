"""The table of planted bugs is true of the source as it is: each text stands once, and each edit still compiles."""

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


def test_a_process_has_the_bug_that_its_environment_names() -> None:
    asked = "from hub.replication.offset_map import OffsetMap; import inspect, hub.replication.offset_map as m; print(OffsetMap(0, 0, 3, 3).translate(3).offset)"
    environment = {
        "PYTHONPATH": f"{PLANTED}:{Path(__file__).parents[2]}",
        "HUB_PLANTED_BUG": "a translated position is one too low",
    }
    done = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_fault_that_a_bug_names_is_there() -> None:
    from fault_suite.faults import possible

    kinds = possible(frozenset({"three brokers", "own disk"}))
    for name, bug in BUGS.items():
        for part in bug.faults:
            assert any(part in kind.name for kind in kinds), f"{name}: no kind of fault is called {part}"
