"""The daemon of Spark's workers, spoken to as Spark's JVM does."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hub.materializers.spark.functions.policy import DAEMON
from hub.sandbox.kernel import platform_of_process
from hub.sandbox.rules import VARIABLE, Fences

WAIT_S = 60.0


def started_worker(**variables: str) -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    """Start the daemon and one worker. Return them with the worker's pid."""
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": "word", "HUB_TOKEN": "s3cr3t", **variables}
    daemon = subprocess.Popen(
        [sys.executable, "-m", DAEMON, "pyspark.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert daemon.stdout is not None
    (port,) = struct.unpack("!i", daemon.stdout.read(4))
    connection = socket.create_connection(("127.0.0.1", port), WAIT_S)
    (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    connection.sendall(struct.pack("!i", 4) + b"word")
    assert connection.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"
    return daemon, connection, pid


def end(daemon: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    for pipe in (daemon.stdin, daemon.stdout):
        assert pipe is not None
        pipe.close()
    daemon.wait(WAIT_S)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.skipif(not platform_of_process().seccomp, reason="this kernel has no seccomp filter")
def test_a_worker_of_a_view_is_in_its_sandbox_before_it_reads_a_byte() -> None:
    daemon, connection, pid = started_worker(**{VARIABLE: Fences("v").text()})
    try:
        status = status_of(pid)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
        assert b"s3cr3t" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert b"s3cr3t" not in Path(f"/proc/{daemon.pid}/environ").read_bytes()
    finally:
        end(daemon, connection)


def test_a_worker_of_the_hubs_own_functions_is_not_restricted() -> None:
    daemon, connection, pid = started_worker()
    try:
        assert status_of(pid)["NoNewPrivs"] == "0"
        assert b"s3cr3t" in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        end(daemon, connection)


def test_workers_end_with_their_daemon() -> None:
    daemon, connection, pid = started_worker(**{VARIABLE: Fences("v").text()})
    assert daemon.stdin is not None and Path(f"/proc/{pid}").exists()
    daemon.stdin.close()
    assert connection.recv(1) == b""  # times out if the worker still has the other end
    end(daemon, connection)
