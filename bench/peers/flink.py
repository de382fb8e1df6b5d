"""Flink SQL beside the hub's SQL views: a cluster of one process, two at a time, on the same topics and
registry.

Flink itself comes from PyPI (``apache-flink-libraries``, the jars of ``apache-flink``; flink-dist is not on
Maven Central), checked against its sha256 and unpacked into the cache, so PyFlink's fifteen Python packages
are not needed: the SQL is run by
``SqlJobs.java``. The connector is 5.0.0-2.2, for Flink 2.2: there is none for 2.3 yet. ``avro-confluent`` is
2.3.0's, because that of 2.2 does not resolve from Maven Central.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from peers.kafka_streams import javac, peak_memory_mb

from hub.config import Settings
from hub.embedded import ensure_jars
from hub.embedded.java import find_java
from hub.runtime import die_with_parent
from hub.supervisor import last_line

VERSION = "2.2.1"
PACKAGE = f"apache-flink-libraries=={VERSION}"
# of the names and contents of its jars
SHA256 = "da8b4d735fd13f5995aadded777be1ff6e062142edaf1ff5d198e51c4119fbed"
HEAP_MB = 2_048
PARALLELISM = 2


@dataclass(frozen=True, slots=True)
class Job:
    """What one query took. ``failed`` is Flink's word, or nothing."""

    seconds: float
    cpu_s: float
    failed: str


def fetch(settings: Settings) -> Path:
    """The folder of Flink's jars, fetched once (some 250 MB). Raises RuntimeError with pip's last words."""
    folder = settings.cache.expanduser() / "bench" / f"flink-{VERSION}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".flink-", dir=folder.parent) as name:
        staging = Path(name)
        _run([sys.executable, "-m", "venv", str(staging / "venv")])
        python = str(staging / "venv" / "bin" / "python")
        _run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", PACKAGE])
        (unpacked,) = (staging / "venv").glob("lib/*/site-packages/pyflink/lib")
        got = digest(unpacked)
        if got != SHA256:
            raise RuntimeError(f"{PACKAGE}: the sha256 of its jars is {got}, not {SHA256}; they are not used")
        os.rename(unpacked, folder)
    return folder


def jars(settings: Settings) -> list[Path]:
    """Flink's, the connector's and the format's, fetched when they are missing.
    Raises RuntimeError, HubError."""
    found = sorted(fetch(settings).glob("*.jar"))
    for of, wanted in (
        ("flink", "flink-sql-connector-kafka"),
        ("registry-client", "flink-sql-avro-confluent"),
    ):
        found += [jar for jar in ensure_jars(settings, (of,))[of] if jar.name.startswith(wanted)]
    return found


def digest(folder: Path) -> str:
    """One sha256 for a folder of jars: their names and contents."""
    found = hashlib.sha256()
    for jar in sorted(folder.glob("*.jar")):
        with jar.open("rb") as file:
            found.update(f"{jar.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[-2:])} failed: {(done.stderr or done.stdout)[-500:]}")


def run(
    settings: Settings, folder: Path, queries: Mapping[str, str], timeout_s: float
) -> tuple[dict[str, Job], int]:
    """Each query's statements in turn, by one process: what each took, and the process's peak memory in MB.

    A query that is not done when the time is over is not among them; nor are those after it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = ":".join(map(str, jars(settings)))
    compiler = javac()
    assert compiler is not None
    source = Path(__file__).with_name("SqlJobs.java")
    subprocess.run(
        [str(compiler), "-nowarn", "-cp", path, "-d", str(folder / "classes"), str(source)], check=True
    )
    files = []
    for name, statements in queries.items():
        files.append(folder / name)
        files[-1].write_text(statements)
    (folder / "log4j2.properties").write_text(
        "rootLogger.level = WARN\nrootLogger.appenderRef.file.ref = file\nappender.file.name = file\n"
        f"appender.file.type = File\nappender.file.fileName = {folder / 'flink.log'}\n"
        "appender.file.layout.type = PatternLayout\nappender.file.layout.pattern = %d %p %c %m%n%ex\n"
    )
    command = [
        str(find_java(settings).path), f"-Xmx{HEAP_MB}m",
        f"-Dlog4j.configurationFile={folder / 'log4j2.properties'}",
        f"-Djava.io.tmpdir={folder}", "-cp", f"{folder / 'classes'}:{path}", "SqlJobs", str(PARALLELISM),
        str(folder / "checkpoints"),
        *map(str, files),
    ]  # fmt: skip
    found: dict[str, Job] = {}
    peak_mb = 0
    with (folder / "stderr").open("w") as errors:
        process = psutil.Popen(
            die_with_parent(command),
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        killer = threading.Timer(timeout_s, process.kill)
        killer.start()
        try:
            for line in process.stdout:
                if line.startswith("JOB\t"):
                    _, name, seconds, cpu_s, said = line.rstrip("\n").split("\t")
                    failed = "" if said == "done" else said.removeprefix("failed: ")
                    found[name] = Job(float(seconds), float(cpu_s), failed)
                    peak_mb = peak_memory_mb(process.pid)
        finally:
            killer.cancel()
            process.kill()
            process.wait(30)
    if not found:
        raise RuntimeError(f"Flink ran nothing: {last_line(folder / 'stderr')}")
    shutil.rmtree(folder, ignore_errors=True)
    return found, peak_mb
