"""``verify`` on every kind of store: equal after any history, and each kind of difference is found."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import store_contract
from changelog import CHANGELOG, Bench

from hub.errors import Conflict, NotFound, PeerError
from hub.materializers.applying.applier import Applier
from hub.materializers.changelog.record import GENERATION_SHIFT
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.materializers.verification.verify import verify
from hub.record import Positions


@pytest.fixture(params=sorted(store_contract.URLS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A history of 300 records over 40 keys, and an applier of another store than the Bench's own."""
    made: Any = Bench(tmp_path)
    made.other = store_contract.opened_in(request.param, tmp_path / "other")
    made.other_applier = Applier(made.cluster, made.schemas, made.other)
    made.write_history()
    made.other_applier.follow([made.view])
    yield made
    made.store.close()
    made.other.close()


def drained(bench: Any) -> Any:
    while bench.other_applier.step(0):
        pass
    return bench


def test_a_store_that_applied_all_is_equal(bench: Any) -> None:
    drained(bench)
    heard: list[tuple[int, int]] = []
    found = verify(bench.cluster, bench.schemas, "v", bench.other, progress=lambda *each: heard.append(each))
    assert found.equal and found.changelog.rows == found.store.rows > 20
    assert found.changelog.value == found.store.value and not found.keys
    assert heard[-1][0] == heard[-1][1] == sum(offset for _, offset in found.positions)
    bench.drain()
    assert verify(bench.cluster, bench.schemas, "v", bench.store).store.value == found.store.value


def test_it_says_which_keys_differ_and_how(bench: Any) -> None:
    drained(bench)
    good = {f"k{n}": 0 for n in range(40)}
    with bench.other.cut("v") as cut:
        good = {key: version for key, version, _ in cut.rows()}
    first, second, third = sorted(good)[:3]
    at = bench.other.positions("v", "changelog")
    planted = [
        RowVersion("ghost", 5, 0, 0, {"points": 1}),
        RowVersion(first, 999, 0, 0, {"points": 1}),
        RowVersion(second, good[second] + 1000, 0, 0, None),
    ]
    bench.other.apply([ViewBatch("v", planted, at)])
    found = verify(bench.cluster, bench.schemas, "v", bench.other)
    assert not found.equal and (found.store.rows, found.changelog.rows) == (len(good), len(good))
    assert {each.key: each.why for each in found.keys} == {
        "ghost": "the changelog has no such key, the store version 5",
        first: f"version {good[first]}, the store has version 999",
        second: f"the store has not version {good[second]}",
    }
    assert third in good
    assert len(verify(bench.cluster, bench.schemas, "v", bench.other, most=1).keys) == 1


def test_one_wrong_value_is_found(bench: Any) -> None:
    bench.cluster.delete_topic(CHANGELOG)
    bench.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
    bench.write("a", 7, {"points": 1})
    bench.other_applier.follow([bench.view])
    end = bench.cluster.end_offsets([CHANGELOG])
    bench.other.apply([ViewBatch("v", [RowVersion("a", 7, 0, 0, {"points": 2})], end)])
    found = verify(bench.cluster, bench.schemas, "v", bench.other)
    assert [(each.key, each.why) for each in found.keys] == [("a", "another row of version 7")]


def test_what_a_later_generation_swept_out_is_no_difference(bench: Any) -> None:
    bench.write("k1", (2 << GENERATION_SHIFT) + 1, {"points": 2})
    bench.tell(3, generation=2)
    drained(bench)
    bench.other_applier.step(0)
    found = verify(bench.cluster, bench.schemas, "v", bench.other)
    assert found.equal and found.store.rows == 1


def test_it_waits_for_the_store_and_reads_on_to_where_it_is(bench: Any) -> None:
    with pytest.raises(PeerError, match="records behind"):
        verify(bench.cluster, bench.schemas, "v", bench.other, timeout_s=0.0)

    def go_on() -> None:
        bench.write("late", 1, {"points": 9})  # past the end that verify fixed
        drained(bench)

    later = threading.Timer(0.3, go_on)
    later.start()
    found = verify(bench.cluster, bench.schemas, "v", bench.other, timeout_s=60.0)
    later.join()
    assert found.equal and found.positions == bench.cluster.end_offsets([CHANGELOG])


def test_other_views_and_other_logs_are_refused(bench: Any) -> None:
    with pytest.raises(NotFound):
        verify(bench.cluster, bench.schemas, "w", bench.other)
    drained(bench)
    bench.cluster.delete_topic(CHANGELOG)
    bench.cluster.create_topic(CHANGELOG, partitions=2, config={}, replication_factor=1)
    with pytest.raises(Conflict):
        verify(bench.cluster, bench.schemas, "v", bench.other)
    assert bench.other.positions("v", "changelog") != Positions()
