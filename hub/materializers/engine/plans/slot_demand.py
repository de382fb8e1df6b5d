"""[shell] Task slots that real-time views need, before and after they are planned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from hub.config import Settings
from hub.errors import HubError
from hub.kafka import KafkaCluster
from hub.log import TopicDescription
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import load_view, view_files
from hub.materializers.definition.sql_checks import query_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.plans.topics import feeds
from hub.materializers.planning.classify import classify
from hub.materializers.spark.slots import Slots, local_slots


def slots_of(view: View | SqlView, topics: Mapping[str, TopicDescription], state: int) -> tuple[int, int]:
    """Return (source partitions, state partitions) for which a real-time view holds one task slot each.

    ``state``: number of state partitions of a stateful view. An entity view reads a topic once, a SQL view
    once per source of it.

    Raises ConfigError when the view's SQL cannot be parsed.
    """
    read = [
        topic.name
        for source in view.all_sources.values()
        for topic in topics.values()
        if feeds(source.topic, topic.name)
    ]
    if isinstance(view, SqlView):
        return sum(topics[name].partitions for name in read), state * (
            classify(query_of(view)).name != "stateless"
        )
    to_come = view.expiry_topic is not None and view.expiry_topic not in topics
    return sum(topics[name].partitions for name in set(read)) + to_come, state


def foreseen_slots(settings: Settings, cluster: KafkaCluster) -> Slots:
    """Return the task slots that the project's views need, according to their files and the
    existing topics."""
    local = local_slots(settings.spark_master, os.cpu_count() or 1)
    if local is None:
        return Slots(0, 0, None)
    slots = Slots(local, local, settings.spark_slots_most)
    topics = cluster.topics()
    for path in view_files(settings.project):
        try:
            view = load_view(path)
        except (HubError, OSError):
            continue  # the view's thread reports the error
        if view.mode == "realtime":
            with suppress(HubError):  # the view's thread reports the error
                state = view.partitions or settings.view_partitions
                slots.foresee(view.name, *slots_of(view, topics, state))
    slots.widen()
    return slots
