"""The thread of one version with a log in memory and the real planner, where it needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from patience import patient, wait_until

from hub.config import Settings
from hub.errors import ConfigError, PeerError
from hub.log import MemoryCluster
from hub.materializers.engine.failures import FailedView, failure_of
from hub.materializers.engine.life_events import (
    CorruptState,
    DecidedElsewhere,
    LastingFailure,
    TransientFailure,
    UnknownSchemaId,
    ViewFileGone,
)
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.view_thread import ViewThread
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.progress.progress_queue import ProgressQueue
from hub.materializers.progress.records import PROGRESS_TOPIC
from hub.materializers.spark.pyspark_types import PySparkException
from hub.materializers.spark.slots import Slots
from hub.materializers.versions.version_log import UNDECIDED, VersionLog

FILE = "view: v\nsources: {s: {topic: in, key: k}}\nfields: {k: s.k}\n"


class Stage:
    """One view's file and its thread, whose topics do not exist."""

    def __init__(self, folder: Path) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic(PROGRESS_TOPIC, partitions=1, config={}, replication_factor=1)
        self.path = folder / "views" / "v.yaml"
        self.path.parent.mkdir()
        self.path.write_text(FILE)
        settings = Settings(project=folder, home=folder / "home")
        cluster, none = cast(Any, self.cluster), cast(Any, None)
        self.progress = ProgressQueue(cluster, self.cluster.writer())
        versions, isolation = VersionLog(cluster, self.cluster.writer()), SharedProcess(settings)
        self.parts = EngineParts(
            settings, none, Slots(2, 2, 2), cluster, none, self.progress, versions, isolation
        )
        self.thread = ViewThread(self.parts, VersionName(self.path))

    def await_state(self, state: str, part: str = "") -> None:
        wait_until(
            lambda: self.thread.reported[0] == state and part in (self.thread.reported[1] or ""),
            20.0,
            lambda: self.thread.reported,
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.thread.stop(patient(20.0))


def test_a_view_that_cannot_be_planned_is_failed_retried_and_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.thread.start()
    stage.await_state("failed", 'topic "in" does not exist')
    stage.path.write_text("view: v\nsources: {s: {topic: other, key: k}}\nfields: {k: s.k}\n")
    stage.await_state("failed", 'topic "other" does not exist')

    def away() -> Any:
        raise PeerError("Kafka is away")

    monkeypatch.setattr(stage.cluster, "topics", away)
    stage.await_state("retrying", "Kafka is away")
    assert stage.thread.alive and not stage.thread.undecided
    stage.thread.stop(patient(20.0))
    assert not stage.thread.alive and stage.thread.reported == ("stopped", None)
    assert stage.progress.states["v"].state == "stopped"


def test_a_view_without_its_file_ends(stage: Stage) -> None:
    stage.path.unlink()
    stage.thread.start()
    stage.await_state("stopped")
    stage.thread.stop(patient(20.0))
    assert not stage.thread.alive


def test_an_internal_error_is_retried_and_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(stage.cluster, "topics", broken)
    stage.thread.start()
    stage.await_state("retrying", "ZeroDivisionError: planted")


def failed_view(tmp_path: Path, *, causes: str = "") -> FailedView:
    return FailedView("v", cast(Any, object()), tmp_path / "1", {"its checkpoints": tmp_path}, causes)


def test_what_a_query_raises_is_classified(tmp_path: Path) -> None:
    of = failed_view(tmp_path)
    unknown = PySparkException("… [USER_RAISED_EXCEPTION] HUB-UNKNOWN-SCHEMA 7 crm.orders SQLSTATE: P0001")
    assert failure_of(unknown, of) == UnknownSchemaId(7, "crm.orders")
    full = failure_of(PySparkException("MALFORMED_LOG_FILE: No space left on device"), of)
    assert isinstance(full, TransientFailure) and "disk" in full.reason
    corrupt = failure_of(PySparkException("x\n[MALFORMED_LOG_FILE] it is garbled\ny"), of)
    assert corrupt == CorruptState("[MALFORMED_LOG_FILE] it is garbled")
    caused = failure_of(PySparkException("failed"), failed_view(tmp_path, causes="MALFORMED_LOG_FILE"))
    assert caused == CorruptState("MALFORMED_LOG_FILE")
    assert failure_of(PySparkException("first\nsecond"), of) == TransientFailure("first")


def test_other_errors_are_classified(tmp_path: Path) -> None:
    of = failed_view(tmp_path)
    assert failure_of(PeerError("away", code=UNDECIDED), of) == DecidedElsewhere()
    assert isinstance(failure_of(PeerError("its state", code="HUB-5021"), of), CorruptState)
    assert isinstance(failure_of(FileNotFoundError("v.yaml"), of), ViewFileGone)
    assert failure_of(ValueError("odd"), of) == TransientFailure("ValueError: odd")
    assert isinstance(failure_of(OSError(28, "No space left on device"), of), TransientFailure)
    assert isinstance(failure_of(ConfigError("a typo"), of), LastingFailure)
