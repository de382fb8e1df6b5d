"""The one judge of lag: its rules as a table, and every page, route, alert and color by it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from hub.alerts.model.rules import RuleChanges, Verdict
from hub.observability.export.objectives import observe_readers
from hub.observability.lag.consumers import Consumer, ConsumerId, LagRow, row_of
from hub.observability.lag.judge import LagRules, judge
from hub.observability.lag.states import LEVEL, SEVERITY, LagReading, LagState, Level, ReaderState
from hub.observability.lag.watching import WatchedConsumer, watch
from hub.observability.lineage.live_graph import lineage_of
from hub.observability.overview.mirror_readers import MirrorStatuses
from hub.observability.overview.overview import view_line
from hub.observability.overview.reports import UNAPPLIED, ViewReport
from hub.observability.web.page import static_files
from hub.record import Positions
from hub.topics.tree.tree import Slo, TopicSpec

NOW = 10_000_000
RULES = LagRules()
ALIVE = ReaderState(members=2)
NOBODY = ReaderState(members=0)


def reading(records: int, waited_s: float, ago_s: int = 0, **more: Any) -> LagReading:
    """Return a reading taken ``ago_s`` before now, with an error bound of half a second."""
    facts = {"position": 1_000, "end": 1_000 + records, "records": records}
    return LagReading(NOW - ago_s * 1000, **{**facts, "low_s": waited_s, "high_s": waited_s + 1, **more})


def series(*points: tuple[int, float]) -> list[LagReading]:
    """Readings ten seconds apart, the last one now: (records that wait, seconds waited)."""
    last = len(points) - 1
    return [reading(records, waited, 10 * (last - at)) for at, (records, waited) in enumerate(points)]


SHRINKS = series(*((1_000 - 50 * at, 60.0) for at in range(12)))
GROWS = series(*((1_000, 20.0 + 10 * at) for at in range(12)))
STANDS = [reading(9, 300, idle_s=300.0)]
WAITS = [reading(9, 30)]
COMMITS = ReaderState(committed_at_ms=NOW - 2_000)

CASES: list[tuple[str, list[LagReading], ReaderState, LagState, str]] = [
    # what is wrong or right, readings, reader, state, words of the cause
    ("everything is read", [reading(0, 0)], ALIVE, LagState.OK, "everything is read"),
    ("everything is read by nobody", [reading(0, 0)], NOBODY, LagState.OK, "everything is read"),
    ("younger than the objective", [reading(4, 3)], ALIVE, LagState.OK, "within 10 s"),
    ("exactly the objective", [reading(4, 9)], ALIVE, LagState.OK, "within 10 s"),
    ("perhaps older than the objective", [reading(4, 9.5)], ALIVE, LagState.BEHIND, ""),
    ("no upper bound", [reading(4, 3, high_s=None)], ALIVE, LagState.BEHIND, "measured once"),
    ("late, once", WAITS, ALIVE, LagState.BEHIND, "measured once"),
    ("late and fewer wait", SHRINKS, ALIVE, LagState.CATCHING_UP, "records/s"),
    ("late and ever later", GROWS, ALIVE, LagState.FALLING_BEHIND, "records/s"),
    ("late and neither", series(*[(50, 20.0)] * 12), ALIVE, LagState.BEHIND, "records/s"),
    ("stands, and nobody is there", STANDS, NOBODY, LagState.STOPPED, "no member is connected"),
    ("stands, and members are there", STANDS, ALIVE, LagState.STALLED, "2 members are connected"),
    ("stands, and batches are committed", STANDS, COMMITS, LagState.STALLED, "batches are committed"),
    ("not applied", STANDS, replace(COMMITS, why_stuck=UNAPPLIED), LagState.STALLED, "the applier"),
    ("not applied, and no batch since", STANDS, replace(COMMITS, committed_at_ms=NOW - 90_000,
    why_stuck=UNAPPLIED), LagState.STALLED, "the applier"),
    ("no batch for long", STANDS, ReaderState(committed_at_ms=NOW - 90_000), LagState.STOPPED, "no batch"),
    ("stands for less than a minute", [reading(9, 59, idle_s=59.0)], NOBODY, LagState.BEHIND, ""),
    ("between checkpoints", [reading(1, 50, idle_s=50.0)], ReaderState(interval_s=60.0), LagState.OK, "70 s"),
    ("a checkpoint is missing", [reading(1, 130, idle_s=130.0)], ReaderState(interval_s=60.0),
    LagState.STOPPED, ""),
    ("it reports a failure", [reading(0, 0)], ReaderState("failed", "no topic"), LagState.STOPPED,
    "no topic"),
    ("it reports a retry", WAITS, ReaderState("retrying", "Kafka"), LagState.STALLED, "retrying: Kafka"),
    ("it reports nothing", WAITS, ReaderState(silent="not heard for 40 s"), LagState.UNKNOWN, "not heard"),
    ("it reports nothing, all read", [reading(0, 0)], ReaderState(silent="not heard"), LagState.UNKNOWN, ""),
    ("went back", [reading(9, 3, rewound=5)], ALIVE, LagState.REWOUND, "5 records are read again"),
    ("deleted unread", [reading(9, 3, lost=5)], ALIVE, LagState.LOST, "5 records were deleted"),
    ("nearly deleted by age", [reading(9, 900, retention_s=1_000.0)], ALIVE, LagState.AT_RISK, "15 min old"),
    ("deleted within the hour", [replace(STANDS[0], retention_s=3_000.0)], NOBODY, LagState.AT_RISK,
    "lost in"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("window", "reader", "state", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_rules(window: list[LagReading], reader: ReaderState, state: LagState, words: str) -> None:
    verdict = judge(window, [], reader, NOW, RULES)
    assert verdict.state is state, verdict
    assert words in verdict.cause


def test_every_state_has_a_case() -> None:
    assert {case[3] for case in CASES} == set(LagState)


def test_every_state_has_a_severity_and_a_level_and_no_unknown_is_ok() -> None:
    assert set(SEVERITY) == set(LEVEL) == set(LagState)
    assert LEVEL[LagState.UNKNOWN] is Level.unknown and SEVERITY[LagState.UNKNOWN] < SEVERITY[LagState.OK]
    levels = [LEVEL[state] for state in sorted(LagState, key=lambda each: SEVERITY[each])]
    assert levels == sorted(levels, key=list(Level).index), "a worse state never has a better color"


# ---- one judgement everywhere

READINGS = {"t": reading(9, 45)}
REPORT = ViewReport("v", "live", sources={"s": "t"}, positions=Positions.of([("t", 0, 1_000)]))


SPEC = TopicSpec("t", "", "", 1, 1, {}, None, None, (), {}, Slo(lag_ms=30_000))


def shown(state: LagState) -> WatchedConsumer:
    """The view as the monitor shows it."""
    verdict = judge(WAITS, [], ALIVE, NOW, RULES)
    return WatchedConsumer(replace(verdict, state=state, cause="as judged"), NOW, tuple(WAITS))


@pytest.mark.parametrize("state", LagState)
def test_the_overview_lag_lineage_and_alerts_show_one_state(state: LagState) -> None:
    watched = shown(state)
    row = row_of(Consumer(ConsumerId("view", "v"), {"t": {0: 1_000}}), "t", watched, "")
    line = view_line(REPORT, READINGS, lambda *_: watched, RULES, NOW, rows=1, subscribers=0)
    (edge,) = lineage_of([line], [row], {}).edges
    assert (row.state, line.sources[0].state, edge.state) == (state, state, state)
    # The reading is late: it shows no cause of an earlier reading that was in time.
    cause = "measured once" if state is LagState.OK else "as judged"
    assert line.lag is not None and line.lag.state == state and cause in line.lag.cause
    known = state is not LagState.UNKNOWN
    assert (row.records is not None, line.lag.records is not None, edge.seconds is not None) == (known,) * 3
    lag, loss = observe_readers([row], {"t": SPEC}, RuleChanges(), measured=True)
    assert lag.observations[0].verdict is (Verdict.BAD if known else Verdict.UNKNOWN)
    losing = state in (LagState.LOST, LagState.AT_RISK)
    assert loss.observations[0].verdict is (
        Verdict.UNKNOWN if not known else Verdict.BAD if losing else Verdict.GOOD
    )


def test_a_cause_belongs_to_the_numbers_beside_it() -> None:
    """The monitor measures every ten seconds, and a state takes several readings to change; the numbers of
    the overview are a second old. Both once showed "everything is read" beside records that waited.
    """
    watched = watch(WatchedConsumer(), reading(0, 0, ago_s=10), ALIVE, NOW - 10_000, RULES)
    assert watched.shown.cause == "everything is read"
    for records, waited_s in ((1, 0.4), (500, 30.0)):
        now = {"t": reading(records, waited_s)}
        line = view_line(REPORT, now, lambda *_: watched, RULES, NOW, rows=1, subscribers=0)
        assert (line.sources[0].state, line.sources[0].records) == (LagState.OK, records)
        assert line.sources[0].cause != "everything is read"
    late = watch(watched, reading(500, 30.0), ALIVE, NOW, RULES)  # once: the state stays for now
    assert late.shown.state is LagState.OK and late.shown.cause == "measured once"
    late = watch(late, reading(500, 30.0), ALIVE, NOW, RULES)
    assert late.shown.state is LagState.BEHIND
    done = watch(late, reading(0, 0), ALIVE, NOW, RULES)
    assert (done.shown.state, done.shown.cause) == (LagState.BEHIND, "everything is read")
    line = view_line(REPORT, {"t": reading(0, 0)}, lambda *_: late, RULES, NOW, rows=1, subscribers=0)
    assert (line.sources[0].state, line.sources[0].cause) == (LagState.BEHIND, "everything is read")


def test_deleted_records_remain_the_cause_while_they_are_shown() -> None:
    lost = watch(WatchedConsumer(), reading(9, 3, lost=5), ALIVE, NOW, RULES)
    after = watch(lost, reading(0, 0), ALIVE, NOW, RULES)
    assert after.shown.state is LagState.LOST and "5 records were deleted" in after.shown.cause


def test_a_view_that_the_monitor_has_not_measured_yet_is_judged_by_the_same_rules() -> None:
    line = view_line(REPORT, READINGS, lambda *_: None, RULES, NOW, rows=1, subscribers=0)
    assert line.sources[0].state is judge([READINGS["t"]], [], REPORT.reader, NOW, RULES).state
    late = LagRules.every(10.0, objective_s=60.0)  # lag_objective_s of hub.yaml
    line = view_line(REPORT, READINGS, lambda *_: None, late, NOW, rows=1, subscribers=0)
    assert line.sources[0].state is LagState.OK


def test_a_view_is_not_ok_while_the_end_of_its_topic_is_unknown() -> None:
    line = view_line(REPORT, {}, lambda *_: shown(LagState.OK), RULES, NOW, rows=1, subscribers=0)
    assert line.sources[0].state is LagState.UNKNOWN and line.sources[0].records is None


def test_a_mirror_in_the_lineage_has_the_state_of_the_lag_page() -> None:
    partition = {"topic": "t", "partition": 0, "state": "live", "reason": "", "lag_records": 9, "lag_s": 45.0}
    partition |= {"seen_s": 1.0, "worker": "w"}
    status = {"mirror": "m", "source": "far", "target": "here", "state": "live", "partitions": [partition]}
    mirrored = MirrorStatuses([status], frozenset({"here"}), {}, NOW)
    row = row_of(Consumer(ConsumerId("mirror", "m"), {"t": {0: 1_000}}), "t", shown(LagState.STALLED), "")
    (judged,) = [each.state for each in lineage_of([], [row], {}, mirrored, NOW).edges if not each.write]
    (alone,) = [each.state for each in lineage_of([], [], {}, mirrored, NOW).edges if not each.write]
    assert (judged, alone) == ("STALLED", "BEHIND")


def test_dots_pills_and_arrows_have_the_color_of_the_level() -> None:
    css = "".join(static_files()[name][0].read_text() for name in ("hub.css", "pages.css"))
    wanted = {Level.bad: "--bad", Level.warn: "--warn"}
    for selector in (r"\.pill", r"\.state", r"\.graph \.edge"):
        found: dict[str, set[str]] = {}
        for states, body in re.findall(selector + r":is\(([^)]*)\)[^{]*\{([^}]*)\}", css):
            for name in re.findall(r'data-state="([A-Z_]+)"', states):
                if name in LagState.__members__:
                    found.setdefault(name, set()).update(re.findall(r"var\((--bad|--warn|--ok)\)", body))
        expected = {state.value: {wanted[LEVEL[state]]} for state in LagState if LEVEL[state] in wanted}
        assert found == expected, selector


def test_the_table_of_the_documentation_has_every_state_in_the_order_of_the_rules() -> None:
    from house_report import ROOT

    text = (ROOT / "docs/reference/lag.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE) == [state.value for state in LagState]


def test_a_lag_row_keeps_the_json_names() -> None:
    assert {"state", "cause", "since_ms", "seconds", "error_s"} <= set(LagRow.__dataclass_fields__)


def test_the_lag_of_a_view_that_is_unknown_is_unknown_before_the_monitor_measures_again() -> None:
    report = replace(REPORT, state="unknown", reason="not heard for 40 s")
    line = view_line(report, READINGS, lambda *_: shown(LagState.OK), RULES, NOW, rows=1, subscribers=0)
    assert line.sources[0].records is None
    assert line.lag is not None and (line.lag.state, line.lag.cause) == (
        LagState.UNKNOWN,
        "not heard for 40 s",
    )


def test_rules_follow_the_interval_of_the_readings() -> None:
    rules = LagRules.every(10.0, objective_s=5.0)
    assert (rules.sample_s, rules.objective_s, rules.stop_s) == (10.0, 5.0, 60.0)
