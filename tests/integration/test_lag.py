"""Every state of a consumer, reached on a real Kafka by what really happens to consumers,
each with its cause."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from kafka_nodes import own_node
from patience import patient
from pipeline import wait_until
from ports import free_ports
from processes import call_hub, run_hub, running_server

from hub.config import Settings
from hub.errors import PeerError
from hub.kafka import KafkaCluster, KafkaWriter
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.judge import LagRules
from hub.observability.overview.collector import Collector
from hub.observability.overview.monitor import Monitor
from hub.record import NewRecord, Positions, TopicPartition

SAMPLE_S = 0.5
PATIENCE_S = patient(60.0)


class NoViews:
    """A store without views."""

    def progress(self) -> dict[str, dict[str, object]]:
        return {}

    def row_counts(self) -> dict[str, int]:
        return {}

    def subscribers(self) -> dict[str, int]:
        return {}

    def row(self, view: str, key: str) -> None:
        return None

    def recent_keys(self, view: str, limit: int) -> list[str]:
        return []


@contextmanager
def measuring(cluster: KafkaCluster) -> Iterator[Monitor]:
    """A collector and monitor that know nothing yet, with short pauses."""
    rules = LagRules.every(SAMPLE_S, objective_s=1.0)
    with ExitStack() as opened:
        collector = opened.enter_context(Collector(cluster, NoViews(), poll_s=0.1).running())
        yield opened.enter_context(
            Monitor(cluster, collector, rules, lambda topic: "team-" + topic[:3]).running()
        )


@pytest.fixture(scope="module")
def cluster(kafka: str) -> KafkaCluster:
    return KafkaCluster(kafka, 15.0)


@pytest.fixture(scope="module")
def monitor(cluster: KafkaCluster) -> Iterator[Monitor]:
    with measuring(cluster) as made:
        yield made


class Stage:
    """A topic and a group of the test's own."""

    def __init__(self, cluster: KafkaCluster, monitor: Monitor) -> None:
        self.cluster, self.monitor = cluster, monitor
        self.topic, self.group = f"lag.{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
        self.opened = ExitStack()
        self.writer: KafkaWriter | None = None
        self.appended: list[tuple[float, float]] = []

    def make(self, **config: str) -> None:
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.cluster.create_topic(self.topic, partitions=1, config=named, replication_factor=1)

    def publish(self, count: int, timestamp_ms: int | None = None) -> None:
        if self.writer is None:
            self.writer = self.cluster.writer()
            self.opened.callback(self.writer.close)
        record = NewRecord(self.topic, b"k", b"v" * 10, timestamp_ms=timestamp_ms, partition=0)
        before = time.time()
        self.writer.append([record] * count)
        self.appended += [(before, time.time())] * count

    def commit(self, position: int) -> None:
        wanted = Positions.of([(self.topic, 0, position)])
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(PeerError):  # a coordinator may be just starting
                if self.cluster.group_positions(self.group) == wanted:
                    return
                self.cluster.publish_group(self.group, wanted)
            assert time.monotonic() < deadline

    def consumer(self, **more: object) -> Consumer:
        made = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **more,
            }
        )
        made.subscribe([self.topic])
        self.opened.callback(made.close)
        return made

    def read(self, consumer: Consumer, count: int) -> None:
        """Read and commit the given number of records."""
        deadline = time.monotonic() + PATIENCE_S
        while count > 0:
            assert time.monotonic() < deadline
            messages = consumer.consume(min(count, 500), 0.2)
            count -= len(messages)
            if messages:
                consumer.commit(message=messages[-1], asynchronous=False)

    def background(self, step: Callable[[], object]) -> None:
        """Repeat a step until the test ends."""
        stop = threading.Event()

        def repeat() -> None:
            while not stop.is_set():
                step()

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        self.opened.callback(thread.join, 10)
        self.opened.callback(stop.set)

    def row(self, monitor: Monitor | None = None) -> LagRow | None:
        rows = (monitor or self.monitor).rows()
        return next((row for row in rows if row.name == self.group and row.topic == self.topic), None)

    def until(self, fits: Callable[[LagRow], bool], monitor: Monitor | None = None) -> LagRow:
        deadline = time.monotonic() + PATIENCE_S
        seen: list[object] = []
        while time.monotonic() < deadline:
            row = self.row(monitor)
            if row is not None and fits(row):
                return row
            if row is not None and (not seen or seen[-1] != (row.state, row.cause)):
                seen.append((row.state, row.cause))
            time.sleep(0.02)
        pytest.fail(f"never came; seen: {seen[-12:]}, last: {self.row(monitor)}")

    def until_state(self, state: str) -> LagRow:
        return self.until(lambda row: row.state == state)


@pytest.fixture
def stage(cluster: KafkaCluster, monitor: Monitor) -> Iterator[Stage]:
    made = Stage(cluster, monitor)
    yield made
    made.opened.close()
    if made.topic in cluster.topics():
        cluster.delete_topic(made.topic)


def test_a_reader_at_the_end_is_ok_with_nothing_waiting(stage: Stage) -> None:
    stage.make()
    stage.publish(10)
    consumer = stage.consumer()
    stage.read(consumer, 10)
    row = stage.until_state("OK")
    assert (row.records, row.seconds, row.kind, row.owner) == (0, 0.0, "group", "team-lag")
    assert row.error_s is not None and row.error_s < 5
    assert row.cause == "everything is read"


def test_stopped_when_the_reader_closed(stage: Stage) -> None:
    stage.make()
    stage.publish(10)
    consumer = stage.consumer()
    stage.read(consumer, 10)
    consumer.close()
    stage.publish(7)
    row = stage.until_state("STOPPED")
    assert row.cause.endswith("and no member is connected")
    assert (row.records, row.members, row.position) == (7, 0, 10)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_stalled_when_the_reader_is_there_and_commits_nothing(stage: Stage, protocol: str) -> None:
    stage.make()
    stage.publish(10)
    consumer = stage.consumer(**{"group.protocol": protocol})
    stage.read(consumer, 10)
    stage.background(lambda: consumer.poll(0.1))
    stage.publish(5)
    row = stage.until_state("STALLED")
    assert row.cause.endswith("though 1 member is connected")
    assert (row.records, row.members) == (5, 1)
    (member,) = stage.cluster.group_members([stage.group])[stage.group]
    assert (member.client_id, member.topics) == ("rdkafka", {stage.topic})


def test_rewound_when_the_group_was_reset(stage: Stage) -> None:
    stage.make()
    stage.publish(50)
    stage.commit(50)
    stage.until_state("OK")
    stage.commit(10)
    row = stage.until_state("REWOUND")
    assert row.cause == "went back: 40 records are read again"
    stage.commit(50)
    stage.until_state("OK")


def test_lost_when_records_were_deleted_unread(stage: Stage) -> None:
    stage.make()
    stage.publish(50)
    stage.commit(10)
    stage.until(lambda row: row.records == 40)
    deleted = stage.cluster.admin.delete_records([KafkaTopicPartition(stage.topic, 0, 35)])
    for future in deleted.values():
        future.result(30)
    row = stage.until_state("LOST")
    assert row.cause == "25 records were deleted before they were read"
    assert (row.lost_records, row.records) == (25, 15)
    stage.commit(50)
    stage.until_state("OK")


def test_at_risk_when_retention_will_delete_what_a_stopped_reader_left(stage: Stage) -> None:
    stage.make(retention_ms="600000")
    stage.publish(5)
    stage.commit(2)
    row = stage.until_state("AT_RISK")
    assert "10 min kept, the first records are lost in" in row.cause
    assert row.loss_s is not None and 500 < row.loss_s < 600


def test_falling_behind_when_more_arrives_than_is_read_then_catching_up(stage: Stage) -> None:
    stage.make()
    stage.publish(1)
    consumer = stage.consumer()
    arriving = threading.Event()
    arriving.set()

    def publish() -> None:
        if arriving.is_set():
            stage.publish(20)
        time.sleep(0.05)

    def read() -> None:
        # As many a second as it has leave to: few while others arrive, more afterwards, for long enough to be
        # seen.
        messages = consumer.consume(2 if arriving.is_set() else 15, 0.2)
        if messages:
            consumer.commit(message=messages[-1], asynchronous=False)
        time.sleep(0.2)

    stage.background(read)
    stage.background(publish)
    row = stage.until_state("FALLING_BEHIND")
    assert "records/s arrive" in row.cause
    arriving.clear()
    row = stage.until_state("CATCHING_UP")
    assert row.eta_s is not None and row.eta_s > 0
    assert "are read" in row.cause
    assert len(row.trend) > 2


def test_a_late_reader_that_keeps_pace_is_behind(stage: Stage) -> None:
    stage.make()
    position = 0

    def step() -> None:
        nonlocal position
        stage.publish(5)
        if len(stage.appended) > 60:  # three seconds late, for ever
            position += 5
            stage.commit(position)
        time.sleep(0.2)

    stage.publish(1)
    stage.commit(0)
    stage.background(step)
    row = stage.until(lambda row: row.state == "BEHIND" and "records/s arrive" in row.cause)
    assert row.seconds is not None and row.seconds > 1


def test_a_group_without_commits_is_unknown_not_zero(stage: Stage) -> None:
    stage.make()
    stage.publish(5)
    consumer = stage.consumer()
    stage.background(lambda: consumer.poll(0.1))
    row = stage.until(lambda row: row.cause == "it has committed nothing")
    assert (row.state, row.records, row.seconds, row.error_s) == ("UNKNOWN", None, None, None)


def test_a_topic_made_again_is_another_log(stage: Stage) -> None:
    stage.make()
    stage.publish(5)
    stage.commit(1)
    stage.until(lambda row: row.records == 4 and (row.seconds or 0) > 3)
    stage.cluster.delete_topic(stage.topic)
    stage.writer = None  # a producer that outlives its topic gets errors about duplicates in the new one
    stage.make()
    began = time.time()
    stage.publish(30)  # further than before: the end alone does not show it
    stage.commit(1)
    # The round that finds the new topic may still have the former one's times; the next has not.
    row = stage.until(
        lambda row: row.records == 29 and row.seconds is not None and row.seconds <= time.time() - began + 1
    )
    assert row.state != "REWOUND"


def test_a_position_past_the_end_is_unknown(stage: Stage) -> None:
    stage.make()
    stage.publish(5)
    stage.commit(50)
    row = stage.until(lambda row: "past the topic's end" in row.cause)
    assert (row.state, row.records) == ("UNKNOWN", None)


def test_transaction_markers_and_aborted_records_are_no_lag(stage: Stage) -> None:
    stage.make()
    producer = Producer(
        {"bootstrap.servers": stage.cluster.bootstrap, "transactional.id": f"t-{stage.topic}"}
    )
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(stage.topic, b"v", partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    # 0 1 2, marker 3; aborted 4 5 6, marker 7: the reader's last record is 2, and it commits 3
    stage.commit(3)
    row = stage.until(lambda row: row.records == 0)
    assert row.seconds == 0.0
    stage.until_state("OK")
    producer.begin_transaction()
    producer.produce(stage.topic, b"v", partition=0)
    producer.flush(30)
    producer.commit_transaction(30)
    appended = time.time()
    row = stage.until(lambda row: row.records == 2)  # the record and its marker
    assert row.seconds is not None and row.error_s is not None
    assert row.seconds - row.error_s <= time.time() - appended + 1


def test_what_an_open_transaction_holds_back_is_not_called_read(stage: Stage) -> None:
    stage.make()
    producer = Producer(
        {"bootstrap.servers": stage.cluster.bootstrap, "transactional.id": f"t-{stage.topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(stage.topic, b"v", partition=0)
    producer.flush(30)
    stage.commit(0)
    held = "partition 0: 1 record waits behind a transaction that is open for"
    stage.until(lambda row: row.state == "BEHIND" and row.cause.startswith(held))
    stage.until(lambda row: row.state == "STALLED" and row.cause.startswith(held))
    producer.abort_transaction(30)
    stage.commit(2)
    stage.until(lambda row: row.state == "OK" and row.cause == "everything is read")


@pytest.mark.parametrize("kind", ["LogAppendTime", "CreateTime"])
def test_time_lag_is_within_the_bound_given_also_right_after_a_restart(
    stage: Stage, cluster: KafkaCluster, kind: str
) -> None:
    stage.make(message_timestamp_type=kind)
    for _ in range(20):
        stage.publish(1)
        time.sleep(0.3)
    for position in (0, 7, 19):
        stage.commit(position)

        def right(row: LagRow, position: int = position) -> bool:
            return row.position == position and row.error_s is not None

        with measuring(cluster) as fresh:
            for monitor in (fresh, stage.monitor):
                row = stage.until(right, monitor)
                assert row.seconds is not None and row.error_s is not None and row.measured_at_ms is not None
                before, after = stage.appended[position]
                at = row.measured_at_ms / 1000
                assert row.seconds - row.error_s <= at - before + 0.002
                assert at - after - 0.002 <= row.seconds + row.error_s
                assert row.error_s <= 6


@pytest.mark.parametrize(("age_s", "most_s"), [(90, 4), (7_200, 100), (3 * 86_400, 3_000)])
def test_an_old_backlog_is_known_at_once_by_its_timestamps(
    stage: Stage, cluster: KafkaCluster, age_s: int, most_s: float
) -> None:
    stage.make()
    now = time.time()
    for index in range(20):
        stage.publish(1, int((now - age_s + index * age_s / 40) * 1000))
    stage.commit(4)
    truth = now - age_s + 4 * age_s / 40
    with measuring(cluster) as fresh:
        row = stage.until(lambda row: row.position == 4, fresh)
        rounds = fresh.listed.turn
    assert rounds == 0
    assert row.seconds is not None and row.error_s is not None and row.measured_at_ms is not None
    assert abs(row.measured_at_ms / 1000 - truth - row.seconds) <= row.error_s + 0.002
    assert row.error_s <= most_s
    assert row.basis == "create_time"


def test_many_groups_are_asked_in_bulk(cluster: KafkaCluster, stage: Stage) -> None:
    stage.make()
    stage.publish(3)
    names = [f"{stage.group}-{n:03}" for n in range(150)]
    for name in names:
        cluster.publish_group(name, Positions.of([(stage.topic, 0, 1)]))
    offsets = cluster.group_offsets([*names, "nobody-ever"])
    assert all(len(offsets[name]) == 1 for name in names)  # type: ignore[arg-type]
    assert len(offsets["nobody-ever"]) == 0  # type: ignore[arg-type]
    described = cluster.describe_groups(names)
    assert {described[name].members for name in names} == {0}
    there, gone = TopicPartition(stage.topic, 0), TopicPartition("not.there", 0)
    assert dict(cluster.beginnings_of([there, gone])) == {there: 0}
    assert dict(cluster.ends_of([there])) == {there: 3}
    assert cluster.offsets_by_time({there: 1}) == {there: 0}
    assert cluster.offsets_by_time({there: int(time.time() * 1000) + 60_000}) == {there: None}


def test_a_broker_that_is_away_makes_everything_unknown_and_known_again(tmp_path: Path) -> None:
    with own_node(tmp_path) as node, measuring(KafkaCluster(node.bootstrap, 2.0)) as monitor:
        stage = Stage(KafkaCluster(node.bootstrap, 30.0), monitor)
        stage.make()
        stage.publish(5)
        stage.commit(2)
        stage.until(lambda row: row.records == 3)
        node.stop()
        row = stage.until_state("UNKNOWN")
        assert "does not answer" in row.cause
        assert (row.records, row.seconds, row.error_s) == (None, None, None)
        node.start()
        node.wait_ready()
        row = stage.until(lambda row: row.state != "UNKNOWN")
        assert row.records == 3
        stage.opened.close()


def test_the_server_tells_groups_by_api_metrics_and_command_line(
    kafka: str, cluster: KafkaCluster, stage: Stage, tmp_path: Path
) -> None:
    stage.make()
    stage.publish(9)
    stage.commit(2)
    (tmp_path / "topics.yaml").write_text("version: 1\ntopics: {}\n")
    settings = Settings(
        home=tmp_path,
        project=tmp_path,
        bootstrap=kafka,
        embedded_kafka=False,
        http_port=free_ports(1)[0],
        lag_sample_s=0.5,
        lag_series=1,
    )
    with running_server(settings) as url:
        rows: list[dict[str, object]] = []

        def told() -> bool:
            rows[:] = httpx2.get(
                f"{url}/api/lag", params={"name": stage.group, "state": "STOPPED"}, timeout=60
            ).json()
            return bool(rows)

        wait_until(told, 60.0)
        assert (rows[0]["records"], rows[0]["topic"], rows[0]["view"]) == (7, stage.topic, None)
        metrics = httpx2.get(f"{url}/metrics", timeout=60).text
        series = [line for line in metrics.splitlines() if line.startswith("hub_consumer_lag_seconds{")]
        assert len(series) == 1
        assert 'hub_consumers{kind="group",state="STOPPED"}' in metrics
        for command in (["lag", stage.group, "-o", "json"], ["lag", "-t", stage.topic], ["top", "--once"]):
            said = (run_hub if command[0] == "top" else call_hub)(settings, *command)
            assert said.returncode == 0, said.stderr
            if "json" in command:
                assert json.loads(said.stdout)[0]["name"] == stage.group
            elif command[0] == "lag":
                assert "STOPPED" in said.stdout and "no member is connected" in said.stdout
            else:
                assert "Worst lags" in said.stdout
