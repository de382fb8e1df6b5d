"""[edge] Admission of a process: versions of its formats are checked and noted before it starts."""

from __future__ import annotations

import logging

from hub.config import Settings
from hub.errors import HubError
from hub.formats.home import admit_home
from hub.formats.stamps import UNREADABLE
from hub.formats.topics import admit_topics
from hub.formats.verdicts import REFUSED
from hub.kafka import own_cluster

log = logging.getLogger(__name__)

# The server serves views without Kafka, and a mirror's worker may be there because a cluster is down.
_HASTY, _HASTE_S = ("server", "mirror"), 5.0


def admit(settings: Settings, process: str) -> None:
    """Check and note the versions of the formats that a process writes.

    Waits for Kafka up to ``start_timeout_s``; server and mirror for 5 s. Without an answer, or without rights
    on ``_hub.formats``, the versions of records are unknown, which is logged. Raises ConfigError: HUB-1150
    for a version that this release does not read, HUB-1151.
    """
    admit_home(settings.home, process)
    try:
        if process in _HASTY:
            cluster = own_cluster(settings, _HASTE_S)
        else:
            cluster = own_cluster(settings)
            cluster.wait_ready(settings.start_timeout_s)
        admit_topics(cluster, process, settings.replication_factor)
    except HubError as error:
        if error.code in (REFUSED, UNREADABLE):
            raise
        log.warning("the versions of the records in Kafka are unknown: %s", error.message)
