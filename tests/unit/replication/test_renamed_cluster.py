"""Requests to a renamed cluster have its names, answers the mirror's, and other topics are never reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.errors import HubError, PeerError
from hub.kafka import KafkaCluster
from hub.kafka.protocol.broker_client import BrokerCluster, ClusterAccess
from hub.log import GroupDescription, NewTopic, TopicDescription
from hub.log.topic_names import TopicNames
from hub.record import Positions, TopicPartition
from hub.replication.clusters.clusters import ClusterHandle
from hub.replication.clusters.renaming.link_view import ends_seen_by, seen_by
from hub.replication.clusters.renaming.renamed_cluster import RenamedCluster
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.ownership.links import Link, links

NAMES = TopicNames("nyc.", ".copy")
COPY, OWN, HUB = "nyc.shop.a.copy", "shop.a", "_hub.mirror.map"


class Recorded(KafkaCluster):
    """A cluster that has a copy, a topic of the same name as the copy's source, and one of the hub."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.bootstrap = "h:1"

    def topics(self) -> Mapping[str, TopicDescription]:
        return {name: TopicDescription(name, f"id-{name}", 1, 1) for name in (COPY, OWN, HUB)}

    def topic_config(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        return {name: {"of": name} for name in names}

    def create_topics(self, topics: Sequence[NewTopic], *, rehearse: bool = False) -> Mapping[str, HubError]:
        return {topics[0].name: PeerError("no")}

    def delete_topic(self, name: str) -> None:
        self.asked.append(("delete", name))

    def add_partitions(self, name: str, total: int, *, rehearse: bool = False) -> None:
        self.asked.append(("partitions", name, total))

    def alter_configs(
        self, changes: Mapping[str, Mapping[str, str | None]], *, rehearse: bool = False
    ) -> Mapping[str, HubError]:
        self.asked.append(("alter", dict(changes)))
        return {}

    def end_offsets(self, topics: Sequence[str], *, committed: bool = True) -> Positions:
        return Positions.of((name, 0, len(name)) for name in topics)

    def group_offsets(self, groups: Sequence[str]) -> Mapping[str, Positions | HubError]:
        return {group: Positions.of([(COPY, 0, 5), (OWN, 0, 7)]) for group in groups}

    def publish_groups(self, positions: Mapping[str, Positions]) -> Mapping[str, PeerError]:
        self.asked.append(("publish", dict(positions)))
        return {}

    def describe_groups(self, groups: Sequence[str]) -> Mapping[str, GroupDescription]:
        return {group: GroupDescription(group, "Stable", 1, frozenset({COPY, OWN})) for group in groups}


def view() -> tuple[Recorded, RenamedCluster]:
    plain = Recorded()
    return plain, RenamedCluster(plain, NAMES)


def test_only_copies_and_topics_of_the_hub_are_in_the_view() -> None:
    _, seen = view()
    assert {name: each.topic_id for name, each in seen.topics().items()} == {
        "shop.a": f"id-{COPY}",
        HUB: f"id-{HUB}",
    }
    assert all(each.name == name for name, each in seen.topics().items())
    assert seen.topic_config(["shop.a", HUB]) == {"shop.a": {"of": COPY}, HUB: {"of": HUB}}
    assert seen.end_offsets(["shop.a", HUB]) == Positions.of([("shop.a", 0, len(COPY)), (HUB, 0, len(HUB))])


def test_changes_reach_the_copy_and_not_the_topic_of_the_same_name() -> None:
    plain, seen = view()
    seen.delete_topic("shop.a")
    seen.add_partitions("shop.a", 3)
    seen.alter_config("shop.a", {"retention.ms": None})
    assert plain.asked == [
        ("delete", COPY),
        ("partitions", COPY, 3),
        ("alter", {COPY: {"retention.ms": None}}),
    ]
    assert seen.create_topics([NewTopic("shop.a", 1, 1, {})]).keys() == {"shop.a"}


def test_groups_have_positions_in_copies_alone() -> None:
    plain, seen = view()
    assert seen.positions_of_groups(["g"]) == {"g": Positions.of([("shop.a", 0, 5)])}
    assert seen.describe_groups(["g"])["g"].topics == {"shop.a"}
    seen.publish_group("g", Positions.of([("shop.a", 0, 9)]))
    assert plain.asked == [("publish", {"g": Positions.of([(COPY, 0, 9)])})]


def test_every_call_about_topics_is_translated() -> None:
    """A new call of a cluster is translated here, or listed with a reason."""
    about_no_topic = """access_rules add_rules admin all_rules alter_user_quotas barred brokers check_door
        cluster_id cut_off down groups proxy read_settings remove_rules settings socket_to translated
        user_quotas wait_ready"""
    by_translated_calls = """alter_config create_topic group_members next_records partition_counts
        positions_of_groups publish_group"""
    not_of_mirrors = "config_sources follower gatherer placement replicas rights_on"
    known = {*about_no_topic.split(), *by_translated_calls.split(), *not_of_mirrors.split()}
    calls = {name for name in dir(KafkaCluster) if not name.startswith("_")}
    assert calls - vars(RenamedCluster).keys() == known


def test_a_link_sees_one_renamed_end_and_another_link_the_cluster_as_it_is() -> None:
    acls = {"copy": False}
    ways = {"topics": ["shop.**"], "acls": acls}
    every = links(
        MirrorsFile.model_validate(
            {
                "clusters": {"nyc": {"bootstrap": "h:1", "owns": ["shop.**"]}, "lon": {"bootstrap": "h:2"}},
                "mirrors": {
                    "out": {
                        "source": "nyc",
                        "target": "lon",
                        "rename": {"template": "nyc.{topic}.copy"},
                        **ways,
                    }
                },
            }
        )
    )
    clusters = {
        name: ClusterHandle(name, Recorded(), ClusterAccess(bootstrap="h:1")) for name in ("nyc", "lon")
    }
    source, target = ends_seen_by(every["out"], clusters)
    assert source is clusters["nyc"] and target.access.topic_names == NAMES == target.names
    assert set(target.kafka.topics()) == {"shop.a", HUB}
    back_source, back_target = ends_seen_by(every["out~back"], seen_by(every["out"], clusters))
    assert back_target is clusters["nyc"] and set(back_source.kafka.topics()) == {"shop.a", HUB}
    assert back_source.plain is clusters["lon"]  # never a view of a view
    plain = Link("p", every["out"].mirror.model_copy(update={"rename": None}), "p")
    assert seen_by(plain, seen_by(every["out"], clusters)) == clusters


def test_requests_for_batches_have_the_clusters_names() -> None:
    brokers = BrokerCluster(ClusterAccess(bootstrap="h:1", topic_names=NAMES))
    place, own = TopicPartition("shop.a", 2), TopicPartition(HUB, 1)
    assert brokers.topic_names.place_on_wire(place) == TopicPartition(COPY, 2)
    assert brokers.topic_names.seen_place(TopicPartition(COPY, 2)) == place
    assert brokers.topic_names.place_on_wire(own) == own == brokers.topic_names.seen_place(own)
