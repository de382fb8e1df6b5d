"""Cost of verifying a store against its changelog: rows/s of one core, memory, disk, and duration within its
CPU share.

Run: ``./run bench proof [--keys N …] [--only sqlite|postgresql|duckdb|iceberg]``. A changelog of five rows a
key on a real Kafka, filled into a store; then a prover in a process of its own. Prints figures, asserts no
time; a store that does not match ends it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import psutil

# This module is in the same folder; importing it sets the paths.
from applier import KINDS, Schemas, fill, log_and_postgres, url_of, write
from postgres import BINARIES, Postgres

from hub.config import Settings
from hub.kafka import KafkaCluster
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.stores.open_store import open_store
from hub.materializers.verification.continuous_check import ContinuousVerifier
from hub.materializers.verification.turns import VerifiableView
from hub.materializers.verification.verification_status import VerificationState

WIDTH = "wide"


class Keeper:
    name = "bench"

    def __init__(self, url: str) -> None:
        self.store = open_store(url, Settings())

    def provable(self) -> tuple[list[VerifiableView], str]:
        return [VerifiableView(WIDTH, WIDTH, f"views.{WIDTH}", self.store)], ""


class Peak:
    """The highest resident size while it runs, in bytes."""

    def __init__(self) -> None:
        self.process, self.bytes, self.stop = psutil.Process(), 0, threading.Event()

    def __enter__(self) -> Self:
        def look() -> None:
            while not self.stop.wait(0.05):
                self.bytes = max(self.bytes, self.process.memory_info().rss)

        self.bytes = self.process.memory_info().rss
        threading.Thread(target=look, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()


def prove(bootstrap: str, url: str, folder: str, share: float) -> dict[str, Any]:
    """The first proof, which reads the changelog, and one more, which has only the store to read."""
    cluster, keeper = KafkaCluster(bootstrap, 15.0), Keeper(url)
    prover = ContinuousVerifier(cluster, Schemas(WIDTH), [keeper], Path(folder), share, 0.0)
    cluster.topics()
    before = psutil.Process().memory_info().rss
    times = []
    with Peak() as peak:
        for _ in range(2):
            began_s, worked_s = time.perf_counter(), prover.clock.worked_s
            known = -1
            while True:
                prover.step()
                turn = prover.turns["bench", WIDTH]
                known = turn.proof.compared_ms if known == -1 else known
                if turn.proof.state is VerificationState.DIFFERS:
                    sys.exit(turn.proof.reason)
                if turn.proof.state is VerificationState.MATCHES and (
                    len(times) == 0 or turn.proof.compared_ms != known
                ):
                    break
            times.append((time.perf_counter() - began_s, prover.clock.worked_s - worked_s))
    rows = turn.proof.rows
    prover.close()
    disk = sum(each.stat().st_size for each in Path(folder).glob("*"))
    return {"rows": rows, "times": times, "memory": peak.bytes - before, "disk": disk}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000])
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--share", type=float, default=0.1, help="of a core, as proof_core_share has it")
    parser.add_argument("--prove", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prove:
        *places, share = options.prove
        print(json.dumps(prove(*places, float(share))))
        return
    kinds = [each for each in options.only or KINDS if each != "postgresql" or BINARIES]
    for keys in options.keys:
        with log_and_postgres(kinds) as (bootstrap, postgres, folder):
            measure(bootstrap, kinds, postgres, folder, keys, options.share)


def measure(
    bootstrap: str, kinds: list[str], postgres: Postgres | None, folder: Path, keys: int, share: float
) -> None:
    cluster = KafkaCluster(bootstrap, 15.0)
    cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
    write(cluster, WIDTH, 5 * keys, keys)
    print(f"{keys:,} keys, {5 * keys:,} rows of 20 columns in the changelog; share {share:g}")
    print(
        f"{'':12}{'changelog':>12}{'store':>12}{'more memory':>13}{'on disk':>10}{'a turn within its share':>26}"  # noqa: E501
    )
    print(f"{'':12}{'rows/core s':>12}{'rows/core s':>12}{'MB':>13}{'MB':>10}{'s':>26}", flush=True)
    for kind in kinds:
        url = url_of(kind, folder / f"{WIDTH}.{kind}")
        if kind == "postgresql":
            assert postgres is not None
            url = postgres.database(WIDTH)
        if not fill(bootstrap, WIDTH, url)["equal"]:
            sys.exit(f"{kind} does not equal the fold of its changelog")
        found = {of: _proved(bootstrap, url, folder / f"proof-{kind}-{of}", of) for of in (1.0, share)}
        (_, first), (_, second) = found[1.0]["times"]
        rows, read = found[1.0]["rows"], max(first - second, 0.001)
        print(
            f"{kind:12}{5 * keys / read:>12,.0f}{rows / second:>12,.0f}{found[1.0]['memory'] / 2**20:>13.0f}"
            f"{found[1.0]['disk'] / 2**20:>10.1f}{found[share]['times'][1][0]:>26.1f}",
            flush=True,
        )


def _proved(bootstrap: str, url: str, folder: Path, share: float) -> dict[str, Any]:
    command = [sys.executable, __file__, "--prove", bootstrap, url, str(folder), str(share)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
