"""Nexmark's queries as SQL views of the hub and as Flink SQL, over the same topics: are the rows the same,
and what do they cost?

Run: ``./run bench nexmark`` (about a quarter of an hour). Prints figures and asserts none on time; rows that
differ are told and make the exit code 1. bench/README.md says what each means.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import changelogs
from peers import flink
from peers.kafka_streams import javac, peak_memory_mb
from views import MS, Hub, batch_of, wait

from hub.cli.platform.up import children, fetch_jars
from hub.config import Settings
from hub.errors import HubError
from hub.record import Positions
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.gateway.producer import Publisher

PERSON = {
    "id": "long",
    "name": "string",
    "email": "string",
    "city": "string",
    "state": "string",
    "date_time": MS,
}
AUCTION = {
    "id": "long", "item": "string", "initial_bid": "long", "reserve": "long", "date_time": MS, "expires": MS,
    "seller": "long", "category": "long", "extra": "string",
}  # fmt: skip
BID = {
    "auction": "long", "bidder": "long", "price": "long", "channel": "string", "url": "string",
    "date_time": MS,
    "extra": "string",
}  # fmt: skip
TOPICS: dict[str, dict[str, Any]] = {"nexmark.person": PERSON, "nexmark.auction": AUCTION, "nexmark.bid": BID}
EPOCH_MS = 1_767_225_600_000
# The last event of a topic closes all windows. Its subject has this id, and its rows are not compared.
LAST = -1
GAP_MS = 3_600_000

P = "p: {topic: nexmark.person}"
A = "a: {topic: nexmark.auction}"
B = "b: {topic: nexmark.bid}"
TIMED_B = "b: {topic: nexmark.bid, event_time: date_time, watermark: 4 seconds}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the benchmark. ``sources``, ``sql`` and ``key`` define the view. ``flink`` is Flink's
    SELECT; ``columns`` are its columns with types, and the first ``keys`` of them identify a row.
    ``official``: Nexmark's own text, which the hub also runs if ``sql`` is a cheaper form.
    """

    name: str
    what: str
    sources: tuple[str, ...]
    sql: str
    key: str
    columns: tuple[str, ...]
    keys: int
    flink: str
    official: str = ""


_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
_BID_COLUMNS = ("auction BIGINT", "bidder BIGINT", "price BIGINT")
_PLACE = ("part INT", "pos BIGINT")
_DAY = """SELECT auction, {day} AS `day`, count(*) AS total_bids, count(CASE WHEN price < 10000 THEN 1 END) AS rank1_bids,
  count(CASE WHEN price >= 10000 AND price < 1000000 THEN 1 END) AS rank2_bids, count(CASE WHEN price >= 1000000 THEN 1 END) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(CAST(price AS DOUBLE)) AS avg_price, sum(price) AS sum_price
FROM {bid} GROUP BY auction, {day}"""  # noqa: E501
_LATEST = """SELECT bidder, auction, price, channel, url, date_time, extra FROM (
  SELECT bidder, auction, price, channel, url, date_time, extra, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS place
  FROM {bid}) ranked WHERE place <= 1"""  # noqa: E501
_JOINED = """SELECT {part} AS part, {pos} AS pos, b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra,
  a.item, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM {bid} b JOIN {auction} a ON b.auction = a.id WHERE a.category = 10"""  # noqa: E501

QUERIES = (
    Query(
        "q0", "every bid as it is", (B,),
        "SELECT b._partition AS part, b._offset AS pos, b.auction, b.bidder, b.price, "
        "b.date_time, b.extra FROM b",
        "[part, pos]", (*_PLACE, *_BID_COLUMNS, "date_time TIMESTAMP(3)", "extra STRING"), 2,
        "SELECT part, pos, auction, bidder, price, date_time, extra FROM bid",
    ),
    Query(
        "q2", "bids of every 123rd auction", (B,),
        "SELECT b._partition AS part, b._offset AS pos, b.auction, b.price FROM b WHERE b.auction % 123 = 0",
        "[part, pos]", (*_PLACE, "auction BIGINT", "price BIGINT"), 2,
        "SELECT part, pos, auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    Query(
        "q7", "the highest bid of each 10 s", (TIMED_B,),
        "SELECT window(date_time, '10 seconds').end AS ended, max(price) AS price, max_by(auction, price) "
        "AS auction,\n  max_by(bidder, price) AS bidder, max_by(date_time, price) AS date_time\n"
        "FROM b GROUP BY window(date_time, '10 seconds')",
        "", (*_BID_COLUMNS, "date_time TIMESTAMP(3)"), 4,
        "SELECT b.auction, b.bidder, b.price, b.date_time FROM bid b JOIN (\n"
        f"  SELECT max(price) AS most, window_end AS ended FROM {_TUMBLE.format('bid')} GROUP BY "
        "window_start, window_end) m\n"
        "ON b.price = m.most WHERE b.date_time BETWEEN m.ended - INTERVAL '10' SECOND AND m.ended",
        official="SELECT b.auction, b.bidder, b.price, b.date_time FROM b JOIN (\n"
        "  SELECT max(price) AS most, window(date_time, '10 seconds').end AS ended FROM b GROUP BY "
        "window(date_time, '10 seconds')) m\nON b.price = m.most WHERE b.date_time BETWEEN m.ended - "
        "INTERVAL 10 SECONDS AND m.ended",
    ),
    Query(
        "q8", "new persons who opened auctions in the same 10 s", (P, A),
        "SELECT p.id, p.name, p.starttime FROM (\n"
        "  SELECT id, name, window(date_time, '10 seconds').start AS starttime FROM p GROUP BY id, name, "
        "window(date_time, '10 seconds')) p\nJOIN (SELECT seller, window(date_time, '10 seconds').start AS "
        "starttime FROM a GROUP BY seller, window(date_time, '10 seconds')) a\nON p.id = a.seller AND "
        "p.starttime = a.starttime",
        "[id, starttime]", ("id BIGINT", "name STRING", "starttime TIMESTAMP(3)"), 3,
        "SELECT p.id, p.name, p.window_start AS starttime FROM (\n"
        f"  SELECT id, name, window_start, window_end FROM {_TUMBLE.format('person')} GROUP BY id, name, "
        f"window_start, window_end) p\nJOIN (SELECT seller, window_start, window_end FROM "
        f"{_TUMBLE.format('auction')} GROUP BY seller, window_start, window_end) a\n"
        "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
    ),
    Query(
        "q11", "bids of each session of a bidder, 10 s apart", (TIMED_B,),
        "SELECT bidder, session_window(date_time, '10 seconds').start AS starttime, "
        "session_window(date_time, '10 seconds').end AS endtime,\n  count(*) AS bids FROM b GROUP BY "
        "bidder, session_window(date_time, '10 seconds')",
        "", ("bidder BIGINT", "starttime TIMESTAMP(3)", "endtime TIMESTAMP(3)", "bids BIGINT"), 2,
        "SELECT bidder, window_start AS starttime, window_end AS endtime, count(*) AS bids\n"
        "FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND))\n"
        "GROUP BY bidder, window_start, window_end",
    ),
    Query(
        "q17", "figures of each auction and day", (B,),
        _DAY.format(day="date_format(date_time, 'yyyy-MM-dd')", bid="b"), "",
        ("auction BIGINT", "`day` STRING", "total_bids BIGINT", "rank1_bids BIGINT", "rank2_bids BIGINT",
        "rank3_bids BIGINT",
         "min_price BIGINT", "max_price BIGINT", "avg_price DOUBLE", "sum_price BIGINT"), 2,
        _DAY.format(day="DATE_FORMAT(date_time, 'yyyy-MM-dd')", bid="bid"),
    ),
    Query(
        "q18", "the last bid of each bidder on each auction", (B,),
        _LATEST.format(bid="b"), "[bidder, auction]",
        ("bidder BIGINT", "auction BIGINT", "price BIGINT", "channel STRING", "url STRING",
        "date_time TIMESTAMP(3)", "extra STRING"), 2,
        _LATEST.format(bid="bid"),
    ),
    Query(
        "q20", "bids joined with their auctions, one category", (B, A),
        _JOINED.format(part="b._partition", pos="b._offset", bid="b", auction="a"), "[part, pos]",
        (*_PLACE, *_BID_COLUMNS, "channel STRING", "url STRING", "bid_time TIMESTAMP(3)", "bid_extra STRING",
        "item STRING",
         "initial_bid BIGINT", "reserve BIGINT", "auction_time TIMESTAMP(3)", "expires TIMESTAMP(3)",
         "seller BIGINT",
         "category BIGINT", "auction_extra STRING"), 2,
        _JOINED.format(part="b.part", pos="b.pos", bid="bid", auction="auction"),
    ),
)  # fmt: skip


# ---- events


def stream(events: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield (topic, key, value): of each 50 events one person, three auctions and 46 bids, a millisecond
    apart, the same in each run.

    As in Nexmark's generator, half of the bids go to a hot auction, which changes every 100; the others to
    one of the last 100 auctions. Sellers and bidders are chosen among persons in the same way. Prices are
    spread evenly over their powers of ten.
    """
    chance = random.Random(1)
    persons = auctions = 0

    def of_late(known: int, hot_every: int) -> int:
        hot = known - 1 - (known - 1) % hot_every
        return hot if chance.random() < 0.5 else chance.randrange(max(0, known - 100), known)

    for number in range(events):
        at = EPOCH_MS + number
        kind = number % 50
        extra = f"{chance.getrandbits(64):016x}" * 3
        if kind == 0:
            name = f"{chance.choice(('Ada', 'Ben', 'Eva', 'Jon'))} {chance.choice(('Haas', 'Ito', 'Lund'))}"
            place = chance.choice((("Oslo", "OR"), ("Turin", "ID"), ("Lyon", "CA")))
            yield "nexmark.person", persons, person(persons, name, place, at)
            persons += 1
        elif kind < 4:
            yield "nexmark.auction", auctions, {
                "id": auctions, "item": f"item {auctions % 1_000}", "initial_bid": chance.randrange(1, 1_000),
                "reserve": chance.randrange(1_000, 10_000), "date_time": at,
                "expires": at + chance.randrange(1_000, 60_000),
                "seller": of_late(persons, 100), "category": chance.randrange(10, 15), "extra": extra,
            }  # fmt: skip
            auctions += 1
        else:
            auction = of_late(auctions, 100)
            channel = chance.choice(("Google", "Facebook", "Baidu", "Apple"))
            yield "nexmark.bid", auction, {
                "auction": auction, "bidder": of_late(persons, 100),
                "price": int(100 * 10 ** (chance.random() * 6)),
                "channel": channel, "url": f"https://www.nexmark.com/{channel}/item.htm?query=1&id={auction % 997}",  # noqa: E501
                "date_time": at, "extra": extra,
            }  # fmt: skip
    end = EPOCH_MS + events + GAP_MS
    yield "nexmark.person", LAST, person(LAST, "", ("", ""), end)
    yield "nexmark.auction", LAST, {
        "id": LAST, "item": "", "initial_bid": 0, "reserve": 0, "date_time": end, "expires": end,
        "seller": LAST,
        "category": 0, "extra": "",
    }  # fmt: skip
    yield "nexmark.bid", LAST, {
        "auction": LAST, "bidder": LAST, "price": 0, "channel": "", "url": "", "date_time": end, "extra": "",
    }  # fmt: skip


def person(number: int, name: str, place: tuple[str, str], at: int) -> dict[str, Any]:
    email = f"{number}@example.org"
    return {"id": number, "name": name, "email": email, "city": place[0], "state": place[1], "date_time": at}


# ---- the hub


@dataclass(frozen=True, slots=True)
class Took:
    """Figures of one query on one system. ``refused``: the reason why there are none."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    late: int = 0
    refused: str = ""


def view_text(query: Query, name: str, sql: str, key: str) -> str:
    sources = "".join(f"  {each}\n" for each in query.sources)
    indented = "".join(f"  {line}\n" for line in sql.splitlines())
    return f"view: {name}\nsources:\n{sources}sql: |\n{indented}" + (f"key: {key}\n" if key else "")


def by_hub(running: Hub, query: Query, name: str, text: str, timeout_s: float) -> Took:
    """Measure the view from the appearance of its file to its last row; Spark runs already.

    The last row has arrived when the log is read and the changelog has not changed for five seconds, which do
    not count: rows of closed windows come after the batch that read the last event.
    """
    file = running.settings.project / "views" / f"{name}.yaml"
    changelog = f"views.{name}"
    log_end = running.cluster.end_offsets(
        [topic for topic in TOPICS if any(topic in of for of in query.sources)]
    )
    cpu_before_s = running.cpu_s()
    began_at = moved_at = time.monotonic()
    cpu_s, rows_end = 0.0, None
    file.write_text(text)
    try:
        while True:
            time.sleep(0.25)
            told, now = running.progress(name), time.monotonic()
            if told.get("state") == "failed":
                return Took(refused=str(told.get("reason")))
            if now - began_at > timeout_s:
                return Took(
                    refused=f"not done after {timeout_s:.0f} s: {told.get('state')}, {told.get('reason')}"
                )
            read = Positions.of(batch_of(told)).covers(log_end)
            end = running.cluster.end_offsets([changelog]) if told.get("last_batch") else None
            if end != rows_end or not read:
                rows_end, moved_at, cpu_s = end, now, running.cpu_s() - cpu_before_s
            elif now - moved_at > 5:
                return Took(moved_at - began_at, cpu_s, int(told["last_batch"].get("late_records") or 0))
    finally:
        file.unlink()
        with contextlib.suppress(TimeoutError):  # a timeout concerns the hub, not the query
            wait(lambda: running.progress(name).get("state") in (None, "stopped"), 30)


# ---- Flink


def statements(query: Query, running: Hub) -> str:
    """The tables of the topics and of the result, and the job."""
    kafka = f"'properties.bootstrap.servers' = '{running.settings.bootstrap}'"
    types = {"long": "BIGINT", "string": "STRING"}
    made = []
    for topic, fields in TOPICS.items():
        columns = [f"{name} {'TIMESTAMP(3)' if kind is MS else types[kind]}" for name, kind in fields.items()]
        columns += ["part INT METADATA FROM 'partition' VIRTUAL", "pos BIGINT METADATA FROM 'offset' VIRTUAL"]
        columns += ["WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"]
        made.append(
            f"CREATE TABLE {topic.partition('.')[2]} ({', '.join(columns)}) WITH ('connector' = 'kafka', "
            f"'topic' = '{topic}', {kafka}, "
            "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', "
            "'format' = 'avro-confluent', "
            f"'avro-confluent.url' = '{running.url}')"
        )
    key = ", ".join(column.split()[0] for column in query.columns[: query.keys])
    made.append(
        f"CREATE TABLE view_rows ({', '.join(query.columns)}, PRIMARY KEY ({key}) NOT ENFORCED) WITH "
        f"('connector' = 'upsert-kafka', 'topic' = '{result_topic(query)}', {kafka}, "
        f"'properties.compression.type' = 'lz4', 'key.format' = 'json', 'value.format' = 'avro-confluent', "
        f"'value.avro-confluent.url' = '{running.url}')"
    )
    return ";\n".join([*made, f"INSERT INTO view_rows {query.flink}"])


def result_topic(query: Query) -> str:
    return f"flink.{query.name}"


# ---- rows


def rows_of(running: Hub, topic: str, query: Query) -> Counter[tuple[Any, ...]]:
    """Return the current rows of a changelog, in the query's columns, without those of the last events."""
    names = [column.split()[0].strip("`") for column in query.columns]
    about = next(names.index(name) for name in ("auction", "bidder", "id") if name in names)
    found = changelogs.rows_of(running.cluster, RegistryClient(running.url), topic)
    rows = (tuple(row[name] for name in names) for row in found.values())
    return Counter(row for row in rows if row[about] != LAST)


def difference(ours: Counter[tuple[Any, ...]], theirs: Counter[tuple[Any, ...]]) -> str:
    """Return how many rows only one side has, with an example of each; "" when the multisets are equal."""
    told = []
    for who, only in (("only the hub", ours - theirs), ("only Flink", theirs - ours)):
        if only:
            told.append(f"{who} has {only.total():,}, such as {min(only, key=repr)}")
    return "; ".join(told)


def main() -> None:
    names = [query.name for query in QUERIES]
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--events", type=int, default=300_000)
    arguments.add_argument("--only", nargs="*", choices=names, help="default: all queries")
    arguments.add_argument("--no-peer", action="store_true", help="without Flink")
    arguments.add_argument("--timeout", type=int, default=300, help="seconds a query may take")
    given = arguments.parse_args()
    chosen = [query for query in QUERIES if not given.only or query.name in given.only]
    fetch_jars(Settings())
    why = "--no-peer" if given.no_peer else without_flink()
    if why:
        print(f"Without Flink: {why}", file=sys.stderr)
    sys.exit(0 if measure(chosen, given.events, given.timeout, not why) else 1)


def without_flink() -> str:
    """Why the peer cannot be run; nothing when it can. Fetches it."""
    if javac() is None:
        return "there is no javac"
    try:
        flink.jars(Settings())
    except (RuntimeError, HubError, subprocess.TimeoutExpired) as error:
        return str(error)
    return ""


def measure(chosen: list[Query], events: int, timeout_s: int, beside: bool) -> bool:
    """Prints a line a query. False when a query that ran on both sides has other rows on one of them."""
    running = Hub(TOPICS)
    try:
        running.start_log()
        (running.settings.project / "views" / "bench.yaml").unlink()
        publisher = Publisher(running.cluster, RegistryClient(running.url), linger_ms=20)
        read: Counter[str] = Counter()
        for topic, key, value in stream(events):
            publisher.send(topic, str(key), value)
            read[topic] += 1
        publisher.close()
        print(f"{events:,} events, load {os.getloadavg()[0]:.1f}; {dict(read)}", flush=True)
        # The server needs its memory; the auditor would check the same events at the same time.
        for child in children(running.settings)[2:4]:
            running.supervisor.start(child)
        warm = QUERIES[0]
        by_hub(running, warm, "warm_up", view_text(warm, "warm_up", warm.sql, warm.key), timeout_s)
        ours: dict[str, Took] = {}
        for query in chosen:
            if query.official:
                name = official_view(query)
                text = view_text(query, name, query.official, "[auction, bidder, date_time]")
                ours[name] = by_hub(running, query, name, text, timeout_s)
            text = view_text(query, query.name, query.sql, query.key)
            ours[query.name] = by_hub(running, query, query.name, text, timeout_s)
        processes = running.processes()
        memory_mb = sum(peak_memory_mb(processes[name].pid) for name in ("spark", "materializer"))
        for name in ("materializer", "applier"):
            processes[name].suspend()  # its Spark idles; the supervisor ends both with the hub
        theirs: dict[str, flink.Job] = {}
        peak_mb = 0
        if beside:
            jobs = {query.name: statements(query, running) for query in chosen}
            for query in {warm.name: warm, **{query.name: query for query in chosen}}.values():
                running.cluster.create_topic(
                    result_topic(query),
                    partitions=2,
                    config={"cleanup.policy": "compact"},
                    replication_factor=1,
                )
            first = {"warm_up": jobs[warm.name] if warm.name in jobs else statements(warm, running)}
            folder = running.folder / "flink"
            try:
                theirs, peak_mb = flink.run(
                    running.settings, folder, first | jobs, timeout_s * (len(jobs) + 1)
                )
            except RuntimeError as error:  # print the hub's figures all the same
                print(error, file=sys.stderr)
        equal = told(running, chosen, read, ours, theirs, (memory_mb, peak_mb))
        return equal and bool(theirs) == beside
    finally:
        with contextlib.suppress(KeyError):
            for name in ("materializer", "applier"):
                running.processes()[name].resume()
        running.stop()


def official_view(query: Query) -> str:
    return f"{query.name}_official"


def lines(chosen: list[Query]) -> Iterator[tuple[Query, str, str]]:
    """Yield (query, its view, its title) for each line of the table."""
    for query in chosen:
        if query.official:
            yield query, official_view(query), f"{query.name} as Nexmark writes it"
        yield query, query.name, f"{query.name} {query.what}"


def speed(events: int, seconds: float, cpu_s: float) -> str:
    return f"{events / seconds:>9,.0f} ev/s {cpu_s * 1e6 / events:>6.1f} us"


def told(
    running: Hub,
    chosen: list[Query],
    read: Counter[str],
    ours: dict[str, Took],
    theirs: dict[str, flink.Job],
    memory_mb: tuple[int, int],
) -> bool:
    """Prints the table. False when the rows of a query that ran on both sides are not equal."""
    equal = True
    print(f"{'query':<60} {'hub':>24} {'rows':>9}   {'Flink ' + flink.VERSION:>24} {'rows':>9}  rows are")
    for query, view, what in lines(chosen):
        count = sum(read[topic] for topic in TOPICS if any(topic in of for of in query.sources))
        mine, other = ours[view], theirs.get(query.name)
        left = "refused" if mine.refused else speed(count, mine.seconds, mine.cpu_s)
        right = "not done in time" if theirs else "-"
        if other is not None:
            right = "failed" if other.failed else speed(count, other.seconds, other.cpu_s)
        rows = [rows_of(running, f"views.{view}", query)] if not mine.refused else []
        others = [rows_of(running, result_topic(query), query)] if other and not other.failed else []
        verdict = "not compared"
        if rows and others:
            verdict = difference(rows[0], others[0]) or "equal"
            equal = equal and verdict == "equal"
        sizes = [f"{each[0].total():,}" if each else "-" for each in (rows, others)]
        late = f" ({mine.late} late)" if mine.late else ""
        print(
            f"{what:<60} {left:>24} {sizes[0]:>9}   {right:>24} {sizes[1]:>9}  {verdict}{late}",
            flush=True,
        )
        for who, why in (("the hub", mine.refused), ("Flink", other.failed if other else "")):
            if why:
                print(f"  {who}: {why}", flush=True)
    print(
        f"peak memory: the hub's Spark and its driver {memory_mb[0]:,} MB, Flink {memory_mb[1]:,} MB; load "
        f"{os.getloadavg()[0]:.1f}"
    )
    return equal


if __name__ == "__main__":
    main()
