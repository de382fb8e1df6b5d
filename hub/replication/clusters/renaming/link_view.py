"""[edge] The clusters as one link sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hub.record import TopicPartition
from hub.replication.clusters.clusters import ClusterHandle, topics_of
from hub.replication.clusters.renaming.renamed_cluster import RenamedCluster
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.ownership.links import Link
from hub.replication.planning.steps import ClusterSide


def seen_by(link: Link, clusters: Mapping[str, ClusterHandle]) -> dict[str, ClusterHandle]:
    """Return the clusters as a link sees them: the one that has the renamed copies by the topics' names at
    the mirror's source. ``clusters``: as they are, or as any link sees them.
    """
    seen = {name: each.plain or each for name, each in clusters.items()}
    plain = None if link.names.are_equal else seen.get(link.renamed_end)
    if plain is not None and not plain.closed:
        seen[plain.name] = replace(
            plain,
            kafka=RenamedCluster(plain.kafka, link.names),
            access=replace(plain.access, topic_names=link.names),
            names=link.names,
            plain=plain,
        )
    return seen


def ends_seen_by(link: Link, clusters: Mapping[str, ClusterHandle]) -> tuple[ClusterHandle, ClusterHandle]:
    """Return the source and the target of a link as it sees them."""
    seen = seen_by(link, clusters)
    return seen[link.source], seen[link.target]


def former_names(
    target: ClusterHandle,
    topics: Collection[str],
    there: ClusterSide,
    marks: Mapping[TopicPartition, Checkpoint],
) -> dict[str, str]:
    """Return by topic the name of its copy, where the target has that under another name. Reads the target's
    topics only if a copy is not the one of its checkpoint.
    """
    ids = {
        mark.target_topic_id: tp.topic
        for tp, mark in marks.items()
        if tp.topic in topics and mark.target_topic_id
    }
    lost = {
        topic_id: topic
        for topic_id, topic in ids.items()
        if topic not in there.topics or there.topics[topic].topic_id != topic_id
    }
    if not lost:
        return {}
    every = topics_of(target.plain or target)
    return {lost[each.topic_id]: name for name, each in every.items() if each.topic_id in lost}
