"""[edge] Write guard of commands: which topics may be written here, by mirrors.yaml. A topic that another
cluster owns, by declaration or after a failover, may not.

The server checks each request (``hub/api/write_guard.py``); a command checks once, and only topics that have
an owner.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from hub.config import Settings
from hub.errors import HubError, PeerError

if TYPE_CHECKING:
    from hub.kafka import KafkaCluster
    from hub.kafka.protocol.broker_client import ClusterAccess
    from hub.replication.config.mirrors import MirrorsFile
    from hub.replication.ownership.failover import Control


def write_refusals(
    settings: Settings, cluster: KafkaCluster, access: ClusterAccess | None = None
) -> Callable[[str], HubError | None]:
    """Return a function from a topic to the error that forbids writing it here now; None if it may be
    written. Without a mirrors.yaml all topics may. ``access``: how to reach a cluster that is not the hub's
    own.

    The function raises ConfigError for an invalid file, and PeerError when this cluster's name in the file,
    or the owner, cannot be determined.
    """
    from hub.replication.config.load_mirrors import load
    from hub.replication.config.mirrors import MIRRORS_FILE
    from hub.replication.ownership.links import checked, is_guarded, write_refusal

    path = settings.project / MIRRORS_FILE

    @cache
    def mirrors() -> MirrorsFile | None:
        return checked(load(path)) if path.exists() else None

    @cache
    def here() -> tuple[str, Control] | None:
        file = mirrors()
        return None if file is None else _here(file, settings, cluster, access)

    def refusal(topic: str) -> HubError | None:
        file = mirrors()
        if file is None or not is_guarded(file, topic) or (found := here()) is None:
            return None
        return write_refusal(file, *found, topic)

    return refusal


def _here(
    file: MirrorsFile, settings: Settings, cluster: KafkaCluster, access: ClusterAccess | None
) -> tuple[str, Control] | None:
    """Return the file's name for this cluster and the control state stored in it; None if the file does not
    name the cluster.
    """
    from hub.kafka import own_connection
    from hub.replication.clusters.clusters import ClusterHandle, access_of
    from hub.replication.clusters.readers import read_control_state

    name = _name(file, settings, cluster)
    if name is None:
        return None
    reached = ClusterHandle(name, cluster, access or access_of(own_connection(settings)))
    return name, read_control_state(reached, status=False).control


def _name(file: MirrorsFile, settings: Settings, cluster: KafkaCluster) -> str | None:
    """Return the name of this cluster in the file, by address, else by Kafka's cluster id. Raises PeerError
    when a candidate does not answer.
    """
    from hub.replication.clusters.clusters import name_by_address, name_by_id

    name = name_by_address(file, cluster)
    if name is not None:
        return name
    name, silent = name_by_id(file, cluster, os.environ, settings.project, settings.kafka_timeout_s)
    if name is None and silent:
        *_, last = silent.values()
        raise PeerError(
            f"which cluster of mirrors.yaml is at {cluster.bootstrap} is not known: "
            f"{last.message}; nothing was written",
            hint="give that cluster the address there that `bootstrap` of the hub has, or try "
            "again when all answer",
        ) from last
    return name
