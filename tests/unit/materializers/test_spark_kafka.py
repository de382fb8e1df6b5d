"""Settings of Spark's Kafka connector by mode: which readers wait for more events, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.config import Settings
from hub.materializers.progress.records import Mode
from hub.materializers.spark import kafka_source


def settings(project: Path, **said: int) -> Settings:
    return Settings(project=project, bootstrap="k:9092", **said)  # type: ignore[arg-type]


def test_a_realtime_view_gathers_what_comes_together(tmp_path: Path) -> None:
    told = kafka_source.reading(settings(tmp_path, realtime_gather_ms=40), "realtime")
    assert told["kafka.fetch.max.wait.ms"] == "40" and int(told["kafka.fetch.min.bytes"]) > 1


def test_one_that_gathers_nothing_is_told_of_each_event(tmp_path: Path) -> None:
    at_once = settings(tmp_path, realtime_gather_ms=0)
    told = kafka_source.reading(at_once, "realtime")
    assert "kafka.fetch.min.bytes" not in told and told["kafka.fetch.max.wait.ms"] == "50"
    assert kafka_source.writing(at_once, "realtime")["kafka.linger.ms"] == "0"


@pytest.mark.parametrize("mode", ["bulk", "live"])
def test_a_batch_waits_for_no_event(tmp_path: Path, mode: Mode) -> None:
    told = kafka_source.reading(settings(tmp_path), mode)
    assert told["kafka.fetch.max.wait.ms"] == "0" and "kafka.fetch.min.bytes" not in told


@pytest.mark.parametrize(("mode", "linger_ms"), [("bulk", "20"), ("live", "0"), ("realtime", "5")])
def test_rows_wait_for_one_another_where_more_of_them_come(
    tmp_path: Path, mode: Mode, linger_ms: str
) -> None:
    assert kafka_source.writing(settings(tmp_path), mode)["kafka.linger.ms"] == linger_ms
