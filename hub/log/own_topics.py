"""[shell] Topics of the hub's own, which the first process that needs one creates."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Final

from hub.errors import Conflict
from hub.log.port import Cluster

COMPACTED: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}


def ensure_topic(
    cluster: Cluster,
    name: str,
    config: Mapping[str, str] = COMPACTED,
    *,
    replication_factor: int,
    partitions: int = 1,
) -> None:
    """Create a topic unless it exists, whoever else does the same now. Raises PeerError."""
    if not cluster.partition_counts([name]):
        with contextlib.suppress(Conflict):
            cluster.create_topic(
                name, partitions=partitions, config=config, replication_factor=replication_factor
            )
