"""[edge] Write records: many under way, or one answered append; with a name, in transactions that fence."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from hub.errors import CallerError, HubError, HubFault
from hub.kafka.connection import FENCED, Connection, is_no_answer, made, retire
from hub.kafka.contact.watchdog import Contact
from hub.kafka.group_transaction import add_positions, fatal_error
from hub.kafka.groups import REFUSED
from hub.log import AppendWithdrawn, GroupsLeftAlone, WriterFenced
from hub.record import NewRecord, Positions, TopicPartition

_LARGEST_COPY = 100_000_000
# Of many records, how many are queued before answers are served again.
_SERVED_EVERY = 500
_WITHDRAWN = (GroupsLeftAlone, AppendWithdrawn)
# Longest wait for the reports of discarded records.
_PURGED_S = 1.0

Acknowledged = Callable[[TopicPartition, int, HubError | None], None]
_Answer = tuple[NewRecord, Acknowledged | None, KafkaError | None, Message]


class KafkaSender:
    """Idempotent producer with a bounded queue. Records are written in order per partition, each exactly
    once.

    ``send`` may be called from many threads. What could not be delivered is raised by the next ``send`` or
    ``flush``, except where the caller gave ``acknowledged``: then it is told there. A producer that is cut
    off is given up with all that is under way, whose outcome is unknown then, and ``send`` fails at once
    until Kafka answers (contact/watchdog.py).
    ``contact``: of the writer whose sender this is, which replaces the whole sender itself.
    """

    def __init__(
        self,
        cluster: Connection,
        part: str,
        *,
        linger_ms: int = 0,
        delivery_timeout_s: float = 60.0,
        contact: Contact | None = None,
        **more: Any,
    ) -> None:
        self.cluster = cluster
        self._renews = contact is None
        self._contact = contact or cluster.contacts.open(part)
        self._renewals = self._contact.renewals  # when the producer was made
        self._renewing = threading.Lock()
        self.part = part
        self.delivery_timeout_s = delivery_timeout_s
        timeout_ms = int(delivery_timeout_s * 1000)
        self._settings = cluster.settings(
            part,
            acks="all",
            enable_idempotence=True,
            # A partition that has nothing of a producer takes any sequence first: of two requests under way,
            # where the first is refused (a topic just made) and the second taken, the first's retry would
            # pass for a duplicate.
            max_in_flight=1,
            linger_ms=linger_ms,
            batch_size=262_144,
            compression_type="lz4",
            queue_buffering_max_messages=100_000,
            queue_buffering_max_kbytes=131_072,
            delivery_timeout_ms=timeout_ms,
            # A third, so that what is lost in a dead connection is sent again in time (by default after a
            # minute).
            request_timeout_ms=min(10_000, timeout_ms // 3),
            socket_timeout_ms=min(10_000, timeout_ms // 3) + 100,
            topic_metadata_propagation_max_ms=3_000,  # by default a missing topic is waited for 30 s
            **more,
        )
        self.fatal: KafkaError | None = None
        self.producer = made(Producer, self._settings)
        self._failed: list[HubError] = []
        self._answers: deque[_Answer] = deque()

    def send(self, new: NewRecord, acknowledged: Acknowledged | None = None) -> None:
        """Queue a record; waits while the queue is full. ``acknowledged`` is called with (partition, offset,
        error or None) from the thread that polls.
        """
        self._check_contact()
        self._produce(new, self._delivered(new, acknowledged))
        self.poll(0)

    def send_all(self, records: Iterable[NewRecord], acknowledged: Acknowledged) -> None:
        """Queue many records at half the cost of ``send`` for each: one callback per partition, and
        acknowledgements served at intervals.
        """
        self._check_contact()
        callbacks: dict[tuple[str, int | None], Callable[[KafkaError | None, Message], None]] = {}
        for number, new in enumerate(records, 1):
            delivered = callbacks.get((new.topic, new.partition))
            if delivered is None:
                # The callback uses only the topic and partition of the record.
                target = NewRecord(new.topic, None, None, partition=new.partition)
                delivered = callbacks[new.topic, new.partition] = self._delivered(target, acknowledged)
            self._produce(new, delivered)
            if number % _SERVED_EVERY == 0:
                self.poll(0)
        self.poll(0)

    def _check_contact(self) -> None:
        """Replace a cut-off producer once Kafka answers. Raises PeerError (HUB-3010) until then, and what
        could not be delivered.
        """
        contact = self._contact
        if contact.blocked or (contact.renewals != self._renewals and self._renews):
            with self._renewing:
                if contact.blocked:
                    self.drop()
                    self.poll(0)
                    raise self.cluster.cut_off(contact)
                if contact.renewals != self._renewals:
                    self.drop()
                    self._serve(lambda: self.producer.flush(_PURGED_S))
                    retire(self.producer)
                    self.producer, self._renewals = made(Producer, self._settings), contact.renewals
                    self.fatal = None
        self.raise_failed()

    def _delivered(
        self, new: NewRecord, acknowledged: Acknowledged | None
    ) -> Callable[[KafkaError | None, Message], None]:
        # Called from C, where an earlier callback's exception may be under way: Python then finds no
        # inherited attribute. So it only takes down what there is to say.
        def delivered(error: KafkaError | None, message: Message) -> None:
            self._answers.append((new, acknowledged, error, message))

        return delivered

    def _produce(self, new: NewRecord, delivered: Callable[[KafkaError | None, Message], None]) -> None:
        fields: dict[str, Any] = {"on_delivery": delivered}
        if new.headers:
            fields["headers"] = list(new.headers)
        if new.timestamp_ms is not None:
            fields["timestamp"] = max(1, new.timestamp_ms)  # librdkafka takes 0 for "now"
        if new.partition is not None:
            fields["partition"] = new.partition
        deadline = time.monotonic() + self.delivery_timeout_s
        while True:
            try:
                self.producer.produce(new.topic, new.value, new.key, **fields)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise self.cluster.down("append", "the queue is full and does not drain") from None
                self.poll(0.1)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._FATAL:  # since the last poll, which would have raised the reason
                    self.fatal = fatal_error(self.producer).args[0]
                grown = code == KafkaError._UNKNOWN_PARTITION and self._has_grown(new)
                if not grown or time.monotonic() > deadline:
                    raise self.error(error.args[0], _target(new)) from None
                self.poll(0.02)

    def _has_grown(self, new: NewRecord) -> bool:
        """Return whether brokers know a partition that the producer does not. The producer refreshes its
        metadata only every few minutes.
        """
        try:
            known = self.producer.list_topics(new.topic, self.delivery_timeout_s)
        except KafkaException as error:
            raise self.error(error.args[0], _target(new)) from None
        return new.partition in known.topics[new.topic].partitions

    def poll(self, timeout_s: float) -> None:
        """Serve acknowledgements for at most that long."""
        self._serve(lambda: self.producer.poll(timeout_s))

    def flush(self, timeout_s: float) -> None:
        """Wait until every sent record is acknowledged. Raises the first failure, or PeerError after the
        timeout.
        """
        left = self._serve(lambda: self.producer.flush(timeout_s))
        self.raise_failed()
        if left:
            self._contact.failed(f"append: {left} records are not acknowledged")
            raise self.cluster.down("append", f"{left} records are not acknowledged; the outcome is unknown")

    def raise_failed(self) -> None:
        if self._failed:
            failed, self._failed = self._failed[0], []
            raise failed

    def error(self, error: KafkaError, doing: str) -> HubError:
        """Translate an error; once the producer is beyond repair, the reason for that is every error."""
        if self.fatal is not None and self.fatal.code() in FENCED:
            return self.cluster.translated(self.fatal, f'writer "{self.part}"')
        return self.cluster.translated(error, doing)

    def drop(self) -> None:
        """Discard all pending records without waiting."""
        with contextlib.suppress(KafkaException):  # a fenced producer refuses even this
            self.producer.purge()

    def _serve(self, call: Callable[[], int]) -> int:
        """Polls and flushes raise what is fatal to the producer,
        at times from within a callback as SystemError."""
        try:
            return call()
        except (KafkaException, SystemError) as raised:
            cause = raised if isinstance(raised, KafkaException) else raised.__cause__
            if not isinstance(cause, KafkaException):
                cause = fatal_error(self.producer)
            self.fatal = cause.args[0]
            raise self.error(cause.args[0], f'writer "{self.part}"') from None
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Call the callback of each answered record."""
        while self._answers:
            try:
                new, acknowledged, error, message = self._answers.popleft()
            except IndexError:  # another thread took it
                return
            failed = None if error is None else self.error(error, _target(new))
            if failed is None:
                self._contact.answered()
            elif is_no_answer(failed) and error is not None:
                self._contact.failed(f"append: {error.str()}")
            if acknowledged is not None:
                tp, offset = TopicPartition(new.topic, message.partition()), message.offset()
                if failed is None and (offset is None or offset < 0):
                    # The broker took it for a duplicate. It is one when the answer to a first try was lost;
                    # where the topic was made again meanwhile it is not, and the record is nowhere.
                    failed = self.cluster.down(
                        "append", f"{tp}: no offset was reported; the outcome is unknown"
                    )
                acknowledged(tp, offset or 0, failed)
            elif failed is not None:
                self._failed.append(failed)


def _target(new: NewRecord) -> str:
    return f'topic "{new.topic}"' + ("" if new.partition is None else f" partition {new.partition}")


class KafkaWriter:
    """See hub.log.Writer. With a name: one transaction an append. Not thread safe.

    The brokers mark a transaction's end in its partitions a moment after they have confirmed it, and only
    then do readers and ``end_offsets`` see its records; to open the name again waits for that.
    """

    def __init__(self, cluster: Connection, name: str | None) -> None:
        self.cluster = cluster
        self.name = name
        self.fenced = False
        self._contact = cluster.contacts.open("writer")
        self._sender: KafkaSender | None = self._open()

    def append(self, records: Sequence[NewRecord]) -> Positions:
        """See Writer. Raises CallerError and NotFound when nothing was appended by a
        named writer for certain."""
        if not records:
            self._check_fenced()
            return Positions()
        return self._appended(lambda sender: self._send(sender, records))

    def append_with_groups(
        self, records: Sequence[NewRecord], groups: Mapping[str, Positions], check: Callable[[], None]
    ) -> Positions:
        """See GroupWriter. Records are written last, because an open transaction holds back readers of their
        topics.
        """
        if self.name is None:
            raise HubFault("positions of groups are committed by a writer with a name", code="HUB-5031")

        def carried(sender: KafkaSender) -> Positions:
            for group, positions in groups.items():
                self._add_group(sender, group, positions)
            check()
            return self._send(sender, records)

        return self._appended(carried)

    def append_if(self, records: Sequence[NewRecord], check: Callable[[Positions], None]) -> Positions:
        """See ConditionalWriter."""
        assert self.name is not None

        def checked(sender: KafkaSender) -> Positions:
            check(after := self._send(sender, records))
            return after

        return self._appended(checked)

    def _check_fenced(self) -> None:
        if self.fenced:  # reopening would take the name back from the current writer
            raise WriterFenced(f'writer "{self.name}": replaced by a later one of the same name')

    def _appended(self, work: Callable[[KafkaSender], Positions]) -> Positions:
        """Run ``work`` and return the positions after its records;
        a named writer runs it in one transaction."""
        self._check_fenced()
        if self._contact.blocked:
            raise self.cluster.cut_off(self._contact)
        if self._sender is None:
            self._sender = self._open()
        sender = self._sender
        try:
            if self.name is None:
                return work(sender)
            self._do(sender, sender.producer.begin_transaction, "begin transaction")
            try:
                after = work(sender)
            except _WITHDRAWN:
                # The producer is as good as before, and stays: to open another one would take the name back.
                self._do(sender, lambda: sender.producer.abort_transaction(self.cluster.timeout_s), "abort")
                raise
            self._do(sender, lambda: sender.producer.commit_transaction(self.cluster.timeout_s), "commit")
            return after
        except _WITHDRAWN:
            raise
        except HubError as error:
            self.fenced = isinstance(error, WriterFenced)
            self._abandon(sender, refused=isinstance(error, CallerError))
            raise

    def close(self) -> None:
        if self._sender is not None:
            with contextlib.suppress(HubError):  # every append has heard about its own records
                self._sender.flush(self.cluster.timeout_s)
            self._sender = None
        self.cluster.contacts.close(self._contact)

    def _open(self) -> KafkaSender:
        # Copies of other producers' records, and rows that are made of them: the topic decides.
        more: dict[str, Any] = {"message_max_bytes": _LARGEST_COPY}
        if self.name is not None:
            more["transactional_id"] = self.name
            more["transaction_timeout_ms"] = int(self.cluster.timeout_s * 1000)
        sender = KafkaSender(
            self.cluster,
            self.name or "writer",
            delivery_timeout_s=self.cluster.timeout_s,
            contact=self._contact,
            **more,
        )
        if self.name is not None:
            self._do(sender, lambda: sender.producer.init_transactions(self.cluster.timeout_s), "open")
            self._contact.answered()
        return sender

    def _send(self, sender: KafkaSender, records: Sequence[NewRecord]) -> Positions:
        after: dict[TopicPartition, int] = {}
        failed: list[HubError] = []

        def acknowledged(tp: TopicPartition, offset: int, error: HubError | None) -> None:
            if error is not None:
                failed.append(error)
            else:
                after[tp] = max(after.get(tp, 0), offset + 1)

        sender.send_all(records, acknowledged)
        sender.flush(self.cluster.timeout_s + 1)
        if failed:
            raise failed[0]
        return Positions(after)

    def _add_group(self, sender: KafkaSender, group: str, positions: Positions) -> None:
        try:
            add_positions(sender.producer, group, positions, self.cluster.timeout_s)
        except KafkaException as error:
            failed = self._failure(sender, error.args[0], f'group "{group}": commit')
            if isinstance(failed, CallerError) or failed.code == REFUSED:
                raise GroupsLeftAlone(failed.message, [group]) from None
            raise failed from None

    def _do(self, sender: KafkaSender, call: Callable[[], object], doing: str) -> None:
        try:
            call()
        except KafkaException as error:
            raise self._failure(sender, error.args[0], f'writer "{self.name}": {doing}') from None

    def _failure(self, sender: KafkaSender, error: KafkaError, doing: str) -> HubError:
        failed = sender.error(error, doing)
        if is_no_answer(failed):
            self._contact.failed(f"{doing}: {error.str()}")
        return failed

    def _abandon(self, sender: KafkaSender, *, refused: bool) -> None:
        """Discard the sender: a late EndTxn must not meet its next transaction (librdkafka lacks KIP-890)."""
        self._sender = None
        sender.drop()
        if refused and self.name is not None:  # else readers of the topic wait for the transaction's time-out
            with contextlib.suppress(KafkaException):
                sender.producer.abort_transaction(self.cluster.timeout_s)
