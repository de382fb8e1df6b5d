"""[shell] The start of a materializer: retries until Kafka answers, and the wait for the lease."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hub.config import Settings
from hub.embedded import SparkGateway
from hub.errors import PeerError
from hub.kafka import KafkaCluster
from hub.log import ensure_topic
from hub.materializers.engine.plans.slot_demand import foreseen_slots
from hub.materializers.engine.plans.topics import keep_short
from hub.materializers.engine.standby.lease_thread import LeaseThread
from hub.materializers.isolation.isolated_process import IsolatedProcess
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.progress.records import PROGRESS_CONFIG, PROGRESS_TOPIC
from hub.materializers.spark import session as spark
from hub.materializers.spark.pyspark_types import SparkSession
from hub.materializers.spark.slots import Slots
from hub.materializers.versions.version_log import VersionLog
from hub.supervisor import describe_exit

log = logging.getLogger(__name__)

_AGAIN_S = 2.0
_LOOK_S = 0.1
_Started = TypeVar("_Started")


class OpenSpark(NamedTuple):
    """A session of Spark with its slots and its JVM."""

    slots: Slots
    session: SparkSession
    gateway: SparkGateway


@dataclass
class EngineStart:
    """The parts with which a process starts. ``only``: the one version that it runs; None in the shared
    process, which has the ``lease``. ``opened``: Spark, once it is open."""

    settings: Settings
    cluster: KafkaCluster
    run: str
    isolation: SharedProcess | IsolatedProcess
    only: str | None = None
    lease: LeaseThread | None = None
    opened: OpenSpark | None = None

    def open_spark(self) -> OpenSpark:
        """Open Spark, the first time. Raises as ``open_session`` does."""
        if self.opened is None:
            slots = foreseen_slots(self.settings, self.cluster)
            self.opened = OpenSpark(slots, *spark.open_session(self.settings, slots))
        return self.opened


def stand_by(start: EngineStart, lease: LeaseThread, stop: threading.Event) -> bool:
    """Open Spark, and wait for the lease. Return False when ``stop`` is set before.

    After a failure of the machine that had the lease, Spark starts while the lease runs out.
    """
    log.info("another materializer has this home: this one stands by")
    opened = start.open_spark()
    log.info("Spark is open; this materializer takes over when the other one ends or is silent")
    while not lease.wait(_LOOK_S):
        if stop.is_set():
            opened.session.stop()
            return False
        if opened.gateway.process.poll() is not None:
            log.error("Spark's JVM has ended: %s", describe_exit(opened.gateway.process.returncode))
            os._exit(1)
    return True


def open_versions(cluster: KafkaCluster, settings: Settings) -> VersionLog:
    """Read the versions of all views. Raises PeerError as ``_patiently`` does."""
    writer = cluster.writer()

    def opened() -> VersionLog:
        versions = VersionLog(cluster, writer)
        try:
            versions.open()
        except PeerError:
            versions.close()
            raise
        return versions

    return _patiently(cluster, settings, opened)


def make_progress_topic(cluster: KafkaCluster, settings: Settings) -> None:
    """Make the topic of progress if it is missing. Raises PeerError as ``_patiently`` does."""

    def make() -> None:
        ensure_topic(cluster, PROGRESS_TOPIC, PROGRESS_CONFIG, replication_factor=settings.replication_factor)
        keep_short(cluster, PROGRESS_TOPIC, PROGRESS_CONFIG)

    _patiently(cluster, settings, make)


def _patiently(cluster: KafkaCluster, settings: Settings, start: Callable[[], _Started]) -> _Started:
    """Call ``start`` once Kafka answers, and return its result. Call it again when Kafka stops answering in
    the middle, for ``start_timeout_s`` in all. Then raises PeerError.
    """
    deadline = time.monotonic() + settings.start_timeout_s
    while True:
        try:
            cluster.wait_ready(max(deadline - time.monotonic(), _LOOK_S))
            return start()
        except PeerError as error:
            if time.monotonic() > deadline:
                raise
            log.warning("Kafka does not answer at the start, tried again: %s", error.message)
            time.sleep(_AGAIN_S)
