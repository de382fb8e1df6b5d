"""Changes of the source's registry that a mirror receives, and those that a commit waits for."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from hub.errors import HubError, NotFound, PeerError
from hub.log import MemoryCluster, MemoryReader
from hub.record import NewRecord
from hub.replication.clusters import schemas_first
from hub.replication.clusters.clusters import REFUSED, ClusterHandle
from hub.replication.clusters.schemas_first import SchemaNews
from hub.replication.config.mirrors import Mirror
from hub.replication.ownership.links import Link
from hub.replication.worker.link_schemas import LinkSchemas
from hub.schema_registry.model.facts import (
    SCHEMAS_TOPIC,
    Fact,
    Noop,
    SchemaErased,
    SchemaStored,
    SubjectCleared,
    record_of,
)

MINE = frozenset({"a-key", "a-value"}).__contains__
V1, V2 = ("a-value", 1), ("a-value", 2)


@dataclass
class Kafka(MemoryCluster):
    refused: HubError | None = None

    def end_offsets(self, topics: Any, *, committed: bool = True) -> Any:
        if self.refused is not None:
            raise self.refused
        return super().end_offsets(topics)

    def reader(self, queue_kb: int = 0) -> MemoryReader:
        return super().reader()


def stored(subject: str, version: int) -> SchemaStored:
    return SchemaStored(subject, version, 10 + version, '"string"')


def written(kafka: Kafka, *facts: Fact) -> None:
    kafka.writer().append([record_of(each) for each in facts])


@pytest.fixture
def kafka() -> Kafka:
    made = Kafka()
    made.create_topic(SCHEMAS_TOPIC, partitions=1, config={}, replication_factor=1)
    written(made, stored("a-value", 1))
    return made


def source(kafka: Kafka) -> ClusterHandle:
    return ClusterHandle("nyc", kafka, None, "http://nyc")  # type: ignore[arg-type]


def told(kafka: Kafka, *facts: Fact) -> SchemaNews:
    """Of these, after it began."""
    news = SchemaNews(source(kafka))
    written(kafka, *facts)
    news.poll(0.0)
    return news


def test_what_was_there_is_not_awaited_and_what_comes_is_until_it_is_found(kafka: Kafka) -> None:
    news = told(kafka)
    assert (news.read_to, news.awaits) == (1, False)
    news = told(kafka, stored("a-value", 2), stored("a-key", 1))
    assert news.read_to == 3
    news.settle(MINE, {V1, V2})
    assert news.awaits, "the registry does not have its key yet"
    news.settle(MINE, {V1, V2, ("a-key", 1)})
    assert not news.awaits


def test_what_is_told_of_other_topics_holds_nobody_up(kafka: Kafka) -> None:
    news = told(kafka, stored("b-value", 1), stored("a", 1), Noop())
    news.settle(MINE)
    assert not news.awaits and news.read_to == 4


@pytest.mark.parametrize("gone", [SchemaErased(*V2), SubjectCleared("a-value"), SubjectCleared(None)])
def test_what_was_erased_at_once_is_not_awaited(kafka: Kafka, gone: Fact) -> None:
    assert not told(kafka, stored(*V2), gone).awaits
    assert told(kafka, stored(*V2), SubjectCleared("b-value")).awaits


def test_a_record_that_is_no_fact_is_passed_over(kafka: Kafka) -> None:
    news = told(kafka)
    kafka.writer().append([NewRecord(SCHEMAS_TOPIC, b"\xff", b"not a fact")])
    news.poll(0.0)
    assert (news.read_to, news.awaits) == (2, False)


def test_what_the_registry_never_has_is_not_awaited_for_ever(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    news = told(kafka, stored(*V2))
    news.settle(MINE, {V1})
    assert news.awaits
    monkeypatch.setattr(schemas_first, "_AWAITED_S", -1.0)
    with caplog.at_level(logging.WARNING):
        news.settle(MINE, {V1})
    assert not news.awaits and "a-value v2 is in topic" in caplog.text


# ---- where it cannot be followed


def schemas(kafka: Kafka, **more: Any) -> LinkSchemas:
    mirror = Mirror(source="nyc", target="lon", topics=["**"], **more)
    lon = ClusterHandle("lon", kafka, None, "http://lon")  # type: ignore[arg-type]
    return LinkSchemas(Link("m", mirror, "m"), source(kafka), lon, "m.chores")


def test_a_registry_whose_log_is_elsewhere_is_told_of() -> None:
    elsewhere = schemas(Kafka())
    elsewhere.follow()
    assert elsewhere.news is None and "does not exist" in elsewhere.caution
    refused = schemas(Kafka(refused=PeerError("topic: not authorized", code=REFUSED)))
    refused.follow()
    assert refused.news is None and "not authorized; a version that comes later" in refused.caution
    with pytest.raises(PeerError, match="no answer"):
        schemas(Kafka(refused=PeerError("no answer"))).follow()


def test_where_ids_are_looked_up_nothing_is_followed(kafka: Kafka) -> None:
    for each, follows in ((schemas(kafka), True), (schemas(kafka, schema_ids="rewrite"), False)):
        each.follow()
        assert (each.news is not None, each.caution) == (follows, "")


def test_a_cluster_without_the_log_cannot_be_followed() -> None:
    with pytest.raises(NotFound):
        SchemaNews(source(Kafka()))
