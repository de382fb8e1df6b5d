"""Workers with different files: which links are the same, whose definition is in force,
and who divides the shards."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from mirror_statuses import FILE, LINK, MARK, PLACE, T, partition

from hub.record import NewRecord, Record
from hub.replication.clusters.control_state import ControlState
from hub.replication.clusters.status_records import CarriedTopic, LinkContents, WorkerHeartbeat
from hub.replication.clusters.written_state import WrittenState
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.link_definitions import LinkDefinition, crews, definitions, in_force
from hub.replication.ownership.shards import Lease, Shard, moves_by_crew
from hub.replication.status.mirror_status import summary_of
from hub.replication.status.partition_rows import SourceEndOffsets

CLUSTERS = {
    "nyc": {"bootstrap": "a:1", "owns": ["nyc.**"]},
    "lon": {"bootstrap": "b:1", "owns": ["lon.**"]},
    "tok": {"bootstrap": "c:1"},
}
MIRROR = {"source": "nyc", "target": "lon", "topics": ["nyc.chat"]}


def digest(clusters: dict[str, Any] | None = None, name: str = "m", **mirrors: dict[str, Any]) -> str:
    body = {"clusters": clusters or CLUSTERS, "mirrors": {"m": MIRROR, **mirrors}}
    return definitions(MirrorsFile.model_validate(body), 5)[name].digest


def test_a_definition_is_what_decides_about_the_topics_of_a_mirror_and_nothing_else() -> None:
    plain = digest()
    moved = {**CLUSTERS, "nyc": {**CLUSTERS["nyc"], "bootstrap": "elsewhere:9"}}
    other = {"source": "nyc", "target": "lon", "topics": ["nyc.loot"]}
    assert digest(moved) == plain == digest(other=other)
    for changed in ({"topics": ["nyc.**"]}, {"shards": 4}, {"only": [{"topics": ["nyc.chat"],
        "where": {"header": "h", "in": ["x"]}}]}):  # fmt: skip
        assert digest(m={**MIRROR, **changed}) != plain
    # Another mirror, or owner, of one of its topics.
    assert digest(other={"source": "nyc", "target": "tok", "topics": ["nyc.*"]}) != plain
    assert digest({**CLUSTERS, "tok": {"bootstrap": "c:1", "owns": ["nyc.chat"]}}) != plain
    assert digest(name="m~back") != plain


OLD, NEW = LinkDefinition(10, "old"), LinkDefinition(20, "new")


def test_the_newest_files_definition_is_in_force_as_long_as_anybody_has_it() -> None:
    claims = {"a": {"m": NEW}, "b": {"m": OLD, "n": OLD}, "c": {"m": LinkDefinition(5, "new")}, "d": {}}
    assert in_force(claims) == {"m": NEW, "n": OLD}
    assert crews(claims) == {"m": {"a", "c"}, "n": {"b"}}
    assert crews({name: claims[name] for name in "bd"}) == {"m": {"b"}, "n": {"b"}}


LINKS = ("m", "n", "o")
SHARDS = [Shard(link, number) for link in LINKS for number in range(-1, 4)]
CLAIMS = st.dictionaries(
    st.integers(0, 5).map("w{}".format),
    st.dictionaries(st.sampled_from(LINKS), st.sampled_from((OLD, NEW))),
    min_size=1,
)


@given(
    CLAIMS,
    st.dictionaries(st.sampled_from(SHARDS), st.sampled_from(("earlier", *(f"w{n}" for n in range(6))))),
)
def test_in_the_end_each_shard_of_a_link_has_one_holder_that_has_the_link(
    claims: dict[str, dict[str, LinkDefinition]], held: dict[Shard, str]
) -> None:
    """``earlier``: a worker of an earlier release, which names no links; it keeps its shards."""
    kept = {shard for shard, worker in held.items() if worker == "earlier"}
    leases = {shard: worker for shard, worker in held.items() if worker in claims or worker == "earlier"}
    for _ in range(4):
        for me in sorted(claims):
            # Each knows the shards of its own links only.
            shards = [shard for shard in SHARDS if shard.link in claims[me]]
            found = moves_by_crew(
                me, crews(claims), shards, [Lease(shard, who, 100) for shard, who in leases.items()], 0
            )
            for shard in found.release:
                assert leases.pop(shard) == me
            for shard in found.take:
                assert shard not in leases
                leases[shard] = me
    found_crews = crews(claims)
    for shard in SHARDS:
        if shard in kept:
            assert leases[shard] == "earlier"
        elif shard.link in found_crews:
            assert leases[shard] in found_crews[shard.link]
        else:
            assert shard not in leases
    for crew in set(found_crews.values()):
        those = [shard for shard in SHARDS if found_crews.get(shard.link) == crew and shard not in kept]
        shares = [sum(leases[shard] == worker for shard in those) for worker in crew]
        assert max(shares) - min(shares) <= 1


def heard(*records: NewRecord, headers: bool = True) -> ControlState:
    made = ControlState()
    for offset, new in enumerate(records):
        said = new.headers if headers else ()
        made.apply(Record(new.topic, 0, offset, 0, new.key, new.value, said), 0.0, 50_000)
    return made


def test_a_heartbeat_names_links_where_an_earlier_release_does_not_look() -> None:
    """A worker of an earlier release refuses unknown fields, and would ignore the worker."""
    beat = WorkerHeartbeat("w1", "host", 7, (Shard("m", 0),), 6_000, 50_000, {"m": NEW})
    record = beat.record()
    assert record.value is not None
    assert orjson.loads(record.value).keys() == {"host", "pid", "holding", "ttl_ms", "at_ms"}
    assert heard(record).claims(1.0) == {"w1": {"m": NEW}}
    assert heard(record, headers=False).claims(1.0) == {} and heard(record, headers=False).alive(1.0)
    none = WorkerHeartbeat("w1", "host", 7, (), 6_000, 50_000, {})
    assert heard(none.record()).claims(1.0) == {"w1": {}}
    # And of a later release's fields it takes what it knows.
    body = {**orjson.loads(record.value), "of a later release": 1}
    later = NewRecord(record.topic, record.key, orjson.dumps(body), record.headers)
    assert heard(later).beats["w1"] == beat


def test_status_tells_of_two_definitions_and_of_what_nobody_reports() -> None:
    mine = definitions(FILE, 20)["m"]
    carried = LinkContents("m", {T: CarriedTopic(1, "s")}).record()
    progress = WrittenState(checkpoints={("m", *PLACE): MARK})

    def beat(worker: str, definition: LinkDefinition, *holding: int) -> NewRecord:
        held = tuple(Shard("m", number) for number in holding)
        return WorkerHeartbeat(worker, "host", 7, held, 6_000, 49_000, {"m": definition}).record()

    def told(*records: NewRecord, now_ms: int = 50_000, end: int | None = None) -> dict[str, Any]:
        ends = SourceEndOffsets() if end is None else SourceEndOffsets({PLACE: end})
        return summary_of(FILE, LINK, heard(carried, partition(), *records), progress, now_ms, ends)

    well = told(beat("w1", mine, 0, -1), end=100)
    assert (well["state"], well["ok"], well["cautions"], well["lag_records"]) == ("mirroring", True, [], 0)
    (only,) = well["definitions"]
    assert only == {"digest": mine.digest, "since_ms": 20, "workers": ["w1"], "in_force": True, "here": True}

    both = told(beat("w1", mine, 0, -1), beat("w2", OLD))
    assert both["state"] == "mirroring" and [each["in_force"] for each in both["definitions"]] == [
        True,
        False,
    ]
    assert "idle until their mirrors.yaml is the same: w2" in both["cautions"][0]
    other = told(beat("w1", LinkDefinition(30, "another"), 0, -1))
    assert other["state"] == "mirroring" and "otherwise than the file asked with" in other["cautions"][0]

    # Its worker gave the shard back, another one has it and has not told yet.
    for holders, why in (
        ((), "no worker holds its shard"),
        ((0,), "worker w2 has it and has not reported"),
    ):
        found = told(beat("w1", mine, -1), beat("w2", mine, *holders), end=160)
        (row,) = found["partitions"]
        assert (found["state"], found["ok"], found["lag_records"]) == ("unknown", False, 60)
        assert row["state"] == "unknown" and row["worker"] is None and why in row["reason"]
        assert row["reason"].endswith("(last reported 1 s ago)") and row["source_end_s"] == 0.0

    # It stands still: its lag does not.
    frozen = told(beat("w1", mine, 0, -1), now_ms=49_000 + 16_000, end=400)
    assert (frozen["state"], frozen["ok"], frozen["lag_records"]) == ("no worker", False, 300)
    assert frozen["reason"].startswith("its worker w1 last reported 16 s ago")
    assert frozen["partitions"][0]["state"] == "unknown" and frozen["partitions"][0]["seen_s"] == 16.0
