"""A real Spark cluster on loopback, in Spark's own standalone mode:
a master and workers, processes of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pipeline import wait_until
from ports import free_ports

from hub.config import Settings
from hub.embedded import find_java
from hub.embedded.jars import pyspark_home, spark_classpath
from hub.embedded.java import JVM_FOLDER
from hub.embedded.spark_gateway import OPENED
from hub.runtime import die_with_parent
from hub.supervisor import end

LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
PATIENCE_S = 180.0  # three JVMs start on a busy machine


class SparkCluster:
    """A Spark master and workers that report ``cores`` cores each; their logs are in ``folder``."""

    def __init__(self, folder: Path, cores: int = 1) -> None:
        self.folder = folder
        self.cores = cores
        self.port, *self._pages = free_ports(4)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def start(self, workers: int) -> None:
        self._start("master", "master.Master", "--port", str(self.port), "--webui-port", str(self._pages[0]))
        wait_until(
            lambda: "I have been elected leader" in self.said("master"),
            PATIENCE_S,
            lambda: self.said("master"),
        )
        for number in range(workers):
            self._start_worker(f"worker-{number}", self._pages[1 + number])
        wait_until(
            lambda: self.said("master").count("Registering worker") >= workers,
            PATIENCE_S,
            lambda: self.said("master"),
        )

    def _start_worker(self, name: str, page: int) -> None:
        own = (
            "--cores",
            str(self.cores),
            "--memory",
            "700m",
            "--webui-port",
            str(page),
            "--work-dir",
            self.folder / name,
        )
        self._start(name, "worker.Worker", *map(str, own), self.url)

    def _start(self, name: str, main: str, *arguments: str) -> None:
        opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
        command = [str(_java()), "-Xmx256m", *opened, "-cp", spark_classpath(Settings(), [])]
        command += [f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1", *arguments]
        with (self.folder / f"{name}.log").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                die_with_parent(command),
                # As bin/spark-class of a distribution sets them.
                env={
                    **os.environ,
                    **LOOPBACK,
                    "SPARK_HOME": str(pyspark_home()),
                    "SPARK_SCALA_VERSION": "2.13",
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def executors(self, name: str) -> list[psutil.Process]:
        """Return the processes that run a worker's tasks."""
        below = psutil.Process(self.processes[name].pid).children(recursive=True)
        return [each for each in below if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]

    def kill(self, name: str) -> None:
        """kill -9 of a worker and of its executors: a machine is gone."""
        for each in self.executors(name):
            each.kill()
        self.processes[name].kill()
        self.processes.pop(name).wait(30.0)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            end(process, 10.0)


def _java() -> Path:
    """A Java as a cluster's machines have: a worker starts executors with ``jdk.incubator.vector``,
    which the hub's own lacks."""
    for path in (find_java(Settings()).path, *sorted(JVM_FOLDER.glob("*/bin/java"))):
        listed = subprocess.run(
            [path, "--list-modules"], check=False, capture_output=True, text=True, timeout=30.0
        )
        if "jdk.incubator.vector" in listed.stdout:
            return path
    pytest.skip("no Java here has jdk.incubator.vector: apt-get install openjdk-17-jre-headless")


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, cores: int = 1) -> Iterator[SparkCluster]:
    running = SparkCluster(folder, cores)
    try:
        running.start(workers)
        yield running
    finally:
        running.stop()
