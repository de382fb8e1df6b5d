"""[shell] The log ``_hub.erasures``."""

from __future__ import annotations

from typing import Final

from hub.approvals.decided_log import DecidedLog, DecidedTopic
from hub.erasure.model import Erasure
from hub.erasure.records import ERASURES_TOPIC, record_of, stored_erasure
from hub.log import Log

ErasureLog = DecidedLog[Erasure]
_TOPIC: Final = DecidedTopic(
    ERASURES_TOPIC, "hub.erasures", "erasures", "HUB-3830", record_of, stored_erasure
)


def erasure_log(cluster: Log, replication_factor: int) -> ErasureLog:
    """Return the log of all erasures of a cluster."""
    return DecidedLog(_TOPIC, cluster, replication_factor)
