"""A view with a ttl on real Kafka, Spark and stores:
expired rows go from every store, and a replay has the same rows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pipeline import Pipeline, plain, records_of, wait_until
from plant import Plant
from postgres import BINARIES
from processes import HubProcess, run_hub

from hub.config import Settings
from hub.record import NewRecord, Positions

pytestmark = pytest.mark.timeout(900)
DAY_MS = 86_400_000


class Stores(HubProcess):
    """An applier with one store of each kind, in addition to the shared one, which fills the serving
    store."""

    def rows(self, view: str) -> dict[str, int]:
        """Return the number of rows of each store; all equal the fold of the changelog."""
        done = run_hub(self.settings, "view", "verify", view, "--timeout", "120", "-o", "json")
        assert done.returncode == 0, (done.stdout, done.stderr, self.last_words())
        return {each["store"]: each["store_rows"] for each in json.loads(done.stdout)}


@pytest.fixture
def stores(
    request: pytest.FixtureRequest, settings: Settings, pipeline: Pipeline, tmp_path: Path
) -> Iterator[Stores]:
    more = {"duck": "duckdb", "lake": "iceberg"}
    if BINARIES:
        more["warehouse"] = request.getfixturevalue("postgres").database("over")
    (tmp_path / "views").mkdir()
    update = {"home": tmp_path / "home", "project": tmp_path, "registry_url": pipeline.url, "stores": more}
    made = Stores(
        settings.model_copy(update={**update, "expiry_every_s": 0.3, "lake_commit_s": 1.0}),
        "apply-changelogs",
    )
    yield made
    made.stop()


def test_rows_that_are_over_go_from_every_store_and_come_back_with_their_next_event(
    pipeline: Pipeline, stores: Stores
) -> None:
    plant = Plant(pipeline, "over")
    pipeline.cluster.alter_config(plant.topic, {"retention.ms": "-1"})  # its events are old
    named = ["serving", *stores.settings.stores]

    def declare(ttl: str) -> None:
        text = (
            f"view: {plant.view}\nttl: {ttl}\nstores: [{', '.join(named)}]\nsources:\n"
            f"  r: {{topic: {plant.topic}, key: sensor}}\nfields: {{celsius: r.celsius, readings: "
            f"count(r.celsius)}}\n"
        )
        for folder in (stores.settings.project / "views", pipeline.views):
            (folder / f"{plant.view}.yaml").write_text(text)

    def write(keys: list[str], days_ago: float, celsius: float = 1.0) -> Positions:
        at_ms = round(time.time() * 1000 - days_ago * DAY_MS)
        return plant.writer.append(
            [
                NewRecord(plant.topic, key.encode(), plant.reading(key, celsius), timestamp_ms=at_ms + n)
                for n, key in enumerate(keys)
            ]
        )

    def await_keys(wanted: set[str]) -> None:
        wait_until(
            lambda: pipeline.rows(plant.view).keys() == wanted,
            120.0,
            lambda: f"{sorted(pipeline.rows(plant.view))[:9]} {pipeline.state(plant.view)}",
        )

    expiries = f"_hub.expiry.{plant.view}"

    def said() -> dict[str, set[bytes | None]]:
        found: dict[str, set[bytes | None]] = {}
        for each in records_of(pipeline.cluster, expiries) if expiries in pipeline.cluster.topics() else ():
            found.setdefault((each.key or b"").decode(), set()).add(each.value)
        return found

    def await_said(wanted: set[str]) -> None:
        wait_until(lambda: said().keys() == wanted, 120.0, lambda: f"{sorted(wanted - said().keys())[:9]}")
        pipeline.covers(plant.view, [plant.topic, expiries])

    write(["young", "old"], 2.0)
    write(["young"], 0.0)
    declare("1d")
    plant.running()
    stores.start()
    await_said({"old"})
    await_keys({"young"})
    assert stores.rows(plant.view) == dict.fromkeys(named, 1)
    (gone,) = [each for each in pipeline.changelog(plant.view) if each.key == b"old" and each.value is None][
        -1:
    ]
    assert json.loads(gone.header("hub.sources") or b"") == {
        "r": {"topic": plant.topic, "partition": 0, "offset": 1}
    }, "no event deleted it, so none is told as late"
    state = pipeline.state(plant.view)
    assert state["ttl"] == "1d" and state["expired"] >= 1

    # A checker that is killed repeatedly, and a second one: both write the same bytes, however often.
    many = [f"k{n}" for n in range(1_500)]
    plant.covered("young", write(["young"], 0.0))
    for part in range(3):
        write(many[part * 500 : (part + 1) * 500], 3.0)
        time.sleep(0.7)
        stores.kill()
        stores.start()
    await_said({"old", *many})
    await_keys({"young"})
    assert stores.rows(plant.view) == dict.fromkeys(named, 1)
    assert {len(values) for values in said().values()} == {1}

    # Another ttl does not create another view: nothing is built, and expired rows stay expired until their
    # next event.
    declare("36500d")
    wait_until(lambda: pipeline.state(plant.view).get("ttl") == "36500d", 120.0)
    time.sleep(3.0)  # the appliers hear it by themselves
    plant.covered("k7", write(["k7"], 2.5, 7.0))
    await_keys({"young", "k7"})
    assert stores.rows(plant.view) == dict.fromkeys(named, 2)
    assert [each["number"] for each in versions(plant)] == [1]
    row = plant.row("k7").json()
    assert (row["celsius"], row["readings"]) == (7.0, 2), "it has its whole history"

    # The same log gives the same rows.
    before = {key: plain(each) for key, each in pipeline.rows(plant.view).items()}
    done = run_hub(stores.settings, "view", "rewind", plant.view)
    assert done.returncode == 0, (done.stdout, done.stderr)
    wait_until(lambda: versions(plant)[-1]["number"] == 2 and versions(plant)[-1]["state"] == "served", 180.0)
    assert {key: plain(each) for key, each in pipeline.rows(plant.view).items()} == before
    assert stores.rows(plant.view) == dict.fromkeys(named, 2)


def versions(plant: Plant) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx2.get(
        f"{plant.pipeline.url}/view-versions/{plant.view}", timeout=60.0
    ).json()["versions"]
    return found
