"""Alert state machine: pending, firing, resolved; groups, silences; properties over generated histories."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hub.alerts.model.alert_state import (
    KEPT_EVERY_MS,
    LONGEST_GAP_MS,
    AlertingState,
    Notification,
    NotificationRoute,
    Silence,
)
from hub.alerts.model.grouping import route_of
from hub.alerts.model.matching import Labels, fits, labels_of, matchers_of
from hub.alerts.model.records import StoredAlerts, records_of, send_record, sent_record
from hub.alerts.model.rules import GONE_MS, AlertRule, Observation, RuleObservations, Verdict
from hub.alerts.model.state_machine import MOST_ALERTS, step
from hub.record import NewRecord, Record

S = 1_000
RULE = AlertRule("lag", "slo", "late", "warning", for_ms=60 * S, keep_ms=30 * S, runbook="lag")
AT_ONCE = replace(RULE, for_ms=0, keep_ms=0)
EVERYWHERE = NotificationRoute((), ("ops",), wait_ms=0, repeat_ms=3_600 * S)
BAD, GOOD, UNKNOWN = Verdict.BAD, Verdict.GOOD, Verdict.UNKNOWN


def about(name: str) -> Labels:
    return labels_of({"consumer": name, "topic": "shop.orders"})


def seen(
    rule: AlertRule, absent: Verdict = UNKNOWN, whole: bool = True, **verdicts: Verdict
) -> RuleObservations:
    labels = labels_of({"owner": "shop-team", "node": "shop"})
    found = [Observation(about(n), v, f"{n} is late", 41.0, labels) for n, v in verdicts.items()]
    return RuleObservations(rule, tuple(found), absent, whole)


class World:
    """Successive steps, with the notifications so far."""

    def __init__(self, *routes: NotificationRoute) -> None:
        self.state, self.now, self.routes = AlertingState(), 1_000_000, routes or (EVERYWHERE,)
        self.notified: list[Notification] = []

    def at(self, seconds: float, *those: RuleObservations) -> tuple[Notification, ...]:
        self.now = 1_000_000 + int(seconds * S)
        self.state, new = step(self.state, those, self.routes, self.now)
        self.notified += new
        return new

    @property
    def phases(self) -> dict[str, str]:
        return {dict(each.object)["consumer"]: each.phase for each in self.state.alerts.values()}


def states(notification: Notification) -> list[tuple[str, str]]:
    return [(dict(each.object)["consumer"], each.phase) for each in notification.alerts]


def test_it_is_pending_until_it_was_broken_for_long_enough_and_over_when_it_was_well_for_long_enough() -> (
    None
):
    world = World()
    assert not world.at(0, seen(RULE, billing=BAD))
    assert world.phases == {"billing": "pending"}
    assert not world.at(59, seen(RULE, billing=BAD))
    (one,) = world.at(60, seen(RULE, billing=BAD))
    assert (one.channel, states(one), one.firing) == ("ops", [("billing", "firing")], True)
    assert dict(one.alerts[0].labels) == {
        "alertname": "lag",
        "consumer": "billing",
        "node": "shop",
        "owner": "shop-team",
        "severity": "warning",
        "topic": "shop.orders",
    }
    assert not world.at(70, seen(RULE, billing=GOOD))
    assert world.phases == {"billing": "firing"}
    assert not world.at(99, seen(RULE, billing=GOOD))
    (two,) = world.at(100, seen(RULE, billing=GOOD))
    assert (states(two), two.firing) == ([("billing", "resolved")], False)
    assert world.phases == {} and len(world.state.past) == 1
    assert not world.at(200, seen(RULE, billing=GOOD))


def test_what_gets_well_while_it_is_pending_was_nothing() -> None:
    world = World()
    world.at(0, seen(RULE, billing=BAD))
    world.at(50, seen(RULE, billing=GOOD))
    world.at(60, seen(RULE, billing=BAD))
    assert not world.at(110, seen(RULE, billing=BAD))
    assert world.at(120, seen(RULE, billing=BAD))


def test_unknown_counts_for_nothing() -> None:
    world = World()
    world.at(0, seen(RULE, billing=UNKNOWN))
    assert world.phases == {}
    world.at(10, seen(RULE, billing=BAD))
    for second in range(20, 4_000, 100):
        assert not world.at(second, seen(RULE, billing=UNKNOWN))
    assert not world.at(4_010, seen(RULE, billing=BAD)), "the time of not knowing is not that of being late"
    assert world.at(4_070, seen(RULE, billing=BAD))
    for second in range(4_100, 7_000, 100):
        assert not world.at(second, seen(RULE, billing=UNKNOWN))
    assert world.phases == {"billing": "firing"}


def test_a_group_waits_for_more_and_is_told_as_one() -> None:
    world = World(replace(EVERYWHERE, wait_ms=30 * S))
    assert not world.at(0, seen(AT_ONCE, a=BAD))
    assert not world.at(10, seen(AT_ONCE, a=BAD, b=BAD))
    (one,) = world.at(30, seen(AT_ONCE, a=BAD, b=BAD))
    assert sorted(states(one)) == [("a", "firing"), ("b", "firing")]
    assert not world.at(40, seen(AT_ONCE, a=BAD, b=BAD, c=BAD))
    (two,) = world.at(70, seen(AT_ONCE, a=BAD, b=GOOD, c=BAD))
    assert sorted(states(two)) == [("a", "firing"), ("b", "resolved"), ("c", "firing")]
    assert one.id != two.id and one.group == two.group


def test_what_is_over_before_anybody_was_told_is_never_told() -> None:
    world = World(replace(EVERYWHERE, wait_ms=30 * S))
    world.at(0, seen(AT_ONCE, a=BAD))
    world.at(10, seen(AT_ONCE, a=GOOD))
    assert not world.at(60, seen(AT_ONCE, a=GOOD))
    assert world.state.groups == {}


def test_it_is_repeated_while_it_fires() -> None:
    world = World()
    assert world.at(0, seen(AT_ONCE, a=BAD))
    assert not world.at(3_599, seen(AT_ONCE, a=BAD))
    assert world.at(3_600, seen(AT_ONCE, a=BAD))
    assert not world.at(3_700, seen(AT_ONCE, a=BAD))


def test_groups_are_by_labels_and_routes_by_matchers() -> None:
    pages = NotificationRoute(matchers_of({"severity": "page"}), ("pager",), goes_on=True, wait_ms=0)
    shop = NotificationRoute(matchers_of({"topic": "shop.**"}), ("shop", "mail"), by=("consumer",), wait_ms=0)
    rest = NotificationRoute((), ("rest",), wait_ms=0)
    world = World(pages, shop, rest)
    told = world.at(0, seen(replace(AT_ONCE, severity="page"), a=BAD, b=BAD))
    assert Counter(each.channel for each in told) == {"pager": 1, "shop": 2, "mail": 2}
    assert len({each.id for each in told}) == 5
    assert [r.channels for r in route_of((pages, shop, rest), labels_of({"topic": "crm.x"}))] == [("rest",)]


def test_patterns_of_the_tree_and_of_names() -> None:
    labels = labels_of({"topic": "shop.orders", "owner": "shop-team", "severity": "page"})
    assert fits(matchers_of({"topic": "shop.*", "owner": "shop-*"}), labels)
    assert fits(matchers_of({"severity": ["warning", "page"]}), labels)
    assert not fits(matchers_of({"topic": "shop"}), labels)
    assert not fits(matchers_of({"view": "*"}), labels), "a label that is not there fits nothing"
    assert fits(matchers_of({"owner": "[x]*"}), labels_of({"owner": "[x]y"}))


def test_silenced_is_told_to_nobody_and_told_when_the_silence_ends() -> None:
    world = World()
    quiet = Silence("s1", matchers_of({"topic": "shop.**"}), "deploy", "ada", 1_000_000, 1_000_000 + 100 * S)
    world.state = replace(world.state, silences={"s1": quiet})
    assert not world.at(0, seen(AT_ONCE, a=BAD))
    assert world.phases == {"a": "firing"}
    assert not world.at(99, seen(AT_ONCE, a=BAD))
    assert world.at(100, seen(AT_ONCE, a=BAD))


def test_who_heard_of_it_hears_that_it_is_over_even_when_it_was_silenced_since() -> None:
    world = World()
    assert world.at(0, seen(AT_ONCE, a=BAD))
    quiet = Silence("s1", matchers_of({"consumer": "a"}), "known", "ada", 0, 10_000_000)
    world.state = replace(world.state, silences={"s1": quiet})
    assert not world.at(10, seen(AT_ONCE, a=BAD))
    assert not world.at(3_700, seen(AT_ONCE, a=BAD)), "no repeat while it is silenced"
    (over,) = world.at(3_710, seen(AT_ONCE, a=GOOD))
    assert states(over) == [("a", "resolved")]


def test_news_of_others_make_nobody_forget_what_was_told_and_is_silenced() -> None:
    world = World()
    assert world.at(0, seen(AT_ONCE, a=BAD))
    quiet = Silence("s1", matchers_of({"consumer": "a"}), "known", "ada", 0, 10_000_000)
    world.state = replace(world.state, silences={"s1": quiet})
    (news,) = world.at(10, seen(AT_ONCE, a=BAD, b=BAD))
    assert states(news) == [("b", "firing")]
    world.state = replace(world.state, silences={})
    assert not world.at(20, seen(AT_ONCE, a=BAD, b=BAD)), "people know of a"
    (over,) = world.at(30, seen(AT_ONCE, a=GOOD, b=BAD))
    assert sorted(states(over)) == [("a", "resolved"), ("b", "firing")]


def test_what_is_gone_is_over_after_a_while_and_only_when_everything_was_looked_at() -> None:
    world = World()
    world.at(0, seen(AT_ONCE, a=BAD))
    for minute in range(1, 60):
        assert not world.at(60 * minute, seen(AT_ONCE, whole=False))
    assert world.phases == {"a": "firing"}
    ends = [m for m in range(60, 90) if any(not n.firing for n in world.at(60 * m, seen(AT_ONCE)))]
    assert ends == [59 + GONE_MS // 60_000]
    assert next(iter(world.state.past.values())).ended == "it is not there any more"


def test_a_row_that_a_query_has_no_more_is_well() -> None:
    world = World()
    world.at(0, seen(AT_ONCE, a=BAD, b=BAD))
    (over,) = world.at(5, seen(AT_ONCE, absent=GOOD, b=BAD))
    assert ("a", "resolved") in states(over) and ("b", "firing") in states(over)


def test_a_rule_that_is_off_or_gone_ends_its_alerts() -> None:
    world = World()
    world.at(0, seen(AT_ONCE, a=BAD))
    (off,) = world.at(5, seen(replace(AT_ONCE, on=False), a=BAD))
    assert off.alerts[0].ended == "the rule is off"
    world.at(10, seen(AT_ONCE, a=BAD))
    (gone,) = world.at(15)
    assert gone.alerts[0].ended == "the rule no longer exists"


def test_there_is_a_most_and_what_is_left_out_is_counted() -> None:
    world = World(replace(EVERYWHERE, channels=("ops",)))
    many = [Observation(labels_of({"row": str(n)}), BAD) for n in range(MOST_ALERTS + 7)]
    (one,) = world.at(0, RuleObservations(AT_ONCE, tuple(many)))
    assert (len(world.state.alerts), world.state.left_out) == (MOST_ALERTS, 7)
    assert len(one.alerts) == 100 and one.left_out == MOST_ALERTS - 100


def test_a_route_that_changes_place_repeats_nothing() -> None:
    other = NotificationRoute(matchers_of({"severity": "page"}), ("pager",), wait_ms=0)
    world = World(EVERYWHERE)
    assert world.at(0, seen(AT_ONCE, a=BAD))
    world.routes = (other, EVERYWHERE)
    assert not world.at(5, seen(AT_ONCE, a=BAD))


# ---- properties

VERDICTS = st.sampled_from([BAD, GOOD, UNKNOWN])
ROUND = st.fixed_dictionaries(dict.fromkeys("abc", VERDICTS))
HISTORY = st.lists(st.tuples(st.integers(1, 90), ROUND), max_size=40)


def fold(kept: StoredAlerts, records: list[NewRecord], at: int) -> int:
    for record in records:
        kept.apply(Record(record.topic, 0, at, 0, record.key, record.value, ()))
        at += 1
    return at


@given(HISTORY)
def test_unknown_changes_no_phase(history: list[tuple[int, dict[str, Verdict]]]) -> None:
    world, second = World(), 0
    for pause, verdicts in history:
        second += pause
        before = world.phases
        world.at(second, seen(RULE, **verdicts))
        for name, verdict in verdicts.items():
            if verdict is UNKNOWN:
                assert world.phases.get(name) == before.get(name)
            if world.phases.get(name) == "firing" and before.get(name) != "firing":
                assert verdict is BAD


@given(HISTORY, st.integers(0, 60))
def test_each_firing_is_told_once_and_its_end_once(
    history: list[tuple[int, dict[str, Verdict]]], wait: int
) -> None:
    """Each firing is new in exactly one notification; its end is notified once, and only afterward."""
    world, second = World(replace(EVERYWHERE, wait_ms=wait * S, repeat_ms=10**12)), 0
    for pause, verdicts in history:
        second += pause
        world.at(second, seen(RULE, **verdicts))
    world.at(second + 10_000, seen(RULE, a=UNKNOWN, b=UNKNOWN, c=UNKNOWN))
    heard: set[tuple[str, int]] = set()
    over: Counter[tuple[str, int]] = Counter()
    for each in world.notified:
        new = {alert.once for alert in each.alerts if alert.firing} - heard
        ended = [alert.once for alert in each.alerts if not alert.firing]
        assert new or ended, "a notification says something new"
        over.update(ended)
        assert set(ended) <= heard
        heard |= new
    assert all(count == 1 for count in over.values())
    firing = {alert.once for alert in world.state.firing}
    assert firing <= heard
    assert heard - firing == over.keys()


@given(HISTORY, st.integers(0, 40), st.integers(0, 60))
def test_a_restart_neither_repeats_nor_forgets(
    history: list[tuple[int, dict[str, Verdict]]], crash: int, wait: int
) -> None:
    """With any restarts, each firing is notified once, as without a restart, and its end once."""
    route = replace(EVERYWHERE, wait_ms=wait * S, repeat_ms=10**12)
    world, second, kept, at = World(route), 0, StoredAlerts(), 0
    for number, (pause, verdicts) in enumerate(history):
        second += pause
        before = world.state
        told = world.at(second, seen(AT_ONCE, **verdicts))
        at = fold(kept, [*records_of(before, world.state), *map(send_record, told)], at)
        assert [each.id for each in kept.unsent.values()] == [each.id for each in told]
        assert list(kept.unsent.values()) == [
            replace(each, alerts=tuple(replace(a, last=UNKNOWN, held_ms=0) for a in each.alerts))
            for each in told
        ]
        at = fold(kept, [sent_record(each.id) for each in told], at)
        if number == crash:
            world.state = kept.state
    world.at(second + 10_000, seen(AT_ONCE, a=UNKNOWN, b=UNKNOWN, c=UNKNOWN))
    world.at(second + 20_000, seen(AT_ONCE, a=UNKNOWN, b=UNKNOWN, c=UNKNOWN))
    news: Counter[tuple[str, int]] = Counter()
    over: Counter[tuple[str, int]] = Counter()
    heard: set[tuple[str, int]] = set()
    for each in world.notified:
        fresh = {alert.once for alert in each.alerts if alert.firing} - heard
        news.update(fresh)
        heard |= fresh
        over.update(alert.once for alert in each.alerts if not alert.firing)
        assert fresh or any(not alert.firing for alert in each.alerts), "nothing is told twice"
    assert all(count == 1 for count in over.values())
    assert {alert.once for alert in world.state.firing} <= heard
    assert over.keys() == heard - {alert.once for alert in world.state.firing}


def restarted(world: World) -> World:
    """Return the world after a restart from its stored state."""
    kept = StoredAlerts()
    fold(kept, records_of(AlertingState(), world.state), 0)
    after = World(*world.routes)
    after.state = kept.state
    return after


def test_a_pending_alert_goes_on_after_a_restart_and_the_gap_is_not_counted() -> None:
    world = World()
    for second in (0, 20, 40):
        assert not world.at(second, seen(RULE, a=BAD))
    world = restarted(world)
    assert world.phases == {"a": "pending"}
    # What a starting server does not know yet neither ends nor adds alerts.
    assert not world.at(200, seen(RULE, whole=False))
    assert not world.at(210, seen(RULE, a=UNKNOWN))
    assert not world.at(220, seen(RULE, a=BAD))
    assert not world.at(239, seen(RULE, a=BAD))
    assert world.at(240, seen(RULE, a=BAD))
    (fired,) = world.state.firing
    assert fired.since_ms == 1_000_000


def test_a_pending_alert_that_was_well_when_the_server_was_back_is_none() -> None:
    world = World()
    for second in (0, 40):
        world.at(second, seen(RULE, a=BAD))
    world = restarted(world)
    world.at(50, seen(RULE, a=GOOD))
    assert world.phases == {}


def test_after_a_long_gap_a_pending_alert_begins_anew() -> None:
    world = World()
    for second in (0, 40):
        world.at(second, seen(RULE, a=BAD))
    world = restarted(world)
    late = 41 + LONGEST_GAP_MS // S
    assert not world.at(late, seen(RULE, a=BAD))
    assert not world.at(late + 59, seen(RULE, a=BAD))
    assert world.at(late + 60, seen(RULE, a=BAD))


def test_what_was_unknown_before_the_restart_held_nothing() -> None:
    world = World()
    for second, verdict in ((0, BAD), (50, BAD), (55, UNKNOWN)):
        world.at(second, seen(RULE, a=verdict))
    world = restarted(world)
    for second in (60, 100, 119):
        assert not world.at(second, seen(RULE, a=BAD))
    assert world.at(120, seen(RULE, a=BAD))


def test_an_object_that_is_gone_while_the_server_was_is_over_some_time() -> None:
    world = World()
    for second in (0, 40):
        world.at(second, seen(RULE, a=BAD))
    world = restarted(world)
    for minute in range(1, 32):
        world.at(40 + minute * 60, seen(RULE))
    assert world.phases == {}


def test_few_records_are_written_of_what_is_pending() -> None:
    world, written = World(), 0
    for second in range(60):
        before = world.state
        world.at(second, seen(RULE, a=BAD))
        written += len(records_of(before, world.state))
    assert written == 4
    before = world.state
    world.at(60, seen(RULE, a=BAD))
    keys = [(record.key or b"").partition(b"|")[0] for record in records_of(before, world.state)]
    assert sorted(keys) == [b"firing", b"group", b"pending"]


@given(HISTORY)
def test_the_fold_of_the_records_is_the_state(history: list[tuple[int, dict[str, Verdict]]]) -> None:
    world, second, kept, at = World(), 0, StoredAlerts(), 0
    world.state = replace(world.state, silences={})
    for number, (pause, verdicts) in enumerate(history):
        second += pause
        before = world.state
        if number == 3:
            silence = Silence("s", matchers_of({"topic": "shop.**"}), "why", "ada", 0, 2_000_000)
            world.state = replace(world.state, silences={"s": silence})
        world.at(second, seen(RULE, **verdicts))
        at = fold(kept, records_of(before, world.state), at)
        found = kept.state
        assert {key: (each.once, each.phase) for key, each in found.alerts.items()} == {
            key: (each.once, each.phase) for key, each in world.state.alerts.items()
        }
        for key, each in found.alerts.items():
            lost_ms = world.state.alerts[key].held_ms - each.held_ms
            if each.phase == "pending":
                assert 0 <= lost_ms < KEPT_EVERY_MS
        assert found.past.keys() == world.state.past.keys()
        assert found.silences == world.state.silences
        assert {key: (g.notified, g.notified_ms) for key, g in found.groups.items()} == {
            key: (g.notified, g.notified_ms) for key, g in world.state.groups.items() if g.notified
        }


def test_a_clock_that_was_set_back_holds_back_no_notification() -> None:
    world = World(replace(EVERYWHERE, wait_ms=30 * S, repeat_ms=600 * S))
    broken = seen(AT_ONCE, a=BAD)
    assert world.at(7_200, broken) == ()
    assert world.at(0, broken) == ()  # two hours earlier
    assert len(world.at(30, broken)) == 1
    assert world.at(-7_200, broken) == ()
    assert len(world.at(-6_600, broken)) == 1  # repeated
