"""[edge] Admission of a process: versions of its formats are checked and noted before it starts."""

from __future__ import annotations

import logging

from hub.config import Settings
from hub.errors import PeerError
from hub.formats.home import admit_home
from hub.formats.topics import admit_topics
from hub.kafka import own_cluster

log = logging.getLogger(__name__)

_SERVER_WAITS_S = 5.0


def admit(settings: Settings, process: str) -> None:
    """Check and note the versions of the formats that a process writes.

    Waits for Kafka up to ``start_timeout_s``; the server, which serves views without Kafka, for 5 s. Without
    an answer, the versions of records are not known, which is logged. Raises ConfigError: HUB-1150 for a
    version that this release does not read, HUB-1151.
    """
    admit_home(settings.home, process)
    try:
        if process == "server":
            cluster = own_cluster(settings, _SERVER_WAITS_S)
        else:
            cluster = own_cluster(settings)
            cluster.wait_ready(settings.start_timeout_s)
        admit_topics(cluster, process, settings.replication_factor)
    except PeerError as error:
        log.warning("the versions of the records in Kafka are unknown: %s", error.message)
