"""Speed of an applier: rows/s, CPU and memory of one applier into each kind of store, on a real Kafka.

Run: ``./run bench applier [--rows N] [--keys N] [--only sqlite|postgresql|duckdb|iceberg]``. Each figure is
of a process of its own that fills an empty store from the log, decoding included. Prints figures, asserts no
time; a store that does not equal the fold of the changelog ends the bench.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Measure the hub of this repository, not an installed one.
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import psutil
from ports import free_pair
from postgres import BINARIES, Postgres

from hub.config import Settings
from hub.embedded import KafkaNode
from hub.kafka import KafkaCluster
from hub.materializers.applying.applier import Applier
from hub.materializers.definition.entity_view import View
from hub.materializers.stores.open_store import open_store
from hub.materializers.verification.verify import verify
from hub.record import NewRecord
from hub.runtime import collect_rarely
from hub.schema_registry.client.port import RegisteredSchema
from hub.schema_registry.codecs.wire_format import encode, parsed

KINDS = ("sqlite", "postgresql", "duckdb", "iceberg")
_TEXTS, _LONGS = [f"t{n}" for n in range(6)], [f"n{n}" for n in range(8)]
_TIME = {"type": "long", "logicalType": "timestamp-millis"}
_ORIGIN = [("topic", "string"), ("partition", "int"), ("offset", "long"), ("timestamp", _TIME)]


def schema(width: str) -> dict[str, Any]:
    """``wide``: 20 columns and the provenance of three sources; ``narrow``: three columns and one source."""
    columns: list[tuple[str, Any]] = [("t0", "string"), ("n0", "long"), ("d0", "double")]
    if width == "wide":
        columns = [
            *((name, "string") for name in _TEXTS),
            *((name, "long") for name in _LONGS),
            *((name, "double") for name in ("d0", "d1")),
            *((name, "boolean") for name in ("b0", "b1")),
            ("at", _TIME),
            ("words", {"type": "array", "items": "string"}),
        ]
    sources = [
        {"type": "record", "name": f"s{n}", "namespace": "views.b", "fields": _fields(_ORIGIN)}
        for n in range(3 if width == "wide" else 1)
    ]
    fields = [{"name": name, "type": ["null", kind], "default": None} for name, kind in columns]
    provenance = {"type": "record", "name": "_sources", "namespace": "views", "fields": []}
    provenance["fields"] = [{"name": each["name"], "type": ["null", each]} for each in sources]
    fields += [{"name": "_version", "type": "long"}, {"name": "_sources", "type": provenance}]
    return {"type": "record", "name": width, "namespace": "views", "fields": fields}


def _fields(columns: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, "type": kind} for name, kind in columns]


def row(width: str, version: int) -> dict[str, Any]:
    origin = {
        "topic": "shop.orders",
        "partition": 1,
        "offset": version,
        "timestamp": 1_700_000_000_000 + version,
    }
    if width == "narrow":
        values: dict[str, Any] = {"t0": f"text {version}", "n0": version, "d0": version / 7}
        return {**values, "_version": version, "_sources": {"s0": origin}}
    values = {name: f"{name} of row {version}" for name in _TEXTS} | dict.fromkeys(_LONGS, version * 3)
    values |= {"d0": version / 7, "d1": 0.5, "b0": True, "b1": False, "at": version, "words": ["a", "b"]}
    return {**values, "_version": version, "_sources": {f"s{n}": origin for n in range(3)}}


class Schemas:
    """The registry, with one schema."""

    def __init__(self, width: str) -> None:
        self.text = json.dumps(schema(width))

    def schema(self, schema_id: int) -> str:
        return self.text

    def latest(self, subject: str) -> RegisteredSchema:
        return RegisteredSchema(1, 1, self.text)


def fill(bootstrap: str, width: str, url: str) -> dict[str, Any]:
    """Apply a whole changelog and return what this process used."""
    cluster = KafkaCluster(bootstrap, 15.0)
    columns = [each["name"] for each in schema(width)["fields"] if not each["name"].startswith("_")]
    view = View.model_validate(
        {
            "view": width,
            "sources": {"s": {"topic": "x", "key": "k"}},
            "fields": {each: f"s.{each}" for each in columns},
        }
    )
    store = open_store(url, Settings())  # HUB_HOME has the catalog
    applier = Applier(cluster, Schemas(width), store)
    applier.follow([view])
    end = cluster.end_offsets([view.changelog])
    collect_rarely()  # as the applier's process does
    begun, cpu = time.perf_counter(), time.process_time()
    rows = 0
    while not applier.followed[width].position.covers(end):
        rows += applier.step()
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    applier.close()
    equal = verify(cluster, Schemas(width), width, store).equal
    store.close()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"rows": rows, "seconds": took, "cpu": cpu, "memory_mb": memory, "equal": equal}


def write(cluster: KafkaCluster, width: str, rows: int, keys: int) -> None:
    topic = f"views.{width}"
    cluster.create_topic(topic, partitions=2, config={}, replication_factor=1)
    known, chance, writer = parsed(schema(width)), random.Random(1), cluster.writer()
    for start in range(1, rows + 1, 20_000):
        versions = range(start, min(start + 20_000, rows + 1))
        writer.append(
            [
                NewRecord(
                    topic,
                    f"key-{chance.randrange(keys):08d}".encode(),
                    encode(1, known, row(width, version)),
                    (("hub.version", str(version).encode()),),
                )
                for version in versions
            ]
        )
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--keys", type=int, default=None, help="default: one for five rows")
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--fill", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        print(json.dumps(fill(*options.fill)))
        return
    kinds = [each for each in options.only or KINDS if each != "postgresql" or BINARIES]
    with log_and_postgres(kinds) as (bootstrap, postgres, folder):
        measure(bootstrap, kinds, postgres, folder, options.rows, options.keys)


@contextmanager
def log_and_postgres(kinds: Sequence[str]) -> Iterator[tuple[str, Postgres | None, Path]]:
    """A Kafka's address, a Postgres where one is among the kinds, and the folder of the first,
    which is gone afterwards."""
    postgres = Postgres() if "postgresql" in kinds else None
    with tempfile.TemporaryDirectory(prefix="hub-bench-") as folder:
        port = free_pair()
        node = KafkaNode(Settings(home=Path(folder), kafka_port=port, bootstrap=f"127.0.0.1:{port}"))
        node.start()
        os.environ["HUB_HOME"] = folder
        try:
            node.wait_ready()
            if postgres is not None:
                postgres.start()
            yield node.settings.bootstrap, postgres, Path(folder)
        finally:
            if postgres is not None:
                postgres.stop()
            node.stop()


def url_of(kind: str, file: Path) -> str:
    return f"iceberg:///{file.stem}" if kind == "iceberg" else f"{kind}:///{file}"


def measure(
    bootstrap: str, kinds: list[str], postgres: Postgres | None, folder: Path, rows: int, keys: int | None
) -> None:
    print(f"{'':24}{'rows/s':>10}{'CPU µs/row':>12}{'of the server':>15}{'memory MB':>11}")
    for width in ("narrow", "wide"):
        write(KafkaCluster(bootstrap, 15.0), width, rows, keys or rows // 5)
        for kind in kinds:
            url = url_of(kind, folder / f"{width}.{kind}")
            if kind == "postgresql":
                assert postgres is not None
                url = postgres.database(width)
            before = _server_cpu(postgres)
            done = subprocess.run(
                [sys.executable, __file__, "--fill", bootstrap, width, url],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(done.stderr)
            found = json.loads(done.stdout)
            if not found["equal"]:
                sys.exit(f"{width} in {kind} does not equal the fold of its changelog")
            server = (_server_cpu(postgres) - before) / found["rows"] * 1e6 if kind == "postgresql" else 0.0
            print(
                f"{width + ' into ' + kind:24}{found['rows'] / found['seconds']:>10,.0f}"
                f"{found['cpu'] / found['rows'] * 1e6:>12.1f}{server:>15.1f}{found['memory_mb']:>11,.0f}",
                flush=True,
            )


def _server_cpu(postgres: Postgres | None) -> float:
    """Return the CPU seconds of Postgres's processes, including those that ended."""
    if postgres is None or postgres.process is None:
        return 0.0
    server = psutil.Process(postgres.process.pid)
    times = [server.cpu_times()]
    for each in server.children():
        # A process that ends meanwhile is counted with its parent's children.
        with suppress(psutil.NoSuchProcess):
            times.append(each.cpu_times())
    own = sum(each.user + each.system for each in times)
    return own + times[0].children_user + times[0].children_system


if __name__ == "__main__":
    main()
