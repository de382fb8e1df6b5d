"""One view of each failing kind with a healthy one: each is named with its cause, and the healthy one
continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import orjson
import pytest
from patience import patient
from pipeline import Pipeline, plain, wait_until
from processes import own_settings, run_hub

from hub.cli.platform.up import children
from hub.embedded import ensure_jars
from hub.record import NewRecord
from hub.supervisor import Supervisor

_SOURCE = "sources: {s: {topic: shop.events, format: json, schema: {id: bigint, n: bigint, text: string}}}"
_DEEP = "(" * 3_000 + "s.n" + ")" * 3_000
FUNCTIONS = """
def eaten(n: int) -> int:
    kept = []
    while n == 7:
        kept.append(b"x" * 2**26)
    return n
"""
VIEWS = {
    "healthy": f"view: healthy\n{_SOURCE}\nsql: SELECT s.id, count(*) AS n FROM s GROUP BY s.id\nkey: id\n",
    # Of the poisonous event an array of three billion bytes.
    "memory": f"view: memory\n{_SOURCE}\nsql: SELECT s.id, size(sequence(1, if(s.n = 7, 400000000, s.n))) "
    "AS n FROM s\nkey: id\n",
    "regex": f"view: regex\n{_SOURCE}\nsql: SELECT s.id, s.text RLIKE '^x*x*x*x*x*x*x*x*x*x*y$' AS "
    "found FROM s\nkey: id\n",
    "deep": f"view: deep\n{_SOURCE}\nsql: SELECT s.id, {_DEEP} AS n FROM s\nkey: id\n",
    "python": f"view: python\ntransforms: functions.py\n{_SOURCE}\nsql: SELECT s.id, eaten(s.n) "
    "AS n FROM s\nkey: id\n",
}
MENDED = {
    "memory": VIEWS["memory"].replace("400000000", "4"),
    "regex": VIEWS["regex"].replace("x*x*x*x*x*x*x*x*x*x*y", "x+y"),
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Pipeline]:
    """A supervised hub whose project has every view from the start, and one poisonous event among others."""
    settings = own_settings(
        tmp_path / "home",
        tmp_path / "project",
        spark_heap_mb=768,
        isolated_heap_mb=512,
        stalled_batch_s=patient(20.0),
        python_memory_mb=1536,
    )
    views = settings.project / "views"
    views.mkdir(parents=True)
    for name, text in VIEWS.items():
        (views / f"{name}.yaml").write_text(text)
    (views / "functions.py").write_text(FUNCTIONS)
    ensure_jars(settings)
    supervisor = Supervisor(settings.home, print)
    pipeline = None
    try:
        for child in children(settings):
            supervisor.start(child)
            if child.name == "server":
                pipeline = Pipeline(settings, settings.url)
                pipeline.cluster.create_topic("shop.events", partitions=2, config={}, replication_factor=1)
                feed(pipeline, 0, 20)
        assert pipeline is not None
        pipeline.meanwhile = supervisor.step
        yield pipeline
    finally:
        if pipeline is not None:
            pipeline.close()
        supervisor.stop()


def feed(pipeline: Pipeline, first: int, count: int) -> None:
    """Events with ids from ``first`` on; that of id 7 is poisonous."""
    pipeline.writer.append(
        [
            NewRecord(
                "shop.events",
                str(number).encode(),
                orjson.dumps({"id": number, "n": number, "text": "x" * (3_000 if number == 7 else 2) + "z"}),
            )
            for number in range(first, first + count)
        ]
    )


def states(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Return (state, reason) of each view from GET /views."""
    told = httpx2.get(f"{pipeline.url}/views", timeout=20.0).json()["views"]
    return {each["view"]: (each["state"], each["reason"] or "") for each in told}


@pytest.mark.timeout(1800)
def test_poisonous_views_are_named_and_the_healthy_one_goes_on(hub: Pipeline) -> None:
    wanted = {
        "healthy": ("live", ""),
        "memory": ("isolated", "ended Spark with OutOfMemoryError"),
        "regex": ("isolated", "did not move for"),
        "deep": ("failed", "nested deeper than"),
        "python": ("failed", "MemoryError"),
    }

    missing = dict(wanted)

    def named() -> bool:
        """A view that fails is tried again and again, so each is seen at its own time."""
        hub.meanwhile()
        for view, found in states(hub).items():
            if view in missing and found[0] == missing[view][0] and missing[view][1] in found[1]:
                del missing[view]
        return not missing

    wait_until(named, 300.0, lambda: f"not seen: {missing}; {states(hub)}")
    before = restarts(hub)
    for turn in range(1, 4):
        feed(hub, 20 * turn, 20)
        hub.covers("healthy", ["shop.events"], 60.0)
        assert states(hub)["healthy"][0] == "live"
    assert {int(key) for key in hub.rows("healthy")} == set(range(80))
    assert restarts(hub) == before
    listed = run_hub(hub.settings, "view", "ls").stdout
    page = httpx2.get(f"{hub.url}/views/memory", headers={"Accept": "text/html"}, timeout=20.0).text
    assert "OutOfMemoryError" in listed and "OutOfMemoryError" in page and ">isolated<" in page

    for name, text in MENDED.items():
        (hub.views / f"{name}.yaml").write_text(text)
    for name in MENDED:
        hub.covers(name, ["shop.events"], 240.0)
        wait_until(lambda name=name: states(hub)[name][0] == "live", 60.0, lambda: f"{states(hub)}")  # type: ignore[misc]
    assert plain(hub.rows("memory")["7"]) == {"id": 7, "n": 4}
    assert plain(hub.rows("regex")["7"]) == {"id": 7, "found": False}
    assert restarts(hub) == before
    assert states(hub)["healthy"][0] == "live"


def restarts(hub: Pipeline) -> int:
    """Return how many times the materializer was started."""
    lines = (hub.settings.logs / "materializer.log").read_text().splitlines()
    return sum("view healthy: starting" in line for line in lines)
