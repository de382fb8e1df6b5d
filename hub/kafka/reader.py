"""[edge] Reading: one consumer that is never in a group, from positions that the caller keeps."""

from __future__ import annotations

import operator
import time
import uuid
from collections.abc import Sequence
from typing import Any
from weakref import WeakMethod

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from hub.errors import HubError, NotFound
from hub.kafka.connection import MISSING, made, retire
from hub.kafka.offsets import Offsets
from hub.log import Unreadable
from hub.record import Positions, Record, TopicPartition

QUEUE_KB = 65_536
# Brokers send records as they come. This wait bounds how soon the broker reports that there are none, which
# moves positions past markers.
WAIT_MS = 20
# A reader that follows a topic forever polls once a second instead of fifty times: on an idle broker, those
# requests were most of the work.
FOLLOWING_WAIT_MS = 1_000
# A reader that may wait lets the broker gather this many bytes; otherwise the broker sends each record as it
# comes, hundreds of times a second.
GATHERED_BYTES = 65_536


# A header whose name is not UTF-8 leaves the client with an error set and a tuple that lacks the name;
# touching that tuple ends the process. Python checks for such an error after a call from C, like this one;
# after its own calls only until it specializes them.
_headers_of = operator.methodcaller("headers")


class KafkaReader:
    """See hub.log.Reader. Holds one consumer; not thread safe."""

    def __init__(
        self,
        cluster: Offsets,
        queue_kb: int = QUEUE_KB,
        wait_ms: int = WAIT_MS,
        least_bytes: int = 1,
        *,
        committed: bool = True,
    ) -> None:
        self.cluster = cluster
        self._settings: dict[str, Any] = {
            "group_id": f"hub-reader-{uuid.uuid4().hex[:8]}",  # librdkafka wants one; it is never joined
            "enable_auto_commit": False,
            "enable_auto_offset_store": False,
            "isolation_level": "read_committed" if committed else "read_uncommitted",
            "auto_offset_reset": "error",
            "fetch_wait_max_ms": wait_ms,
            "fetch_min_bytes": least_bytes,
            "fetch_error_backoff_ms": 50,
            "queued_max_messages_kbytes": queue_kb,
            "queued_min_messages": min(50_000, queue_kb),
            "enable_partition_eof": True,
            "topic_metadata_propagation_max_ms": 10_000,
        }
        self.positions: dict[TopicPartition, int] = {}
        self._failed: HubError | None = None
        self._stopped: dict[TopicPartition, HubError] = {}
        behind = WeakMethod(self._is_behind)
        self._contact = cluster.contacts.open("reader", lambda: (ask := behind()) is not None and ask())
        self._all_down = False
        self._waited_s = 0.0  # in polls, since something came
        self._renewals = 0  # of the contact, when the consumer was made
        self._consumer: Consumer | None = self._open()

    def _open(self) -> Consumer:
        return made(Consumer, self.cluster.read_settings("reader", self._on_error, **self._settings))

    def assign(self, positions: Positions) -> None:
        self.positions = dict(positions.offsets)
        self._failed = None
        self._stopped = {}
        if self._consumer is not None:
            self._assign(self._consumer)

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign(
            [KafkaTopicPartition(tp.topic, tp.partition, at) for tp, at in self.positions.items()]
        )

    def poll(self, limit: int, timeout_s: float) -> Sequence[Record]:
        """See Reader; also returns, with nothing, when a position moved past control markers only.

        Raises HubError (HUB-3020) for a gap, Unreadable (HUB-3021) for what cannot be unpacked, NotFound. The
        records before it are returned first; ``position`` stands at what failed: assign again to go on
        elsewhere.
        """
        self._raise_failed()
        if not self.positions:
            time.sleep(min(timeout_s, 0.05))
            return ()
        consumer = self._in_contact()
        if consumer is None:
            time.sleep(min(timeout_s, 0.2))
            return ()
        message = consumer.poll(timeout_s)
        if message is None:
            self._wait(timeout_s)
            return ()
        self._waited_s, self._all_down = 0.0, False
        if message.error() is None or message.error().code() == KafkaError._PARTITION_EOF:
            self._contact.answered()
        # consume(n) waits for all n; one poll, then what is there already
        messages = [message, *consumer.consume(limit - 1, 0)] if limit > 1 else [message]
        records = [record for record in map(self._record, messages) if record is not None]
        if not records:
            self._raise_failed()
        return records

    def _in_contact(self) -> Consumer | None:
        """Return the consumer, recreated after a cut-off; None while the reader is cut off, because a cut-off
        consumer would use a whole core.
        """
        cut_off = self._contact.blocked
        if self._consumer is not None and (cut_off or self._contact.renewals != self._renewals):
            retire(self._consumer)
            self._consumer = None
        if self._consumer is None and not cut_off:
            self._consumer, self._renewals = self._open(), self._contact.renewals
            self._all_down, self._waited_s = False, 0.0
            self._assign(self._consumer)
        return self._consumer

    def _wait(self, seconds: float) -> None:
        """Record a poll without records.
        That is normal at the end of the log, but not without a connection."""
        if self._all_down:
            self._contact.failed("all of its connections are down")
        self._waited_s += seconds
        if self._waited_s >= self.cluster.contacts.cut_off_s:
            self._waited_s = 0.0
            self._contact.doubt()

    def _on_error(self, error: KafkaError) -> None:
        """Record the error only. librdkafka calls this from C, where an exception of another callback may be
        pending.
        """
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._all_down = True

    def _is_behind(self) -> bool:
        """Return whether the log has records after the positions. Called from the watchdog thread."""
        at = {tp: offset for tp, offset in dict(self.positions).items() if tp not in self._stopped}
        ends = self.cluster.known_ends(at) if at else Positions()
        return any(end > at[tp] and self.positions.get(tp) == at[tp] for tp, end in ends if tp in at)

    def _raise_failed(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed

    def _record(self, message: Message) -> Record | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None:
            # Not raised here: the batch has records of before, and of other partitions, that would be lost.
            self._failed = self._passed(topic, partition, offset, error) or self._failed
            return None
        tp = TopicPartition(topic, partition)
        if tp in self._stopped:  # the position stands before this one
            self._failed = self._stopped[tp]
            return None
        try:
            headers = tuple(_headers_of(message) or ())
        except SystemError:  # the client returns none of the record's headers in this case
            self._failed = self._stopped[tp] = Unreadable(
                f'topic "{topic}" partition {partition} offset {offset}: a header there has a '
                "name that is not UTF-8",
                tp,
                offset,
            )
            self.positions[tp] = offset
            return None
        self.positions[tp] = offset + 1
        return Record(
            topic,
            partition,
            offset,
            message.timestamp()[1],
            message.key(),
            message.value(),
            headers,
        )

    def _passed(
        self, topic: str | None, partition: int | None, offset: int | None, error: KafkaError
    ) -> HubError | None:
        """Translate a partition error; None for the end of the partition. The end moves the position past
        control markers and aborted records.
        """
        if topic is None or partition is None:
            return self.cluster.translated(error, "read")
        tp = TopicPartition(topic, partition)
        if tp in self._stopped:
            return self._stopped[tp]
        if error.code() == KafkaError._PARTITION_EOF:
            self.positions[tp] = max(self.positions.get(tp, 0), offset or 0)
            return None
        try:
            return self._failure(tp, error)
        except HubError as failed:  # it had to ask the cluster
            return failed

    def _failure(self, tp: TopicPartition, error: KafkaError) -> HubError:
        position = self.positions.get(tp, 0)
        where = f'topic "{tp.topic}" partition {tp.partition} offset {position}'
        if error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            begin = self.cluster.beginning_offsets([tp.topic]).get(tp)
            end = self.cluster.end_offsets([tp.topic]).get(tp)
            if position < begin:
                return HubError(
                    f"{where}: the log begins at {begin}; offsets [{position}, {begin}) are gone",
                    hint="raise the topic's retention, and rebuild everything derived from it",
                    code="HUB-3020",
                )
            return HubError(
                f"{where}: the log ends at {end}",
                hint="check whether the topic was recreated or a broker restored from a backup; rebuild "
                "everything derived from the topic",
                code="HUB-3020",
            )
        if error.code() in (KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG):
            return Unreadable(f"{where}: the batch there cannot be unpacked ({error.str()})", tp, position)
        if error.code() in MISSING:
            return NotFound(f'topic "{tp.topic}" partition {tp.partition} does not exist')
        return self.cluster.translated(error, where)

    def position(self) -> Positions:
        return Positions(dict(self.positions))

    def close(self) -> None:
        self.cluster.contacts.close(self._contact)
        if self._consumer is not None:
            self._consumer.close()
