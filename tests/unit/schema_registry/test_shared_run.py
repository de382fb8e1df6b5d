"""One run of a question serves all that wait for it, never one that asked after it began."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hub.errors import PeerError
from hub.schema_registry.server.shared_run import SharedRun


def test_callers_at_the_same_time_share_a_run_that_began_after_each_of_them() -> None:
    ends = iter(range(1_000))
    under_way: list[int] = []
    most: list[int] = []

    def end() -> int:
        under_way.append(1)
        most.append(len(under_way))
        found = next(ends)  # read first: a caller that comes while this runs may not get it
        time.sleep(0.01)
        under_way.pop()
        return found

    shared = SharedRun(end)

    def asked(_: int) -> tuple[int, int]:
        begun = shared._started
        return begun, shared.result(10.0)

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(asked, range(160)))
    assert max(most) == 1
    assert all(result >= begun for begun, result in answers)  # the run of that number, or a later one
    assert next(ends) <= 80


def test_a_failed_run_is_told_to_all_and_not_repeated_for_a_while() -> None:
    calls: list[int] = []

    def fails() -> int:
        calls.append(1)
        raise PeerError("Kafka does not answer")

    shared = SharedRun(fails, failed_for_s=60.0)
    for _ in range(3):
        with pytest.raises(PeerError, match="does not answer"):
            shared.result(1.0)
    assert len(calls) == 1


def test_who_waits_for_a_run_that_does_not_end_gives_up() -> None:
    go = threading.Event()
    shared = SharedRun(lambda: go.wait(30.0))
    first = threading.Thread(target=shared.result, args=(30.0,))
    first.start()
    try:
        with pytest.raises(PeerError):
            shared.result(0.1)
    finally:
        go.set()
        first.join(10.0)
    assert shared.result(1.0) is True
