"""The pure parts of the runtime; processes are in tests/integration/test_platform.py."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.runtime import Backoff, describe_exit, last_line, repeating, running_hub


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
