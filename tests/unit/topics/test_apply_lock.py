"""Apply lock over an in-memory log: refusal, takeover, and compare-and-set by one holder at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from patience import patient

from hub.errors import Conflict
from hub.log import MemoryCluster, MemoryWriter, WriterFenced
from hub.record import NewRecord
from hub.topics.tree.apply_lock import TOPIC, Holder, one_apply, read, swap

BEAT_S, DEAD_S = 0.05, 1.0


def hold(cluster: MemoryCluster, command: str) -> Any:
    return one_apply(cluster, command, replication_factor=1, beat_s=BEAT_S, dead_s=patient(DEAD_S))


def test_a_second_apply_is_refused_and_told_who_applies_since_when() -> None:
    cluster = MemoryCluster()
    with hold(cluster, "hub topic apply") as first:
        with (
            pytest.raises(
                Conflict, match=r"`hub topic apply` of .+@.+ \(pid \d+\) is under way since 20"
            ) as refused,
            hold(cluster, "hub schema apply"),
        ):
            pass
        assert "wait until it has ended" in str(refused.value.hint)
        assert "the next apply continues after 15 s" in str(refused.value.hint)
        first.check()  # the refused apply did not release the lock
    assert read(cluster) is None
    with hold(cluster, "hub schema apply"):
        found = read(cluster)
        assert found is not None and found.command == "hub schema apply"


def test_an_apply_that_was_killed_blocks_for_a_bounded_time_and_may_not_go_on() -> None:
    cluster = MemoryCluster()
    with hold(cluster, "killed") as killed:
        killed._stopped.set()  # no more beats, as after kill -9 or while the machine sleeps
        killed._thread.join()
        began_s = time.monotonic()
        with hold(cluster, "second") as second:
            assert time.monotonic() - began_s >= patient(DEAD_S)
            killed._stopped.clear()
            with pytest.raises(Conflict, match="another one took over: now applies .+`second`"):
                killed.check()
            second.check()
    assert read(cluster) is None


def test_of_many_at_once_one_applies_at_a_time() -> None:
    cluster, inside, most, done = MemoryCluster(), [0], [0], []
    lock = threading.Lock()

    def run(number: int) -> None:
        deadline = time.monotonic() + patient(30.0)
        while time.monotonic() < deadline:
            try:
                with hold(cluster, str(number)) as held:
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    time.sleep(3 * BEAT_S)
                    held.check()
                    with lock:
                        inside[0] -= 1
                    done.append(number)
                    return
            except Conflict:
                time.sleep(BEAT_S)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (sorted(done), most) == ([0, 1, 2, 3], [1])


def test_a_writer_that_is_fenced_looks_again_and_loses_to_the_record() -> None:
    cluster = MemoryCluster()
    cluster.create_topic(TOPIC, partitions=1, config={}, replication_factor=1)
    mine, other = Holder("a", "ada", "x", 1), Holder("b", "bob", "y", 2)
    open_writer = cluster.writer

    def between(name: str | None = None) -> MemoryWriter:
        cluster.writer = open_writer  # type: ignore[method-assign]
        made = open_writer(name)

        class Late(MemoryWriter):
            def append(self, records: Sequence[NewRecord]) -> Any:
                assert swap(cluster, None, other) == other  # another apply was faster
                with pytest.raises(WriterFenced):
                    super().append(records)
                raise WriterFenced("fenced")

        return Late(made.cluster, made.name, made.epoch)

    cluster.writer = between  # type: ignore[method-assign]
    assert swap(cluster, None, mine) == other == read(cluster)
