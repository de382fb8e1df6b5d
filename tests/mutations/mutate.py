"""Plant a seeded sample of mutations into the pure core and run the unit tests of each module: ``./run
mutate``.

Each mutant is imported by a pytest process of its own in the place of its module (``planted.py``), so no
source changes. A failing test, an error of an import, or processor time without end catches it. What survived
is printed as a diff: write the test that notices it, or list it in ``equivalent.py`` with the reason. The
result goes to ``.cache/mutations.json``, which ``./run check --report`` prints. Exit code 0: at most 1 of 20
mutants survived; 1: more did.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from patience import patient

from mutations.core import ROOT, core_modules
from mutations.covering import covering, import_map
from mutations.equivalent import is_equivalent
from mutations.mutants import Mutant, sample

RESULT = ROOT / ".cache" / "mutations.json"
FIRST_FILES = 4
"""How many of the nearest test files run first: most mutants end there."""
MOST_CPU_S, MOST_WALL_S, MOST_BYTES = 180, 1_200.0, 8 << 30
TOLERATED = 0.05

CAUGHT, SURVIVED, UNKNOWN = "caught", "survived", "unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of the tests for a mutant. ``why`` is the last line of the deciding run."""

    mutant: Mutant
    state: str
    why: str


@dataclass(frozen=True, slots=True)
class Run:
    """End of a pytest process: its exit code (negative: the signal that ended it;
    None: it did not end in time)."""

    code: int | None
    last_line: str


def pytest_run(files: Sequence[str], mutant: Mutant | None, folder: Path) -> Run:
    """Run test files with a mutant, or as they are, up to the first failure."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    if mutant is not None:
        text = Path(tempfile.mkdtemp(dir=folder)) / "mutant.py"
        text.write_text(mutant.source, encoding="utf-8")
        environment |= {"MUTANT_MODULE": mutant.module, "MUTANT_FILE": str(text)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    command += ["-p", "mutations.planted", "--tb=line", *files]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patient(MOST_WALL_S),
            preexec_fn=_bound,
        )
    except subprocess.TimeoutExpired:
        return Run(None, f"no end after {patient(MOST_WALL_S):.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    rest = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    return Run(done.returncode, (lines or rest or [""])[-1].strip())


def _bound() -> None:
    """Bound processor time and memory: a mutant may loop for ever."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))


class Tests:
    """Batches of test files by module, each run once as it is before it judges a mutant."""

    def __init__(self, folder: Path) -> None:
        self._imports = import_map(ROOT)
        self._folder = folder
        self._lock = Lock()
        self._sound: dict[tuple[str, ...], Run] = {}

    def batches(self, module: str) -> list[tuple[str, ...]]:
        files = covering(module, self._imports)
        return [each for each in (tuple(files[:FIRST_FILES]), tuple(files[FIRST_FILES:])) if each]

    def sound(self, files: tuple[str, ...]) -> Run:
        """Return the run of these files without a mutant."""
        with self._lock:
            known = self._sound.get(files)
        if known is None:
            known = pytest_run(files, None, self._folder)
            with self._lock:
                self._sound[files] = known
        return known


def judge(mutant: Mutant, tests: Tests, folder: Path) -> Outcome:
    """Run the tests of the mutant's module, the nearest first."""
    batches = tests.batches(mutant.module)
    if not batches:
        return Outcome(mutant, SURVIVED, "no unit test imports the module")
    for files in batches:
        before = tests.sound(files)
        if before.code != 0:
            return Outcome(mutant, UNKNOWN, f"the tests fail without it: {before.last_line}")
        run = pytest_run(files, mutant, folder)
        if run.code is None:
            return Outcome(mutant, UNKNOWN, run.last_line)
        if run.code != 0:
            return Outcome(mutant, CAUGHT, run.last_line)
    return Outcome(mutant, SURVIVED, f"{sum(map(len, batches))} files of tests pass")


def main() -> int:
    arguments = _arguments()
    sources = {name: path.read_text(encoding="utf-8") for name, path in core_modules().items()}
    if arguments.only:
        sources = {name: text for name, text in sources.items() if name.startswith(arguments.only)}
        if not sources:
            print(f"Error: no module of the core is called {arguments.only}: see tests/mutations/core.py")
            return 2
    chosen = [
        each for each in sample(sources, arguments.seed, 2 * arguments.count) if not is_equivalent(each)
    ]
    chosen = chosen[: arguments.count]
    print(f"{len(chosen)} mutants of {len(sources)} modules, seed {arguments.seed}", flush=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = Path(name)
        tests = Tests(folder)
        for outcome in pool.map(lambda each: judge(each, tests, folder), chosen):
            outcomes.append(outcome)
            print(f"{outcome.state:8} {outcome.mutant.name}   {outcome.why[:110]}", flush=True)
    for outcome in outcomes:
        if outcome.state != CAUGHT:
            print(f"\n{outcome.state}: {outcome.why}\n{outcome.mutant.diff(sources[outcome.mutant.module])}")
    result = _result(arguments.seed, outcomes)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2))
    print(f"\n{result['caught']} of {result['mutants']} caught, {result['unknown']} unknown")
    return int(len(outcomes) - result["caught"] > TOLERATED * len(outcomes))


def _result(seed: int, outcomes: Sequence[Outcome]) -> dict[str, object | int]:
    states = [outcome.state for outcome in outcomes]
    return {
        "seed": seed,
        "mutants": len(outcomes),
        "caught": states.count(CAUGHT),
        "unknown": states.count(UNKNOWN),
        "survived": [each.mutant.name for each in outcomes if each.state == SURVIVED],
        "ended_at_s": int(time.time()),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./run mutate", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the sample; default: 1")
    parser.add_argument("--count", type=int, default=60, help="number of mutants; default: 60")
    parser.add_argument(
        "--only", default="", metavar="MODULE", help="a module or package: hub.replication.maps"
    )
    parser.add_argument("--jobs", type=int, default=2, help="pytest processes at a time; default: 2")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
