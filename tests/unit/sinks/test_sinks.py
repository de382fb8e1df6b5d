"""Sinks without Kafka: the file, what an answer means, addresses, lanes, positions, values of columns."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.access.live_config import LiveAccess
from hub.alerts.model.rules import RuleChanges
from hub.caller import Forbidden
from hub.cli.platform import status
from hub.errors import ConfigError, Conflict, PeerError
from hub.masking.shape import MaskRefused
from hub.materializers.queries.parser import SqlError
from hub.observability.lineage.live_graph import lineage_of
from hub.observability.web.pages.monitor.sinks import sinks_page
from hub.record import Positions, Record, TopicPartition
from hub.sinks.commits import check_same_topic, lost_offsets
from hub.sinks.events import SinkBatch, SinkEvent, event_text, halves, lanes_of, positions_before
from hub.sinks.note import SinkNote, families, known_rows, pause_sink, write_notes
from hub.sinks.observe import ProjectSinks, flows_of, observe_sinks
from hub.sinks.owner import Owners
from hub.sinks.selection import statement_of
from hub.sinks.sinks_file import SinkEntry, find_circle, load_sinks
from hub.sinks.targets.addresses import check_address, is_refused
from hub.sinks.targets.files import newest
from hub.sinks.targets.webhook import Circuit
from hub.sinks.targets.webhook_answers import DeliveryVerdict, WebhookAnswer, judge
from hub.sinks.worker import changes

WEBHOOK: dict[str, Any] = {"url": "https://a.example/hook", "secrets": ["${S}"]}


def entry(**more: Any) -> SinkEntry:
    target = {} if {"topic", "database", "files"} & more.keys() else {"webhook": WEBHOOK}
    return SinkEntry.model_validate({"from": "shop.orders", **target, **more})


def event(offset: int, key: bytes | None = b"k", partition: int = 0, *, left: bool = False) -> SinkEvent:
    row = None if left else {"n": offset}
    return SinkEvent(Record("t", partition, offset, 1_700_000_000_000, key, b"{}"), row, left)


def at(**offsets: int) -> Positions:
    return Positions({TopicPartition("t", int(name[1:])): offset for name, offset in offsets.items()})


# ---- the file


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "sinks.yaml"
    path.write_text(text)
    return path


def test_a_wrong_entry_is_left_out_with_its_place_and_the_others_work(tmp_path: Path) -> None:
    entries, wrong = load_sinks(
        written(
            tmp_path,
            "sinks:\n"
            "  good: {from: a.b, topic: {name: a.c}}\n"
            "  two: {from: a.b, topic: {name: a.c}, files: {to: x}}\n"
            "  own: {from: _hub.audit, files: {to: x}}\n"
            '  open: {from: a.b, database: {url: "postgresql://u:pass@h/d", table: t}}\n',
        )
    )
    assert set(entries) == {"good"}
    assert "here: topic, files" in wrong["two"].message and "sinks.yaml:3" in wrong["two"].message
    assert "the hub's own" in wrong["own"].message
    assert "a secret must not be in the file" in wrong["open"].message and "pass" not in wrong["open"].message


def test_topics_that_sinks_copy_in_a_circle_are_refused(tmp_path: Path) -> None:
    text = (
        "sinks:\n  one: {from: a, topic: {name: b}}\n  two: {from: b, topic: {name: c}}\n"
        "  three: {from: c, topic: {name: a}}\n"
    )
    with pytest.raises(ConfigError, match="a -> b -> c -> a"):
        load_sinks(written(tmp_path, text))
    assert find_circle({"one": entry(topic={"name": "b"})}) == []


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"where": "count(*) > 1"}, "aggregate"),
        ({"where": "n IN (SELECT n FROM x)"}, "subquery"),
        ({"where": "1 = 1) UNION SELECT (1"}, "without UNION"),
        ({"where": "n > "}, "missing"),
        ({"fields": ["DISTINCT n"]}, "DISTINCT"),
    ],
)
def test_a_condition_that_is_not_over_one_record_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(SqlError, match=why):
        statement_of(entry(**more))


def test_an_entry_that_changed_is_stopped_and_started_again() -> None:
    one, other = entry(), entry(where="n > 1")
    assert changes({"a": one, "b": one}, {"a": one, "b": other, "c": one}) == (["b"], ["b", "c"])


# ---- answers of a receiver


@pytest.mark.parametrize(
    ("answer", "attempt", "kind"),
    [
        (WebhookAnswer(204), 1, "delivered"),
        (WebhookAnswer(400), 1, "refused"),
        (WebhookAnswer(422, "no amount"), 1, "refused"),
        (WebhookAnswer(500), 1, "again"),
        (WebhookAnswer(500), 8, "refused"),
        (WebhookAnswer(None, "no answer"), 1, "again"),
        (WebhookAnswer(None, "no connection", connected=False), 8, "down"),
        (WebhookAnswer(503), 8, "down"),
        (WebhookAnswer(429), 8, "down"),
        (WebhookAnswer(401), 8, "down"),
        (WebhookAnswer(410), 8, "down"),
        (WebhookAnswer(302), 8, "down"),
    ],
)
def test_what_an_answer_means(answer: WebhookAnswer, attempt: int, kind: str) -> None:
    assert judge(answer, attempt, 8, 0, 0.0).kind == kind


def test_pauses_grow_to_a_limit_and_retry_after_wins() -> None:
    pauses = [judge(WebhookAnswer(503), 1, 8, failures, 0.0).pause_s for failures in range(20)]
    assert pauses[:3] == [0.5, 1.0, 2.0] and pauses == sorted(pauses) and pauses[-1] == 60.0
    assert judge(WebhookAnswer(503, retry_after="120"), 1, 8, 9, 0.0).pause_s == 120.0
    assert judge(WebhookAnswer(503, retry_after="999999"), 1, 8, 0, 0.0).pause_s == 3_600.0


def test_an_open_circuit_lets_one_request_ask_after_its_pause() -> None:
    told: list[str] = []
    circuit, stop, now = Circuit(told.append, lambda: 100.0), threading.Event(), threading.Event()
    down = DeliveryVerdict("down", "HTTP 503", 3_600.0)
    assert circuit.run(lambda _failures: down, stop) == down
    assert circuit.is_open and "503" in told[-1]
    stop.set()
    assert circuit.run(lambda _failures: now.set() or down, stop) is None
    assert not now.is_set()


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254", "0.0.0.0"]
)
def test_metadata_addresses_are_refused_whatever_name_leads_there(address: str) -> None:
    assert is_refused(address)
    with pytest.raises(ConfigError, match="metadata address"):
        check_address("http://innocent.example/x", lambda _host, _port: ["93.184.216.34", address])


def test_private_addresses_are_allowed_and_an_unknown_host_is_asked_again() -> None:
    check_address("http://receiver", lambda _host, _port: ["10.1.2.3", "127.0.0.1"])

    def unknown(_host: str, _port: int) -> list[str]:
        raise OSError("unknown")

    with pytest.raises(PeerError, match="has no address"):
        check_address("http://receiver", unknown)


# ---- events


@given(st.lists(st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.integers(0, 2))), st.integers(1, 9))
def test_lanes_keep_every_event_and_the_order_of_keys(
    keys: list[tuple[bytes | None, int]], count: int
) -> None:
    events = [event(number, key, partition) for number, (key, partition) in enumerate(keys)]
    lanes = lanes_of(events, count)
    assert len(lanes) <= count
    assert sorted(each.id for lane in lanes for each in lane) == sorted(each.id for each in events)
    for lane in lanes:
        assert [each.record.offset for each in lane] == sorted(each.record.offset for each in lane)
    for key in (b"a", b"b", b"c"):
        assert sum(any(each.record.key == key for each in lane) for lane in lanes) <= 1


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_positions_never_pass_an_event_that_waits(waits: list[bool]) -> None:
    events = [event(number, partition=number % 3) for number in range(len(waits))]
    batch = SinkBatch(events, at(p0=0, p1=0, p2=0), at(p0=99, p1=99, p2=99))
    waiting = [each for each, waits_ in zip(events, waits, strict=True) if waits_]
    positions = positions_before(batch, waiting)
    for each in waiting:
        assert positions.get(each.record.topic_partition) <= each.record.offset


def test_the_second_half_of_a_batch_begins_where_the_first_ends() -> None:
    batch = SinkBatch([event(3), event(5), event(6, partition=1)], at(p0=2, p1=6), at(p0=8, p1=9))
    first, second = halves(batch)
    assert (first.before, first.after) == (at(p0=2, p1=6), at(p0=4, p1=6))
    assert (second.before, second.after) == (at(p0=4, p1=6), at(p0=8, p1=9))


def test_the_text_of_an_event_has_its_place_and_a_deleted_key_says_so() -> None:
    shown, gone = (orjson.loads(event_text(each)) for each in (event(7), event(8, left=True)))
    assert shown["timestamp"] == "2023-11-14T22:13:20.000Z" and shown["data"] == {"n": 7}
    assert (shown["partition"], shown["offset"], shown["key"]) == (0, 7, "k") and "deleted" not in shown
    assert gone["data"] is None and gone["deleted"] is True


def test_a_topic_that_was_created_again_stops_its_sink() -> None:
    with pytest.raises(Conflict, match="position 7 in t partition 0 is after the end 5"):
        check_same_topic("s", at(p0=7), at(p0=5))
    assert lost_offsets(at(p0=2, p1=9), at(p0=5, p1=5)) == 3


def test_files_tell_where_to_read_on_and_other_names_do_not() -> None:
    names = [
        "t/0/00000000000000000000-00000000000000000042.ndjson.gz",
        "t/0/00000000000000000042-00000000000000000050.ndjson",
        "t/1/notes.txt",
    ]
    assert newest(names) == {TopicPartition("t", 0): 50}


# ---- states


def test_a_sink_that_nobody_reports_is_unknown_and_has_no_sample(tmp_path: Path) -> None:
    written(tmp_path, "sinks:\n  a: {from: x.y, files: {to: f}}\n  b: {from: x.y, files: {to: g}}\n")
    rows = known_rows(tmp_path, tmp_path, 1_000)
    assert [(each.note.state, each.note.lag_records) for each in rows] == [("UNKNOWN", None)] * 2
    assert all(not family.samples for family in families(rows))
    pause_sink(tmp_path, "b", paused=True)
    write_notes(tmp_path, 1_000, [SinkNote("a", "RETRYING", "down", lag_s=400.0, lag_records=3)])
    a, b = known_rows(tmp_path, tmp_path, 1_000)
    assert a.note.trouble == "down" and a.is_late
    assert b.note.state == "UNKNOWN" and "not begun" in b.note.trouble
    assert {each.note.state for each in known_rows(tmp_path, tmp_path, 60_000)} == {"UNKNOWN", "PAUSED"}
    values = {family.name: [each.value for each in family.samples] for family in families([a, b])}
    assert values["hub_sink_up"] == [0.0] and values["hub_sink_lag_records"] == [3.0]


def test_the_alert_and_the_lineage_of_sinks(tmp_path: Path) -> None:
    written(
        tmp_path,
        "sinks:\n"
        "  late: {from: x.y, owner: ops, files: {to: f}}\n"
        "  paused: {from: x.y, topic: {name: x.z}}\n"
        '  stuck: {from: views.v, database: {url: "${DB}", table: t}}\n'
        "  wrong: {from: x.y}\n",
    )
    states = [SinkNote("late", "DELIVERING", lag_s=301.0), SinkNote("paused", "PAUSED", lag_s=999.0)]
    write_notes(tmp_path, 1_000, [*states, SinkNote("stuck", "FAILING", "no such column")])
    rows = known_rows(tmp_path, tmp_path, 1_000)
    observed = {dict(each.object)["sink"]: each for each in observe_sinks(rows, RuleChanges({})).observations}
    verdicts = {name: each.verdict for name, each in observed.items()}
    assert verdicts == {"late": "BAD", "paused": "GOOD", "stuck": "BAD", "wrong": "BAD"}
    assert "301 s" in observed["late"].summary and observed["stuck"].detail == "no such column"
    unheard = observe_sinks(known_rows(tmp_path, tmp_path, 90_000), RuleChanges({})).observations
    assert {str(each.verdict) for each in unheard} == {"UNKNOWN", "BAD"}

    flows = {flow.name: flow for flow in flows_of(rows, ["x.y", "views.v"])}
    assert flows["stuck"].group == "hub.sink.stuck" and flows["stuck"].system == "database ${DB} t"
    assert flows["late"].topics == ("x.y",) and "wrong" not in flows
    graph = lineage_of((), (), {}, flows=list(flows.values()))
    assert graph.nodes["sink:late"].owner == "ops"
    assert {edge.target for edge in graph.edges if edge.source == "sink:paused"} == {"system:topic x.z"}
    page = sinks_page(ProjectSinks(tmp_path, tmp_path).lines())
    assert [each.state for each in page.sinks] == ["FAILING", "UNKNOWN", "UNKNOWN", "UNKNOWN"]
    assert page.sinks[1].delivered is None


# ---- owners

ACCESS = """\
users:
  ana: {groups: [risk]}
groups:
  risk: [{role: read, topics: ["shop.**"]}]
"""


def owners(project: Path, access: str, rows: Sequence[Mapping[str, str]] = ()) -> Owners:
    (project / "access.yaml").write_text(access)
    return Owners(LiveAccess(project), lambda _asked: list(rows))


@pytest.mark.parametrize("owner", ["ana", "risk"])
def test_a_sink_acts_with_the_grants_of_its_owner(tmp_path: Path, owner: str) -> None:
    def acted() -> None:
        found = owners(tmp_path, ACCESS)
        found.act("s", entry(owner=owner))
        with pytest.raises(Forbidden, match=r"may not read topic \"hr.pay\""):
            found.act("s", SinkEntry.model_validate({"from": "hr.pay", "owner": owner, "webhook": WEBHOOK}))
        with pytest.raises(Forbidden, match=r"may not write topic \"shop.big\""):
            found.act("s", entry(owner=owner, topic={"name": "shop.big"}))
        with pytest.raises(ConfigError, match=r'owner "nobody" is not a user'):
            found.act("s", entry(owner="nobody"))

    contextvars.copy_context().run(acted)


def test_a_sink_is_refused_while_a_mask_hides_something_from_its_owner(tmp_path: Path) -> None:
    masked = ACCESS + "masks:\n  - {fields: [email], topics: [shop.orders], as: hashed}\n"

    def acted(seen: str) -> None:
        rows = [
            {"what": "grant", "seen": "yes"},
            {"what": "email", "seen": seen},
            {"what": "rows", "seen": "all"},
        ]
        owners(tmp_path, masked, rows).act("s", entry(owner="ana"))

    contextvars.copy_context().run(acted, "shown")
    with pytest.raises(MaskRefused, match='"email" of shop.orders is masked'):
        contextvars.copy_context().run(acted, "hashed")


def test_hub_status_has_a_line_for_sinks(tmp_path: Path) -> None:
    assert status.sinks(known_rows(tmp_path, tmp_path, 1_000)) == []
    written(tmp_path, "sinks:\n  a: {from: x.y, files: {to: f}}\n  b: {from: x.y, files: {to: g}}\n")

    def line(*states: SinkNote) -> tuple[str, str]:
        write_notes(tmp_path, 1_000, states)
        (part,) = status.sinks(known_rows(tmp_path, tmp_path, 1_000))
        return part.state.value, part.found

    assert line(SinkNote("a", "DELIVERING"), SinkNote("b", "DELIVERING")) == ("OK", "2 of 2 sinks deliver")
    assert line(SinkNote("a", "DELIVERING"), SinkNote("b", "PAUSED")) == ("WARN", "1 of 2 sinks deliver")
    assert line(SinkNote("a", "DELIVERING")) == ("UNKNOWN", "not reported: b")
    assert line(SinkNote("a", "RETRYING"), SinkNote("b")) == ("BAD", "late or not delivering: a")
