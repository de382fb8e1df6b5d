"""Changes during a trial: schemas, views, files with mistakes, recreated topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random

import httpx2

from fault_suite.copies import made_again
from fault_suite.faults import kind
from fault_suite.model import CITY_TOTALS, LAST_PROBE, ORDER_V2, ORDERS, VIEWS, schema_text
from fault_suite.world import World
from hub.errors import HubError

_BESIDE = """\
view: beside
sources:
  o: {{topic: home.orders, key: city, order: seq}}
fields:
  orders: count(o.id)
  most: {most}
"""


@kind("writers go to a new version of the schema", "schema", hits=(), once=True)
def change_schema(world: World, chance: Random) -> Iterator[None]:
    yield
    for _ in range(60):
        with suppress(HubError):
            schema_id = world.pipeline.registry.register(f"{ORDERS}-value", schema_text(ORDER_V2))
            world.codec.by_id[schema_id] = ORDER_V2
            world.schema_id = schema_id
            return
        world.live(1.0)
    world.journal.accuse("the second version of the orders' schema could not be registered within 60 s")


@kind("a view's file is changed and changed back", "view", hits=(), seconds=(3.0, 10.0))
def change_view(world: World, chance: Random) -> Iterator[None]:
    """A new version of the view starts to build, and is abandoned when the file is changed back."""
    path = world.settings.project / "views" / "city_totals.yaml"
    path.write_text(CITY_TOTALS.replace("sum(cents) AS cents", "sum(cents) AS cents, max(seq) AS newest"))
    try:
        yield
    finally:
        path.write_text(CITY_TOTALS)


@kind("a view comes, changes and goes", "view", hits=(), seconds=(6.0, 15.0))
def passing_view(world: World, chance: Random) -> Iterator[None]:
    path = world.settings.project / "views" / "beside.yaml"
    path.write_text(_BESIDE.format(most="max(o.cents)"))
    try:
        world.live(4.0)
        path.write_text(_BESIDE.format(most="min(o.cents)"))
        yield
    finally:
        path.unlink(missing_ok=True)


@kind("a view's file is taken away and put back", "view", hits=("materializer",), seconds=(2.0, 6.0))
def lose_view_file(world: World, chance: Random) -> Iterator[None]:
    path = world.settings.project / "views" / "last_probe.yaml"
    path.unlink(missing_ok=True)
    try:
        yield
    finally:
        path.write_text(LAST_PROBE)


_ODD = (
    "? [a]\n: b\n",
    "view: [",
    "view: odd\nsources: {o: {topic: home.orders, key: customer}}\nfields: {n: lenght(o.id)}\n",
    "\x00\x01\x02",
    "&a [*a, *a]",
    "view: odd\nsources: 7\n",
    "!!python/object/apply:os.system ['true']\n",
    "[" * 5_000,
)


@kind("a view's file is full of mistakes", "view", hits=(), seconds=(3.0, 8.0))
def odd_view(world: World, chance: Random) -> Iterator[None]:
    path = world.settings.project / "views" / "odd.yaml"
    path.write_text(chance.choice(_ODD))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@kind("every view's file is touched", "view", hits=(), seconds=(1.0, 3.0))
def touch_views(world: World, chance: Random) -> Iterator[None]:
    for name, text in VIEWS.items():
        (world.settings.project / "views" / f"{name}.yaml").write_text(text)
    yield


@kind("a topic is deleted and made again", "topic", hits=(), seconds=(2.0, 5.0))
def recreate_topic(world: World, chance: Random) -> Iterator[None]:
    """The topic is only mirrored; its copy continues after the old records (``on_recreate: continue``)."""
    with suppress(HubError):
        made_again(world, len(world.passing))
    yield


@kind("the registry's settings are changed back and forth", "schema", hits=(), seconds=(0.5, 2.0))
def change_levels(world: World, chance: Random) -> Iterator[None]:
    subject = f"faults-{chance.randrange(20)}"
    levels = ("BACKWARD", "FULL")
    with suppress(httpx2.HTTPError):
        httpx2.put(f"{world.second.url}/config/{subject}", json={"compatibility": levels[0]}, timeout=5.0)
    yield
    with suppress(httpx2.HTTPError):
        httpx2.put(f"{world.settings.url}/config/{subject}", json={"compatibility": levels[1]}, timeout=5.0)
