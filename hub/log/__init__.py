"""[core] The log: ``port.py`` has the interfaces, ``memory.py`` implements them in memory, ``reading.py``
reads whole topics and follows them, ``own_topics.py`` creates those of the hub.
``topic_names.py`` maps names of topics that a mirror renames.
"""

from hub.log.memory import MemoryCluster, MemoryReader, MemoryWriter
from hub.log.own_topics import COMPACTED, ensure_topic
from hub.log.port import (
    DAY_MS,
    AppendWithdrawn,
    Cluster,
    ConditionalWriter,
    Configured,
    ConfigValue,
    GroupDescription,
    GroupsLeftAlone,
    GroupWriter,
    Log,
    LogDir,
    NewTopic,
    PartitionReplicas,
    Placement,
    Reader,
    TopicDescription,
    Unreadable,
    Writer,
    WriterFenced,
    same_setting,
    tombstones_kept_ms,
)
from hub.log.reading import TopicFollower, between, up_to, whole

__all__ = [
    "COMPACTED",
    "DAY_MS",
    "AppendWithdrawn",
    "Cluster",
    "ConditionalWriter",
    "ConfigValue",
    "Configured",
    "GroupDescription",
    "GroupWriter",
    "GroupsLeftAlone",
    "Log",
    "LogDir",
    "MemoryCluster",
    "MemoryReader",
    "MemoryWriter",
    "NewTopic",
    "PartitionReplicas",
    "Placement",
    "Reader",
    "TopicDescription",
    "TopicFollower",
    "Unreadable",
    "Writer",
    "WriterFenced",
    "between",
    "ensure_topic",
    "same_setting",
    "tombstones_kept_ms",
    "up_to",
    "whole",
]
