"""Decisions of the engine, each a pure function of a state and an event."""

from __future__ import annotations

import pytest

from hub.errors import Conflict, HubError
from hub.kafka.protocol.broker_client import (
    UNKNOWN_TOPIC,
    BrokerBusy,
    BrokerRefused,
    ConnectionLost,
    EpochEnd,
)
from hub.kafka.protocol.record_batch import CorruptBatch
from hub.log import WriterFenced
from hub.record import TopicPartition
from hub.replication.clusters.status_records import CarriedTopic
from hub.replication.engine.atomic_release import (
    NONE,
    HoldLimits,
    HoldState,
    LookAhead,
    LookedAhead,
    PiecesStaged,
    Release,
    ReleaseState,
    next_hold,
)
from hub.replication.engine.cursor import (
    AnswerRead,
    AskRange,
    CompareEpochs,
    DeclareGap,
    EpochCompared,
    FetchFailed,
    LeaderKnown,
    LookBack,
    LookedBack,
    RangeKnown,
    Refresh,
    SourceCursor,
    Stop,
    TopicKnown,
    next_cursor,
)
from hub.replication.engine.recovery import (
    Abort,
    Carried,
    Carry,
    ClearFailures,
    Closed,
    EnginePhase,
    Failed,
    Pause,
    RaiseFenced,
    RetryAsked,
    SourceRetries,
    Start,
    StartAsked,
    Started,
    StepAsked,
    StepBack,
    next_phase,
)
from hub.replication.engine.resume import Resumed, decide_fresh, decide_resume, decide_target
from hub.replication.engine.shard_start import SeedFacts, needs_seed, seed
from hub.replication.engine.shard_state import EngineSettings, NotYet
from hub.replication.engine.target_transaction import OpenTransaction
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.shards import Shard
from hub.replication.rewriting.filter_history import AS_THEY_ARE, FilterVersion
from hub.replication.rewriting.record_filter import RecordRules

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
AT_10 = SourceCursor(A, position=10, position_epoch=3, verified_epoch=3)


def stopped(actions: tuple[object, ...]) -> str:
    (action,) = actions
    assert isinstance(action, Stop)
    return action.error.code


# ---- the cursor


def test_a_leader_of_a_known_epoch_is_fetched_from_and_another_is_compared_first() -> None:
    assert next_cursor(AT_10, LeaderKnown(3)) == (AT_10, ())
    assert next_cursor(AT_10, LeaderKnown(4)) == (AT_10, (CompareEpochs(),))
    fresh = SourceCursor(A)
    cursor, actions = next_cursor(fresh, LeaderKnown(4))
    assert (cursor.verified_epoch, actions) == (4, ())


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (EpochEnd(3, 10), "ours"),
        (EpochEnd(3, 12), "ours"),
        (EpochEnd(3, 9), "lost"),
        (EpochEnd(2, 9), "lost"),
        (EpochEnd(-1, -1), "lost"),
        (EpochEnd(2, 10), "look"),
    ],
)
def test_the_end_of_our_epoch_in_the_new_leaders_log_decides(end: EpochEnd, expected: str) -> None:
    cursor, actions = next_cursor(AT_10, EpochCompared(4, end))
    if expected == "ours":
        assert (cursor.verified_epoch, actions) == (4, ())
    elif expected == "look":
        assert (cursor, actions) == (AT_10, (LookBack(end),))
    else:
        assert stopped(actions) == "HUB-3606" and cursor == AT_10


def test_a_leader_that_does_not_answer_is_asked_later_and_one_that_refuses_stops_the_partition() -> None:
    for nothing in (None, BrokerBusy("moved")):
        assert next_cursor(AT_10, EpochCompared(4, nothing)) == (AT_10, (Refresh(),))
    assert next_cursor(AT_10, EpochCompared(4, refused := BrokerRefused("no")))[1] == (Stop(refused),)


@pytest.mark.parametrize(
    ("base_offset", "epoch", "removed", "ours"),
    [(9, 3, False, True), (9, 2, False, False), (10, 9, False, True), (-1, -1, True, True)],
)
def test_the_batch_before_the_position_decides_if_there_is_one(
    base_offset: int, epoch: int, removed: bool, ours: bool
) -> None:
    looked = LookedBack(4, EpochEnd(2, 10), base_offset, epoch, removed)
    cursor, actions = next_cursor(AT_10, looked)
    assert (cursor.verified_epoch == 4, actions == ()) == (ours, ours)
    assert ours or stopped(actions) == "HUB-3606"


def test_an_answer_moves_the_cursor_and_never_back() -> None:
    cursor, actions = next_cursor(AT_10, AnswerRead(15, 4))
    assert (cursor.position, cursor.position_epoch, actions) == (15, 4, ())
    assert next_cursor(AT_10, AnswerRead(10, 4)) == (AT_10, ())


def test_a_damaged_batch_is_read_a_second_time_before_it_stops_the_partition() -> None:
    damage = CorruptBatch("offset 10: the batch's checksum is wrong")
    before, actions = next_cursor(AT_10, AnswerRead(10, 3, damage, empty=True))
    assert (before.corrupt_at, actions) == (10, ())
    assert stopped(next_cursor(before, AnswerRead(10, 3, damage, empty=True))[1]) == "HUB-3610"
    # What stands before it is carried first.
    assert next_cursor(before, AnswerRead(12, 3, damage, empty=False))[1] == ()


@pytest.mark.parametrize(
    ("code", "action"), [(1, AskRange()), (6, Refresh()), (100, Refresh()), (3, Refresh())]
)
def test_an_error_code_of_a_fetch_says_what_to_ask(code: int, action: object) -> None:
    assert next_cursor(AT_10, FetchFailed(code)) == (AT_10, (action,))


def test_a_refusal_of_a_fetch_stops_the_partition() -> None:
    assert stopped(next_cursor(AT_10, FetchFailed(29))[1]) == "HUB-1620"


def test_deleted_offsets_are_a_gap_or_stop_the_partition_and_a_shorter_log_always_does() -> None:
    assert next_cursor(AT_10, RangeKnown(10, 10, "stop")) == (AT_10, ())
    cursor, actions = next_cursor(AT_10, RangeKnown(12, 20, "continue"))
    assert (cursor.position, cursor.position_epoch, actions) == (12, -1, (DeclareGap(10, 12),))
    assert stopped(next_cursor(AT_10, RangeKnown(12, 20, "stop"))[1]) == "HUB-3605"
    for rule in ("stop", "continue"):
        assert stopped(next_cursor(AT_10, RangeKnown(0, 9, rule))[1]) == "HUB-3606"  # type: ignore[arg-type]


def test_a_topic_that_is_gone_or_another_stops_the_partition() -> None:
    gone = BrokerBusy("gone", kafka_code=UNKNOWN_TOPIC)
    assert stopped(next_cursor(AT_10, TopicKnown("x", None, gone))[1]) == "HUB-1611"
    assert stopped(next_cursor(AT_10, TopicKnown("x", "y"))[1]) == "HUB-1612"
    assert next_cursor(AT_10, TopicKnown("x", "x"))[1] == ()
    assert next_cursor(AT_10, TopicKnown("x", None, BrokerBusy("later", kafka_code=5)))[1] == ()


# ---- what follows an error


def test_a_step_starts_first_and_then_carries() -> None:
    state, actions = next_phase(EnginePhase(), StepAsked(1.0))
    assert actions == (Start(), Carry())
    state, actions = next_phase(state, StartAsked())
    assert actions == (StepBack(),)
    state, _ = next_phase(state, Started())
    assert next_phase(state, StepAsked(2.0)) == (state, (Carry(),))


def test_uncertainty_about_the_target_discards_everything_and_waits_longer_each_time() -> None:
    state, now_s, pauses = EnginePhase("running"), 100.0, []
    for _ in range(9):
        state, actions = next_phase(state, Failed(ConnectionLost("x"), now_s))
        assert actions == (Abort(), StepBack())
        _, actions = next_phase(state, StepAsked(now_s))
        assert isinstance(actions[0], Pause) and actions[1:] == (Start(), Carry())
        pauses.append(actions[0].seconds)
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    state, _ = next_phase(next_phase(state, Started())[0], Carried())
    state, _ = next_phase(state, Failed(ConnectionLost("x"), now_s))
    assert state.retry_at_s == now_s + 0.05


def test_a_fenced_engine_never_starts_again() -> None:
    state, actions = next_phase(EnginePhase("running"), Failed(WriterFenced("x"), 0.0))
    assert actions == (StepBack(),)  # the open transaction belongs to nobody: the new owner has ended it
    for event in (RetryAsked(), Closed(), StartAsked(), Started(), Carried()):
        state, _ = next_phase(state, event)
        assert next_phase(state, StepAsked(9.0))[1] == (RaiseFenced(),)


def test_a_person_lets_stopped_partitions_try_again() -> None:
    state, actions = next_phase(EnginePhase("running"), RetryAsked())
    assert (state.phase, actions) == ("stopped", (Abort(), StepBack(), ClearFailures()))


def test_a_broker_of_the_source_is_asked_again_later_and_the_others_at_once() -> None:
    retries = SourceRetries().failed(1, 10.0)
    assert not retries.may_ask(1, 10.04) and retries.may_ask(1, 10.05) and retries.may_ask(2, 10.0)
    assert not retries.failed(1, 10.0).may_ask(1, 10.09)
    assert retries.answered().failed(1, 20.0).may_ask(1, 20.05)


# ---- what may become visible

LIMITS = HoldLimits(seconds=5.0, bytes=100, lag=10)
T = frozenset({(1, 0)})


def waiting(now_s: float = 1.0, live: int = 2, lag: int = 0, size: int = 10) -> PiecesStaged:
    return PiecesStaged(now_s, {A: [NONE, T], B: [NONE]}, live, lag, size)


@pytest.mark.parametrize("event", [waiting(live=1), waiting(lag=11), waiting(size=101)])
def test_nothing_is_held_back_beyond_a_limit(event: PiecesStaged) -> None:
    assert next_hold(HoldState(), event, LIMITS) == (HoldState(), Release({A: 2, B: 1}))


def test_without_transactions_nothing_is_looked_at() -> None:
    event = PiecesStaged(1.0, {A: [NONE, NONE]}, 9, 0, 0)
    assert next_hold(HoldState(0.5), event, LIMITS) == (HoldState(), Release({A: 2}))


def test_half_a_transaction_is_held_back_until_its_time_is_over() -> None:
    state, action = next_hold(HoldState(), waiting(), LIMITS)
    assert (state.held_at_s, action) == (1.0, LookAhead())
    seen = {A: ReleaseState([NONE, T]), B: ReleaseState([NONE], T)}
    looked = LookedAhead(1.1, waiting().staged, seen)
    state, action = next_hold(state, looked, LIMITS)
    assert (state, action) == (HoldState(1.0, 1.1), Release({A: 1, B: 1}))
    # Looked a moment ago: nothing of a transaction is released, and the source is not asked again.
    assert next_hold(state, waiting(1.11), LIMITS) == (state, Release({A: 1, B: 1}))
    assert next_hold(state, waiting(6.0), LIMITS)[1] == Release({A: 2, B: 1})


def test_a_whole_transaction_is_released_and_a_source_that_does_not_answer_holds_it() -> None:
    state = HoldState(1.0)
    whole = {A: ReleaseState([NONE, T]), B: ReleaseState([NONE])}
    assert next_hold(state, LookedAhead(1.1, waiting().staged, whole), LIMITS) == (
        HoldState(None, 1.1), Release({A: 2, B: 1}),
    )  # fmt: skip
    assert next_hold(state, LookedAhead(1.1, waiting().staged, None), LIMITS)[1] == Release({A: 1, B: 1})


@pytest.mark.parametrize(
    ("records", "size", "now_s", "due"),
    [(1, 1, 1.09, False), (9, 1, 1.0, True), (1, 9, 1.0, True), (1, 1, 1.11, True)],
)
def test_a_transaction_ends_at_the_first_of_its_limits(
    records: int, size: int, now_s: float, due: bool
) -> None:
    settings = EngineSettings(commit_interval_s=0.1, commit_records=9, commit_bytes=9)
    assert OpenTransaction(1.0, set(), records, size).is_due(settings, now_s) == due


# ---- where a partition begins

MARK = Checkpoint("m", 1, "a", 0, "S", 10, 3, 12, "T", source_start=2)
OTHER = FilterVersion(RecordRules("a"))


def test_a_checkpoint_is_gone_on_from_when_it_is_of_these_topics_this_shard_and_these_rules() -> None:
    assert decide_resume(MARK, "S", "T", 1, AS_THEY_ARE, AS_THEY_ARE) == Resumed()
    assert decide_resume(MARK, "S", "", 1, AS_THEY_ARE, AS_THEY_ARE) == Resumed()  # old brokers have no ids
    for found, code in (
        (decide_resume(MARK, "s", "T", 1, AS_THEY_ARE, AS_THEY_ARE), "HUB-1612"),
        (decide_resume(MARK, "S", "t", 1, AS_THEY_ARE, AS_THEY_ARE), "HUB-1612"),
        (decide_resume(MARK, "S", "T", 2, AS_THEY_ARE, AS_THEY_ARE), "HUB-1616"),
        (decide_resume(MARK, "S", "T", 1, OTHER, AS_THEY_ARE), "HUB-1615"),
    ):
        assert isinstance(found, Conflict) and found.code == code


def test_other_rules_are_no_matter_before_the_first_record() -> None:
    nothing = Checkpoint("m", 1, "a", 0, "S", 2, 3, 12, "T", source_start=2)
    assert decide_resume(nothing, "S", "T", 1, OTHER, AS_THEY_ARE) == Resumed(new_rules=True)


def test_a_copy_that_is_not_empty_or_not_whole_is_not_written_to() -> None:
    assert decide_fresh(A, False) is None and (found := decide_fresh(A, True)) and found.code == "HUB-1613"
    assert decide_target(A, 5, 5) is None and (lost := decide_target(A, 5, 4)) and lost.code == "HUB-3607"


def test_no_hint_of_a_stopped_partition_says_to_delete_records() -> None:
    found = [
        decide_resume(MARK, "s", "T", 1, AS_THEY_ARE, AS_THEY_ARE),
        decide_fresh(A, True),
        decide_target(A, 5, 4),
        next_cursor(AT_10, TopicKnown("x", "y"))[1][0].error,  # type: ignore[union-attr]
    ]
    for error in found:
        assert isinstance(error, HubError) and error.hint and "elete" not in error.hint, error


def facts(known: Checkpoint | None, born: int | None = None, end: int = 0) -> SeedFacts:
    return SeedFacts(A, CarriedTopic(1, "new", 2), known, 3, born, 0, end, "T")


def test_a_topic_that_was_made_again_begins_behind_its_former_copy_with_a_gap() -> None:
    assert needs_seed(MARK, CarriedTopic(1, "new", 2), elsewhere=False)
    assert not needs_seed(MARK, CarriedTopic(1, "S", 2), elsewhere=True)
    assert not needs_seed(MARK, CarriedTopic(1, "new", 0), elsewhere=True)
    gap, mark = seed(facts(MARK, end=20), Shard("m", 1), 0, 0)
    assert gap.key is not None and gap.key.startswith(b"gap|m|a|S|")
    assert b'"target_next":12' in (mark.value or b"") and b'"source_next":3' in (mark.value or b"")


def test_records_at_the_target_that_nobody_knows_are_not_written_behind() -> None:
    with pytest.raises(NotYet):
        seed(facts(None, end=5), Shard("m", 1), 0, 0)
    (mark,) = seed(facts(None, born=7, end=5), Shard("m", 1), 0, 0)
    assert b'"source_next":7' in (mark.value or b"")
    assert not needs_seed(None, CarriedTopic(1, "new", 2), elsewhere=False)
