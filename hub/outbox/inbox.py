"""[shell] Process an event and its effect in one commit of the consumer's database.

A row per (consumer, topic, partition) holds the next offset; it is written in the transaction of the effect.
An event that was delivered again finds its offset passed. With ``event_id``, a row per event is kept instead:
for events that may stand in the log twice.
"""

from __future__ import annotations

from typing import Any

from hub.errors import CallerError
from hub.outbox.statements import execute, execute_async, rows_async
from hub.record import Positions, TopicPartition

CREATE = (
    """CREATE TABLE IF NOT EXISTS hub_inbox (
  consumer varchar(200) NOT NULL,
  topic varchar(249) NOT NULL,
  "partition" integer NOT NULL,
  next_offset bigint NOT NULL,
  PRIMARY KEY (consumer, topic, "partition")
)""",
    """CREATE TABLE IF NOT EXISTS hub_inbox_events (
  consumer varchar(200) NOT NULL,
  event_id varchar(200) NOT NULL,
  seen_at timestamp DEFAULT CURRENT_TIMESTAMP NOT NULL,
  PRIMARY KEY (consumer, event_id)
)""",
)
# The row is locked until the transaction ends: of two consumers of one partition, the second waits and finds
# it passed.
_BY_POSITION = (
    'INSERT INTO hub_inbox (consumer, topic, "partition", next_offset) '
    'VALUES (:consumer, :topic, :part, :next) ON CONFLICT (consumer, topic, "partition") DO UPDATE '
    "SET next_offset = excluded.next_offset WHERE hub_inbox.next_offset < excluded.next_offset RETURNING 1"
)
_BY_ID = (
    "INSERT INTO hub_inbox_events (consumer, event_id) VALUES (:consumer, :event_id) "
    "ON CONFLICT DO NOTHING RETURNING 1"
)
_POSITIONS = 'SELECT topic, "partition", next_offset FROM hub_inbox WHERE consumer = :consumer'


class Inbox:
    """Inbox of one consumer. Thread safe: all state is in the database.

    ::

        inbox = Inbox("billing")
        with Session(engine) as session, session.begin():
            if inbox.first(session, topic="shop.orders", partition=0, offset=42):
                session.add(Invoice(...))
    """

    def __init__(self, consumer: str) -> None:
        self._consumer = _name(consumer)

    def create(self, session: Any) -> None:
        """Create the tables if they do not exist."""
        for statement in CREATE:
            execute(session, statement, {})

    def first(
        self,
        session: Any,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        event_id: str | None = None,
    ) -> bool:
        """Return True if the event was not processed yet, and mark it in the session's transaction. If that
        transaction is rolled back, the event is not processed. Give topic, partition and offset, or
        ``event_id``. Raises CallerError.
        """
        return execute(session, *self._mark(topic, partition, offset, event_id)).fetchone() is not None

    def positions(self, session: Any) -> Positions:
        """Return the next offset of each partition: where the consumer continues after a restart."""
        return _positions(execute(session, _POSITIONS, {"consumer": self._consumer}).fetchall())

    def _mark(
        self, topic: str | None, partition: int | None, offset: int | None, event_id: str | None
    ) -> tuple[str, dict[str, Any]]:
        if event_id is not None and topic is None and offset is None:
            return _BY_ID, {"consumer": self._consumer, "event_id": event_id}
        if topic is None or partition is None or offset is None or event_id is not None:
            raise CallerError("an event is named by topic, partition and offset, or by event_id alone")
        values = {"consumer": self._consumer, "topic": topic, "part": partition, "next": offset + 1}
        return _BY_POSITION, values


class AsyncInbox(Inbox):
    """``Inbox`` for AsyncSession, AsyncConnection and psycopg's AsyncConnection; await each method."""

    async def create(self, session: Any) -> None:  # type: ignore[override]
        for statement in CREATE:
            await execute_async(session, statement, {})

    async def first(  # type: ignore[override]
        self,
        session: Any,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        event_id: str | None = None,
    ) -> bool:
        result = await execute_async(session, *self._mark(topic, partition, offset, event_id))
        return await rows_async(result) != []

    async def positions(self, session: Any) -> Positions:  # type: ignore[override]
        result = await execute_async(session, _POSITIONS, {"consumer": self._consumer})
        return _positions(await rows_async(result))


def _positions(rows: Any) -> Positions:
    return Positions({TopicPartition(row[0], row[1]): row[2] for row in rows})


def _name(consumer: str) -> str:
    if not consumer or len(consumer) > 200:
        raise CallerError("the name of a consumer has 1 to 200 characters")
    return consumer
