"""The pure parts of the runtime; processes are in tests/integration/test_platform.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.runtime import Backoff, repeating
from hub.supervisor import Supervisor, describe_exit, last_line, running_hub


def test_backoff_doubles_up_to_its_most_and_starts_anew() -> None:
    backoff = Backoff(first_s=0.5, most_s=4.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 4.0, 4.0]
    backoff.reset()
    assert backoff.next_s() == 0.5


@given(st.integers(0, 10_000), st.floats(0.001, 10), st.floats(10, 100))
def test_backoff_never_exceeds_its_most(failures: int, first_s: float, most_s: float) -> None:
    assert 0 < Backoff(first_s, most_s, failures=failures).next_s() <= most_s


def test_how_a_process_ended() -> None:
    assert describe_exit(-9) == "SIGKILL"
    assert describe_exit(3) == "exit code 3"


def test_last_line_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "kafka.log"
    assert last_line(log) == "it wrote nothing"
    log.write_text("first\n" * 2_000 + "the reason\n\n")
    assert last_line(log) == "the reason"


def test_a_pid_file_of_a_process_that_is_gone_or_another_by_now_is_no_running_hub(tmp_path: Path) -> None:
    assert running_hub(tmp_path) is None
    (tmp_path / "hub.pid").write_text("")
    assert running_hub(tmp_path) is None
    # pid 1 runs, but it did not start at second 12 of 1970: its number alone proves nothing.
    (tmp_path / "hub.pid").write_text('{"healthy": true, "processes": {"supervisor": [1, 12.0]}}')
    assert running_hub(tmp_path) is None


def test_a_clock_that_is_set_hides_no_running_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``hub down`` found nothing to stop, and ``hub up`` that a stranger had its ports."""
    supervisor = Supervisor(tmp_path)
    real = psutil._pslinux.boot_time
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: real() + 3600)
    try:
        hub = running_hub(tmp_path)
        assert hub is not None and hub.processes["supervisor"].pid == os.getpid()
    finally:
        supervisor.stop()
    assert running_hub(tmp_path) is None


def test_the_pid_file_of_an_earlier_version_names_the_time_alone(tmp_path: Path) -> None:
    me = psutil.Process()
    said = {"healthy": True, "processes": {"supervisor": [me.pid, me.create_time()]}}
    (tmp_path / "hub.pid").write_text(json.dumps(said))
    assert running_hub(tmp_path) is not None


def test_a_pid_that_is_another_s_since_the_last_boot_is_no_running_hub(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    try:
        said = json.loads((tmp_path / "hub.pid").read_text())
        (_, _, began) = said["processes"]["supervisor"]
        said["processes"]["supervisor"][2] = f"another-boot/{began.partition('/')[2]}"
        (tmp_path / "hub.pid").write_text(json.dumps(said))
        assert running_hub(tmp_path) is None
    finally:
        supervisor.stop()


def test_whoever_looks_while_the_pid_file_is_written_finds_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(tmp_path, found_by={"project": "a-long-name"})
    real, seen = os.pwrite, []

    def write(*arguments: object) -> int:
        seen.append(running_hub(tmp_path))
        return real(*arguments)  # type: ignore[arg-type]

    try:
        supervisor._found_by = {}  # so that the file gets shorter
        monkeypatch.setattr(os, "pwrite", write)
        supervisor.write_pids()
        seen.append(running_hub(tmp_path))
    finally:
        supervisor.stop()
    assert [None if hub is None else hub.found_by for hub in seen] == [{"project": "a-long-name"}, {}]


HANGS_UP = """
import os, signal, sys
from hub.runtime import install_stop_signals
stop = install_stop_signals()
os.kill(os.getpid(), signal.SIGHUP)
print(stop.wait(0.2))
"""


@pytest.mark.processes
@pytest.mark.parametrize("nohup", [False, True])
def test_a_terminal_that_is_closed_stops_what_nohup_has_not_started(nohup: bool) -> None:
    said = "SIG_IGN" if nohup else "SIG_DFL"  # whatever the tests themselves were started by
    begin = (
        f"import os, signal, sys; signal.signal(signal.SIGHUP, signal.{said}); "
        "os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-c", begin, sys.executable, "-c", HANGS_UP]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == str(not nohup)


def test_a_repeated_step_goes_on_after_a_failure_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[float] = []
    enough = threading.Event()

    def step() -> None:
        taken.append(0.0)
        if len(taken) >= 8:
            enough.set()
        if len(taken) in (2, 3):
            raise ValueError("a")
        if len(taken) in (4, 6):
            raise ValueError("b")

    with repeating(step, name="steps", pause_s=lambda took_s: min(took_s, 0.001), failed="no step"):
        assert enough.wait(20.0)
    assert [record.exc_info[1].args for record in caplog.records if record.exc_info] == [
        ("a",),
        ("b",),
        ("b",),
    ]
    ended = len(taken)
    assert "steps" not in {thread.name for thread in threading.enumerate()}
    assert len(taken) == ended
