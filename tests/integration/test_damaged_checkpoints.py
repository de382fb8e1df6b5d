"""Checkpoints corrupted in every place while a view is down: the view is rebuilt while its rows are
served, with the reason."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import psutil
import pytest
from pipeline import plain
from processes import call_hub
from realtime_hub import Hub, running_hub

from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

pytestmark = pytest.mark.timeout(900)

SHOPS = 7
SALE: dict[str, Any] = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "sale_id", "type": "string"},
        {"name": "shop", "type": "string"},
        {"name": "cents", "type": "long"},
    ],
}
ENTITY = {
    "sources": {"s": {"topic": "till.sales", "key": "shop"}},
    "fields": {"sales": "count(s.sale_id)", "cents": "sum(s.cents)"},
}
LINES = {
    "sources": {"s": {"topic": "till.sales"}},
    "key": "sale_id",
    "sql": "SELECT sale_id, shop, cents FROM s",
}
SHOP = {
    "sources": {"s": {"topic": "till.sales"}},
    "sql": "SELECT shop, count(*) AS sales, sum(cents) AS cents FROM s GROUP BY shop",
}
# Rows that go again: only the incremental engine takes them back.
FEW = {
    "sources": {"s": {"topic": "till.sales"}},
    "sql": "SELECT shop, count(*) AS sales, sum(cents) AS cents FROM s GROUP BY shop HAVING count(*) > 0",
}


def files(checkpoint: Path, pattern: str) -> list[Path]:
    """The newest last."""
    found = [path for path in checkpoint.glob(pattern) if path.is_file() and not path.name.startswith(".")]
    assert found, f"{checkpoint} has no {pattern}: {sorted(str(each) for each in checkpoint.rglob('*'))[:80]}"
    return sorted(found, key=lambda path: (len(path.name), path.name))


def last(log: str) -> Callable[[Path], list[Path]]:
    return lambda checkpoint: [
        max(files(checkpoint, f"{log}/*"), key=lambda path: int(path.name) if path.name.isdecimal() else -1)
    ]


def every(*patterns: str) -> Callable[[Path], list[Path]]:
    return lambda checkpoint: [path for pattern in patterns for path in files(checkpoint, pattern)]


def cut(path: Path) -> None:
    """Truncate a file, as if its end was never written."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def scramble(path: Path) -> None:
    """Bytes that nobody wrote, as long as it was."""
    path.write_bytes(random.Random(5).randbytes(path.stat().st_size))


def scramble_end(path: Path) -> None:
    """Its beginning is whole, so it opens."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        at = min(size // 3, 12_288)
        file.seek(at)
        file.write(random.Random(6).randbytes(size - at))


def remove(path: Path) -> None:
    path.unlink()


def remove_two(path: Path) -> None:
    """Remove a folder's last entries, as if never written: a batch was started behind it."""
    path.unlink()
    path.with_name(str(int(path.name) - 1)).unlink()


def scramble_unseen(path: Path) -> None:
    """Hide the corruption from Hadoop's checksums."""
    scramble(path)
    path.with_name(f".{path.name}.crc").unlink()


@dataclass(frozen=True)
class Damage:
    """To a view's checkpoint: which files, how, and what the hub must say of it."""

    view: dict[str, Any]
    which: Callable[[Path], list[Path]]
    how: Callable[[Path], None]
    said: str


def harm(checkpoint: Path, damage: Damage) -> None:
    for path in damage.which(checkpoint):
        damage.how(path)


# A state is in a snapshot and in changelogs, and one of them is enough.
STATE = every("state/0/*/*.changelog", "state/0/*/*.zip")
DAMAGE = {
    "cut_offsets": Damage(LINES, last("offsets"), cut, "offsets/"),
    "odd_commit": Damage(ENTITY, last("commits"), scramble, "commits/"),
    "no_commit": Damage(SHOP, last("commits"), remove_two, "commits/"),
    "odd_plan": Damage(ENTITY, every("../plan.json"), cut, "plan.json"),
    "odd_state": Damage(SHOP, STATE, scramble_unseen, ""),
    "no_state": Damage(SHOP, STATE, remove, ""),
    "no_state_folder": Damage(ENTITY, lambda checkpoint: [checkpoint / "state"], shutil.rmtree, ""),
    "no_tables_of_state": Damage(SHOP, every("state/0/*/SSTs/*", "state/0/*/*.changelog"), remove, ""),
    "odd_state_schema": Damage(SHOP, every("state/0/*/_metadata/schema"), scramble, ""),
    "odd_tables": Damage(FEW, every("delta/delta.duckdb"), scramble_end, "delta.duckdb"),
    "no_tables": Damage(FEW, every("delta/delta.duckdb"), remove, "delta.duckdb"),
    "realtime_state": Damage({"mode": "realtime", **ENTITY}, STATE, cut, ""),
    "realtime_offsets": Damage({"mode": "realtime", **SHOP}, last("offsets"), cut, "offsets/"),
}
# Each is a view that is built twice: a sample here, all of them with HUB_FAULT_SEEDS. Of the sample are the
# two that the test continues with.
ALWAYS = ("cut_offsets", "realtime_state")
CHOSEN = (
    list(DAMAGE)
    if "HUB_FAULT_SEEDS" in os.environ
    else [
        *ALWAYS,
        *random.Random(int(os.environ.get("HUB_FAULT_FIRST", "9"))).sample(sorted(DAMAGE.keys() - ALWAYS), 2),
    ]
)


class Till(Hub):
    """Publish sales, and return the expected rows."""

    sold = 0

    def sell(self, count: int) -> Positions:
        numbers = range(self.sold, self.sold + count)
        self.sold += count
        return self.pipeline.writer.append(
            [
                NewRecord(
                    "till.sales", sale(n)["shop"].encode(), encode(self.schema_id, parsed(SALE), sale(n))
                )
                for n in numbers
            ]
        )

    def prepare(self) -> None:
        self.pipeline.cluster.create_topic("till.sales", partitions=2, config={}, replication_factor=1)
        self.schema_id = self.pipeline.registry.register("till.sales-value", json.dumps(SALE))

    def dies(self) -> None:
        """kill -9 of the materializer; it is started again by the next wait. Spark's JVM goes with it."""
        materializer = psutil.Process(self.supervisor.pids()["materializer"])
        below = materializer.children(recursive=True)
        materializer.kill()
        _, left = psutil.wait_procs(below, timeout=30.0)
        assert not left, left

    def declare(self, name: str, body: dict[str, Any]) -> None:
        self.write_view(name, json.dumps({"view": name, **body}))  # JSON is YAML

    def expected(self, body: dict[str, Any]) -> dict[str, dict[str, Any]]:
        if "fields" not in body and "GROUP" not in body["sql"]:
            return {sale(n)["sale_id"]: sale(n) for n in range(self.sold)}
        rows: dict[str, dict[str, Any]] = {}
        for n in range(self.sold):
            shop = sale(n)["shop"]
            own = {"sales": 0, "cents": 0} if "fields" in body else {"shop": shop, "sales": 0, "cents": 0}
            row = rows.setdefault(shop, own)
            row["sales"] += 1
            row["cents"] += sale(n)["cents"]
        return rows

    def rows(self, view: str) -> dict[str, dict[str, Any]]:
        return {key: plain(row) for key, row in self.pipeline.rows(view).items()}

    def covered(self, view: str, timeout_s: float = 240.0) -> None:
        end = self.pipeline.cluster.end_offsets(["till.sales"])

        def so() -> bool:
            answer = httpx2.get(f"{self.pipeline.url}/views/{view}?limit=1", timeout=10.0)
            return Positions.parse(answer.headers.get("Hub-Position", "")).covers(end)

        self.until(so, timeout_s, lambda: f"{view} does not cover {end}: {self.pipeline.state(view)}")

    def versions(self, view: str) -> list[dict[str, Any]]:
        answer = httpx2.get(f"{self.pipeline.url}/view-versions/{view}", timeout=60.0)
        found: list[dict[str, Any]] = answer.json().get("versions", [])
        return found

    def told(self, view: str) -> Any:
        state = self.pipeline.state(view)
        return (
            state.get("state"),
            state.get("reason"),
            [(each["number"], each["state"]) for each in self.versions(view)],
        )

    def serves(self, view: str, number: int) -> bool:
        return any(each["number"] == number and each["state"] == "served" for each in self.versions(view))


def sale(n: int) -> dict[str, Any]:
    chance = random.Random(n)
    return {
        "sale_id": f"s{n}",
        "shop": f"shop{chance.randrange(SHOPS)}",
        "cents": chance.randrange(1, 10_000),
    }


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Till]:
    # With this many views the tests' quick compiler (conftest.py) fills the little room that Java gives it.
    java = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -XX:ReservedCodeCacheSize=240m"
    more = {
        "spark_conf": {  # so that there are snapshots to corrupt
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
            "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
        }
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", java.strip())
        with running_hub(tmp_path_factory.mktemp("damaged"), kind=Till, **more) as running:
            running.prepare()
            yield running


def test_damage_in_every_place_is_told_and_built_anew_beside_the_rows(hub: Till) -> None:
    names = {name: f"v_{name}" for name in CHOSEN}
    hub.sell(100)
    for name, view in names.items():
        hub.declare(view, DAMAGE[name].view)
    for _ in range(4):  # some batches, and snapshots between them
        hub.sell(20)
        for view in names.values():
            hub.covered(view)
        time.sleep(2.0)
    before = {view: hub.rows(view) for view in names.values()}

    hub.dies()
    for name, view in names.items():
        harm(hub.settings.checkpoints / view / "1", DAMAGE[name])
    assert {view: hub.rows(view) for view in names.values()} == before, "readers notice nothing"
    hub.sell(50)
    seen: dict[str, set[int]] = {view: set() for view in names.values()}

    def all_built() -> bool:
        for view in names.values():
            seen[view].add(len(hub.rows(view)))
        return all(hub.serves(view, 2) for view in names.values())

    hub.until(all_built, 400.0, lambda: str({view: hub.told(view) for view in names.values()}))
    for name, view in names.items():
        hub.covered(view)
        assert hub.rows(view) == hub.expected(DAMAGE[name].view), view
        assert min(seen[view]) >= len(before[view]), f"{view} had gaps"
        (why,) = [each["why"] for each in hub.versions(view) if each["number"] == 2]
        assert why.startswith("its checkpoint is corrupt: ") and DAMAGE[name].said in why, (view, why)
        kept = hub.settings.checkpoints / f"{view}.damaged"
        assert str(kept) in why and (kept / "hub.damage").exists() and len(list(kept.iterdir())) > 1
        proven = call_hub(hub.settings, "view", "verify", view)
        assert proven.returncode == 0, (view, proven.stdout, proven.stderr)
    shown = call_hub(hub.settings, "view", "show", names["cut_offsets"])
    assert "its checkpoint is corrupt: offsets/" in shown.stderr, shown
    page = httpx2.get(
        f"{hub.pipeline.url}/views/{names['cut_offsets']}", headers={"Accept": "text/html"}, timeout=60.0
    )
    assert "its checkpoint is corrupt: offsets/" in page.text

    # Once more, of one that runs now: killed in the middle of its batches, and harmed then.
    again = DAMAGE["realtime_state"]
    view = names["realtime_state"]
    others = [other for other in names.values() if other != view]
    hub.remove_views(*others)
    hub.reaches(view, "realtime")
    hub.sell(50)
    hub.dies()
    state = hub.settings.checkpoints / f"{view}@2" / "2" / "state" / "0"
    # Of so young a state there may be no snapshot yet.
    written = [*state.glob("*/*.changelog"), *state.glob("*/*.zip")]
    assert written
    for path in written:
        again.how(path)
    hub.sell(50)
    hub.until(lambda: hub.serves(view, 3), 240.0, lambda: str(hub.told(view)))
    hub.covered(view)
    assert hub.rows(view) == hub.expected(again.view)
    kept = hub.settings.checkpoints / f"{view}.damaged"
    assert orjson.loads((kept / "hub.damage").read_bytes())["version"] == f"{view}@2", "one is kept, the last"

    # A disk that damages whatever is written: the rows stay, and it is not built for ever.
    hub.reaches(view, "realtime")
    hub.dies()
    cut(last("offsets")(hub.settings.checkpoints / f"{view}@3" / "3")[0])
    hub.sell(50)
    hub.until(
        lambda: "corrupt 3 times within an hour" in (hub.pipeline.state(view).get("reason") or ""),
        120.0,
        lambda: str(hub.told(view)),
    )
    assert len(hub.rows(view)) == SHOPS and hub.serves(view, 3)
    shutil.rmtree(kept)
    hub.until(lambda: hub.serves(view, 4), 240.0, lambda: str(hub.told(view)))
    hub.covered(view)
    assert hub.rows(view) == hub.expected(again.view)
    hub.remove_views(view)
