"""[core] Errors of brokers: Kafka's error codes as the hub's errors.

::

    ConnectionLost   HUB-3601  no answer: connect again
    BrokerBusy       HUB-3602  not now, or not this broker: ask again, perhaps after new metadata
    TransactionLost  HUB-3603  the transaction cannot go on: abort, initialize, read the checkpoints
    WriterFenced     HUB-3001  another has our transactional id: stop
    BrokerRefused    HUB-1620  the same again fails again
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafka import errors as kafka_errors

from hub.errors import CallerError, HubError, PeerError
from hub.log import WriterFenced
from hub.record import TopicPartition


class ConnectionLost(PeerError):
    """The broker does not answer, or the connection ended. The request may have been executed."""

    code = "HUB-3601"


class BrokerBusy(PeerError):
    """The broker is busy or is the wrong one for the request; ``kafka_code`` is the protocol's error code."""

    code = "HUB-3602"

    def __init__(self, message: str, *, hint: str | None = None, kafka_code: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.kafka_code = kafka_code


class TransactionLost(PeerError):
    """This transaction cannot be committed any more; a new one may."""

    code = "HUB-3603"


class BrokerRefused(CallerError):
    """The cluster refuses; ``kafka_code`` is the protocol's error code."""

    code = "HUB-1620"

    def __init__(self, message: str, *, hint: str | None = None, kafka_code: int = -1) -> None:
        super().__init__(message, hint=hint)
        self.kafka_code = kafka_code


class PartitionsRefused(BrokerRefused):
    """The cluster refuses some partitions, listed in ``places``; the others are accepted."""

    def __init__(self, error: BrokerRefused, places: Iterable[TopicPartition]) -> None:
        super().__init__(error.message, hint=error.hint, kafka_code=error.kafka_code)
        self.places = tuple(places)


_FENCED: Final = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
# INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, UNKNOWN_PRODUCER_ID, OUT_OF_ORDER_SEQUENCE_NUMBER,
# DUPLICATE_SEQUENCE_NUMBER, TRANSACTION_ABORTABLE, OPERATION_NOT_ATTEMPTED
_TRANSACTION: Final = {48, 49, 59, 45, 46, 120, 55}
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID, UNSUPPORTED_VERSION = 1, 2, 3, 100, 35
MESSAGE_TOO_LARGE, CONCURRENT_TRANSACTIONS, SASL_FAILED = 10, 51, 58
MAY_NOT: Final = 29  # TOPIC_AUTHORIZATION_FAILED
NOT_COORDINATOR: Final = {8, 15, 16}  # BROKER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
OLD_BROKER: Final = "mirrors need brokers of Kafka 2.5 or later"
REFUSED_HINTS: Final[dict[int, str | None]] = {
    OFFSET_OUT_OF_RANGE: None,
    CORRUPT_MESSAGE: None,
    MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic in the target cluster",
    17: None,  # INVALID_TOPIC_EXCEPTION
    18: "raise segment.bytes of the topic in the target cluster",
    29: "let the mirror's user read and describe the topic in the source, write and "
    "describe it in the target",
    31: "let the mirror's user write idempotently (IdempotentWrite on the cluster)",
    32: "set message.timestamp.type=CreateTime and widen message.timestamp.before.max.ms and after.max.ms "
    "of the topic in the target cluster",
    33: "take one of the mechanisms that the brokers offer",
    UNSUPPORTED_VERSION: OLD_BROKER,
    42: None,  # INVALID_REQUEST
    43: "raise the format of the topic's messages",
    44: None,  # POLICY_VIOLATION
    50: "raise transaction.max.timeout.ms of the target's brokers, or lower the mirror's",
    53: "let the mirror's user write transactional ids that begin with hub.mirror.",
    SASL_FAILED: "look at the user's name and password for this cluster",
    76: "this broker is too old for the codec of the source's records",
    87: "the target's topic requires keys (it is compacted), or its brokers check "
    "records: compare the settings",
}


def error_name(code: int) -> str:
    """Return the protocol's name of an error code, such as NOT_LEADER_OR_FOLLOWER."""
    found = kafka_errors.for_code(code)
    return str(getattr(found, "message", "") or found.__name__)


def translated(code: int, doing: str, message: str | None = None) -> HubError | None:
    """Return the error for a code; None for 0. The module's docstring has the table."""
    if code == 0:
        return None
    description = f"{doing}: {error_name(code)}" + (f" ({message})" if message else "")
    if code in _FENCED:
        return WriterFenced(
            description,
            hint="another worker has this shard, or it stood still for longer than its transaction may last",
        )
    if code in _TRANSACTION:
        return TransactionLost(description)
    if code in REFUSED_HINTS:
        return BrokerRefused(description, hint=REFUSED_HINTS[code], kafka_code=code)
    return BrokerBusy(description, kafka_code=code)


def raise_for(code: int, doing: str, message: str | None = None) -> None:
    """Raise the error for a code; return for 0."""
    error = translated(code, doing, message)
    if error is not None:
        raise error
