"""[shell] The log ``_hub.erasures``: erasures as JSON, for its records and for callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import orjson

from hub.approvals.decided_log import DecidedLog, DecidedTopic
from hub.erasure.model import Erasure, Place
from hub.errors import HubFault
from hub.formats.fields import known_fields
from hub.log import Log
from hub.record import NewRecord, Record

ERASURES_TOPIC: Final = "_hub.erasures"


def as_json(erasure: Erasure) -> dict[str, Any]:
    """Return an erasure as JSON."""
    return {**asdict(erasure), "topics": list(erasure.topics)}


def erasure_of(body: Mapping[str, Any]) -> Erasure:
    """Read an erasure from JSON. Raises TypeError, KeyError."""
    places = tuple(known_fields(Place, each) for each in body["places"])
    return known_fields(Erasure, {**body, "topics": tuple(body["topics"]), "places": places})


def record_of(erasure: Erasure) -> NewRecord:
    """Return the record that stores an erasure."""
    return NewRecord(ERASURES_TOPIC, erasure.id.encode(), orjson.dumps(as_json(erasure)), partition=0)


def stored_erasure(record: Record) -> Erasure:
    """Read a record. Raises HubFault (HUB-5703) for one that the hub did not write."""
    try:
        return erasure_of(orjson.loads(record.value or b""))
    except (ValueError, TypeError, KeyError) as error:
        raise HubFault(
            f'topic "{ERASURES_TOPIC}" offset {record.offset}: the record cannot be read as an erasure '
            f"({type(error).__name__})",
            hint="find the writer: only the hub may write this topic",
            code="HUB-5703",
        ) from None


ErasureLog = DecidedLog[Erasure]
_TOPIC: Final = DecidedTopic(
    ERASURES_TOPIC, "hub.erasures", "erasures", "HUB-3830", record_of, stored_erasure
)


def erasure_log(cluster: Log, replication_factor: int) -> ErasureLog:
    """Return the log of all erasures of a cluster."""
    return DecidedLog(_TOPIC, cluster, replication_factor)
