"""Clients whose Kafka was away in the way that librdkafka does not come back from, and is well again."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_nodes import own_node
from lying_link import Lie, LyingNode
from patience import patient, wait_until

from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.kafka.contact.watchdog import reports
from hub.record import NewRecord, Positions, TopicPartition

TOPIC = "cut.off"
CUT_OFF_S = 3.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LyingNode]:
    with own_node(tmp_path_factory.mktemp("lying"), LyingNode) as made:
        KafkaCluster(made.bootstrap, patient(15.0)).create_topic(
            TOPIC, partitions=1, config={}, replication_factor=1
        )
        yield made


class Clients:
    """Every kind of client, each used all the time by a thread of its own as a long-lived process does."""

    def __init__(self, node: LyingNode) -> None:
        self.cluster = KafkaCluster(node.through, 5.0, cut_off_s=CUT_OFF_S)
        self.sender = self.cluster.sender(delivery_timeout_s=5.0)
        self.writer, self.named = self.cluster.writer(), self.cluster.writer("cut.off.named")
        self.reader = self.cluster.reader()
        self.reader.assign(Positions({TopicPartition(TOPIC, 0): 0}))
        self.said: dict[str, tuple[float, str]] = {}
        self._stop = threading.Event()
        uses: dict[str, Callable[[], object]] = {
            "list": self.cluster.topics,
            "ends": lambda: self.cluster.end_offsets([TOPIC]),
            "groups": self.cluster.groups,
            "offsets": lambda: self.cluster.group_offsets(["nobody"]),
            "sender": self._send,
            "writer": lambda: self.writer.append([NewRecord(TOPIC, b"w", b"1")]),
            "transaction": lambda: self.named.append([NewRecord(TOPIC, b"t", b"1")]),
            "reader": self._read,
        }
        self._threads = [threading.Thread(target=self._use, args=each, daemon=True) for each in uses.items()]
        for each in self._threads:
            each.start()

    def failing(self, since_s: float) -> dict[str, str]:
        """The uses that did not work since then, with the last reason."""
        said = dict(self.said)
        return {name: why or "nothing yet" for name, (at, why) in said.items() if why or at < since_s}

    def close(self) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(patient(20.0))

    def _use(self, name: str, use: Callable[[], object]) -> None:
        while not self._stop.wait(0.1):
            try:
                use()
                self.said[name] = time.monotonic(), ""
            except HubError as error:
                self.said[name] = time.monotonic(), error.message

    def _send(self) -> None:
        self.sender.send(NewRecord(TOPIC, b"s", b"1"))
        self.sender.flush(6.0)

    def _read(self) -> None:
        for _ in range(20):
            if self.reader.poll(1_000, 0.2):
                return
        raise HubError("no record came")


@pytest.mark.parametrize("lie", [Lie.DEAD_ADDRESS, Lie.FENCED])
def test_clients_come_back_when_kafka_is_well(node: LyingNode, lie: Lie) -> None:
    clients = Clients(node)
    try:
        _until(lambda: not clients.failing(0.0), "all work at first", clients)
        node.link.lie = lie
        time.sleep(2 * CUT_OFF_S)
        if lie is Lie.DEAD_ADDRESS:
            _until(lambda: _longest_s(node) >= CUT_OFF_S, "some are said to be cut off", clients)
        node.link.lie = None
        well_s = time.monotonic()
        _until(lambda: not clients.failing(well_s), "all work again", clients)
        print(f"{lie}: all work {time.monotonic() - well_s:.1f} s after Kafka is well")
        _until(lambda: _longest_s(node) == 0.0, "none is said to be cut off", clients)
    finally:
        node.link.lie = None
        clients.close()


# A process that uses groups as long-lived ones do: at each line of its input, every request once.
_USER = """
import sys
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.record import NewRecord, Positions
cluster = KafkaCluster(sys.argv[1], 5.0)
writer = cluster.writer("killed.writer")
for line in sys.stdin:
    at = int(line)
    groups = {name: Positions.of([(sys.argv[2], 0, at)]) for name in ("killed.a", "killed.b")}
    try:
        errors = cluster.publish_groups(groups)
        offsets, members = cluster.group_offsets(list(groups)), cluster.group_members(list(groups))
        marks = [NewRecord(sys.argv[2], b"mark", b"1")]
        writer.append_with_groups(marks, {"killed.c": groups["killed.a"]}, lambda: None)
        done = not errors and not any(members.values()) and dict(offsets) == groups
        print("done" if done else f"{errors} {members} {offsets}", flush=True)
    except HubError as error:
        print(error.message, flush=True)
"""


def test_groups_are_written_after_their_coordinator_was_killed(node: LyingNode) -> None:
    """In a process of its own: where librdkafka asks coordinators, an assertion may end the process."""
    with subprocess.Popen(
        [sys.executable, "-c", _USER, node.bootstrap, TOPIC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as user:
        try:
            for kill in range(4):
                _until_done(user, kill)
                if kill < 3:
                    _kill_and_start(node)
        finally:
            user.kill()


def _until_done(user: subprocess.Popen[str], kill: int) -> None:
    assert user.stdin is not None
    assert user.stdout is not None
    deadline, said, at = time.monotonic() + patient(30.0), "", 0
    while said != "done":
        assert time.monotonic() < deadline, (kill, said)
        at += 1
        user.stdin.write(f"{at}\n")
        user.stdin.flush()
        said = user.stdout.readline().strip()
        assert said, f"after {kill} kills the process ended with {user.wait(10)}"


def _kill_and_start(node: LyingNode) -> None:
    assert node.process is not None
    node.process.kill()
    node.process.wait()
    node.start()
    node.wait_ready(patient(60.0))


def _longest_s(node: LyingNode) -> float:
    return max(each.cut_off_s for each in reports() if each.cluster == node.through)


def _until(ready: Callable[[], bool], what: str, clients: Clients) -> None:
    wait_until(ready, 30.0, lambda: (what, clients.failing(0.0)), pause_s=0.1)
