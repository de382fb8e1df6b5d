"""Final checks after all faults are healed: the log, the views in every store,
subscribers' copies and the mirror."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx2
import psycopg
from pipeline import plain, records_of

from fault_suite.copies import check_group, check_passing
from fault_suite.counts import check_completeness
from fault_suite.dead_letters import asked, check_dead_letters
from fault_suite.model import CHECKED, ORDERS, PEOPLE, PROBES, Rows, fold
from fault_suite.readers import Subscriber
from fault_suite.world import MIRROR, World
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.record import Record
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.verification.comparable import complete_tables

MIRRORED = (ORDERS, PEOPLE, PROBES)
SETTLE_S = 240.0
AGAIN_S = 60.0
"""How long a check that finds something is made again, times patience."""
_SERVED = "SELECT next_offset FROM hub_positions WHERE view = ? AND kind = 'served'"


def log_of(world: World, topic: str, at: str = "home") -> list[Record]:
    """Every committed record in (partition, offset) order, read past the links."""
    brokers = world.home if at == "home" else world.away
    records = records_of(KafkaCluster(brokers.bootstrap, 15.0), topic)
    return sorted(records, key=lambda record: (record.partition, record.offset))


def check_log(world: World, records: Mapping[str, list[Record]]) -> list[str]:
    """Check that every acknowledged event is in the log at its acknowledged place, once,
    and nothing else is."""
    journal, wrong = world.journal, []
    places: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for topic in (ORDERS, PEOPLE):
        for record in records[topic]:
            event_id = dict(record.headers).get("id")
            if event_id is not None:
                places[event_id.decode()].append((topic, record.partition, record.offset))
    for event_id, place in journal.acknowledged.items():
        found = places.get(event_id, [])
        if place not in found:
            wrong.append(f"event {event_id} was acknowledged at {place}, the log has it at {found}")
    for event_id, found in places.items():
        if event_id not in journal.sent:
            wrong.append(f"event {event_id} at {found} was never sent")
        elif event_id in journal.rolled_back and world.aborts_may_be_lost:
            journal.meet("rolled back and readable: Kafka lost the mark of an abort while it was fenced")
        elif event_id in journal.rolled_back:
            wrong.append(f"event {event_id} at {found} was rolled back and can be read")
        elif len(found) > 1 and event_id not in journal.repeatable:
            wrong.append(f"event {event_id} is in the log {len(found)} times: {found}")
    return wrong


def differences(name: str, found: Rows, expected: Rows, most: int = 5) -> list[str]:
    """The first few rows that are not as the fold has them."""
    wrong = [
        f"{name}: row {key}: {found.get(key)}, the fold has {expected.get(key)}"
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]
    return wrong[:most] + ([f"{name}: {len(wrong) - most} more rows differ"] if len(wrong) > most else [])


def served_rows(world: World, view: str) -> Rows:
    return {key: plain(row) for key, row in world.pipeline.rows(view).items()}


def sqlite_rows(world: World, view: str) -> Rows:
    """The serving store's file, read by sqlite3 and none of our code."""
    with sqlite3.connect(
        f"file:{world.settings.home / 'store.db'}?mode=ro", uri=True, timeout=30.0
    ) as connection:
        connection.row_factory = sqlite3.Row
        numbers = connection.execute(_SERVED, (f"{view}@",)).fetchall()
        return _live(dict(row) for row in connection.execute(_rows_of(view, numbers)))


def postgres_rows(world: World, view: str) -> Rows:
    """The Postgres store, past its link, read by psycopg and none of our code."""
    url = world.settings.stores["warehouse"].replace("postgresql+psycopg", "postgresql")
    url = url.replace(f":{world.postgres_link.port}/", f":{world.postgres.port}/")
    with psycopg.connect(url, connect_timeout=20, row_factory=psycopg.rows.dict_row) as connection:
        numbers = connection.execute(_SERVED.replace("?", "%s"), (f"{view}@",)).fetchall()
        return _live(connection.execute(_rows_of(view, numbers)))  # type: ignore[arg-type]


def _rows_of(view: str, numbers: Sequence[Mapping[str, Any]]) -> str:
    """Return the query of a view's rows.
    ``numbers``: rows with the number of the version that readers get."""
    number = numbers[0]["next_offset"] if numbers else 0
    return f'SELECT * FROM "view_{view}{f"@{number}" if number else ""}"'


def _live(rows: Any) -> Rows:
    found: Rows = {}
    for row in rows:
        if not row.get("_deleted"):
            found[row["key"]] = {
                name: value for name, value in row.items() if name != "key" and name[0] != "_"
            }
    return found


def changelog_rows(world: World, view: str) -> Rows:
    """The changelog of the version that readers get, folded: the last record of each key. A view whose
    checkpoint was lost is built again as the next version, with a changelog of its own."""
    latest: dict[bytes, Record] = {}
    for record in log_of(world, world.pipeline.state(view)["changelog"]):
        if record.key is None:
            continue
        known = latest.get(record.key)
        if known is None or _version(record) >= _version(known):
            latest[record.key] = record
    return {
        (record.key or b"").decode(): {"version": _version(record), "deleted": record.value is None}
        for record in latest.values()
    }


def _version(record: Record) -> int:
    value = dict(record.headers).get("hub.version") or b"0"
    return int(value)


def check_views(world: World, expected: Mapping[str, Rows], subscriber: Subscriber) -> list[str]:
    """Views over HTTP, in SQLite, in Postgres, in the changelog and in the subscriber's copy,
    against the fold."""
    wrong: list[str] = []
    for view in CHECKED:
        served = served_rows(world, view)
        for where, rows in (
            ("over HTTP", served),
            ("in SQLite", sqlite_rows(world, view)),
            ("in Postgres", postgres_rows(world, view)),
        ):
            for row in rows.values():
                row.pop("last_event_at", None)  # a time, with another type in each store
            wrong += differences(f"{view} {where}", rows, expected[view])
        logged = {key for key, row in changelog_rows(world, view).items() if not row["deleted"]}
        if logged != served.keys():
            wrong.append(f"{view}: the changelog has {len(logged)} live keys, the store {len(served)}")
    copy = {key: plain(dict(row)) for key, row in subscriber.rows().items()}
    for row in copy.values():
        row.pop("key", None)
    wrong += differences(f"{subscriber.view} in the subscriber's copy", copy, expected[subscriber.view])
    return wrong


def check_mirror(world: World, records: Mapping[str, list[Record]]) -> list[str]:
    """The copy has each record once, in order, byte for byte,
    and the offset map leads from each to its own."""
    wrong: list[str] = []
    reached = ClusterHandle(
        "away", KafkaCluster(world.away.bootstrap, 15.0), ClusterAccess(bootstrap=world.away.bootstrap)
    )
    _, tables = complete_tables(reached, MIRROR, MIRRORED)
    for topic in MIRRORED:
        ours, theirs = records[topic], log_of(world, topic, "away")
        if len(ours) != len(theirs):
            extra = Counter(map(_content, theirs)) - Counter(map(_content, ours))
            missing = Counter(map(_content, ours)) - Counter(map(_content, theirs))
            wrong.append(
                f"{topic}: {len(ours)} records at home, {len(theirs)} in the copy; "
                f"missing {list(missing)[:2]}, too many {list(extra)[:2]}"
            )
            continue
        for mine, yours in zip(ours, theirs, strict=True):
            if _content(mine) != _content(yours):
                wrong.append(f"{topic}: {_content(mine)} at home is {_content(yours)} in the copy")
                break
            found = tables[mine.topic_partition].translate(mine.offset)
            if (found.kind, found.offset) != ("exact", yours.offset):
                place = f"{topic}:{mine.partition}:{mine.offset}"
                wrong.append(f"the map leads {place} to {found}, the record is at {yours.offset}")
                break
    return wrong


def _content(record: Record) -> tuple[Any, ...]:
    value = record.value if record.value is None or len(record.value) < 1000 else hash(record.value)
    return record.partition, record.timestamp_ms, record.key, value, record.headers


def check_registry(world: World, acknowledged: Mapping[int, str]) -> list[str]:
    """Check that both nodes have every acknowledged id, with the same schema."""
    wrong: list[str] = []
    for url in world.urls.values():
        for schema_id, text in acknowledged.items():
            answer = httpx2.get(f"{url}/schemas/ids/{schema_id}", timeout=20.0)
            if answer.status_code != 200 or json.loads(answer.json()["schema"]) != json.loads(text):
                wrong.append(f"{url}: id {schema_id}: {answer.status_code} {answer.text[:150]}")
    texts = Counter(json.dumps(json.loads(text)) for text in acknowledged.values())
    wrong += [f"registry: a schema has {count} ids: {text}" for text, count in texts.items() if count > 1]
    return wrong[:5]


def check_states(world: World) -> list[str]:
    """Return every checked view that is not live although no fault is active."""
    answer = httpx2.get(f"{world.settings.url}/views", timeout=20.0)
    return [
        f"view {each['view']}: {each['state']} ({each.get('reason')}) though nothing is hurt"
        for each in answer.json()["views"]
        if each["view"] in CHECKED and each["state"] != "live"
    ]


def settle(world: World, say: Callable[[str], None]) -> None:
    """Wait until every view covers the current end of its topics and is live.
    Raises AssertionError on timeout."""
    began = time.monotonic()
    for view in (*CHECKED, "last_probe"):
        topics = (
            (PROBES,)
            if view == "last_probe"
            else (ORDERS, PEOPLE)
            if view == "customer_totals"
            else (ORDERS,)
        )
        ends = KafkaCluster(world.home.bootstrap, 15.0).end_offsets(list(topics), committed=False)

        def covered(view: str = view, ends: Any = ends) -> bool:
            from hub.record import Positions

            try:
                answer = httpx2.get(f"{world.settings.url}/views/{view}?limit=1", timeout=10.0)
            except httpx2.HTTPError:
                return False
            position = answer.headers.get("Hub-Position", "")
            return answer.is_success and Positions.parse(position).covers(ends)

        world.until(
            covered,
            SETTLE_S,
            lambda view=view, ends=ends: f"{view} does not cover {ends}: {world.pipeline.state(view)}",
        )
        say(f"  {view} covers its topics after {time.monotonic() - began:.1f} s")
    world.until(lambda: not check_states(world), SETTLE_S, lambda: str(check_states(world)))
    say(f"  every view is live after {time.monotonic() - began:.1f} s")


def check_all(
    world: World,
    subscriber: Subscriber,
    ids: Mapping[int, str],
    say: Callable[[str], None],
    first_only: bool = False,
) -> list[str]:
    """Run all checks, after ``settle`` has returned. Stores and copies that are slightly behind are checked
    again. ``first_only``: end with the first check that finds something.
    """
    records = {topic: log_of(world, topic) for topic in MIRRORED}
    wrong = list(world.journal.wrong) + check_log(world, records)
    expected = fold(world.codec, records[ORDERS], records[PEOPLE])
    for name, check in (
        ("views", lambda: check_views(world, expected, subscriber)),
        ("mirror", lambda: check_mirror(world, records)),
        ("group", lambda: check_group(world)),
        ("topic made again", lambda: check_passing(world)),
        ("completeness", lambda: check_completeness(world, records)),
        ("registry", lambda: check_registry(world, ids)),
        ("states", lambda: check_states(world)),
        ("dead letters", lambda: check_dead_letters(world.codec, records, asked(world))),
    ):
        if wrong and first_only:
            break
        found: list[str] = []

        def fine(check: Callable[[], list[str]] = check, found: list[str] = found) -> bool:
            try:
                found[:] = check()
            except Exception as error:  # noqa: BLE001 (a connection that is not back yet; what stays is told)
                found[:] = [f"{type(error).__name__}: {error}"]
            return not found

        try:
            world.until(fine, AGAIN_S, lambda: "")
            say(f"  {name}: right")
        except AssertionError:
            wrong += [f"{name}: {each}" for each in found]
    return wrong
