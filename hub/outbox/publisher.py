"""[shell] Write events into the outbox table, within the caller's transaction.

The event is encoded and checked before it is written, with the topic's latest schema, as the produce gateway
does. A schema is looked up at the first event of a topic and every 30 s, so a running application goes on
writing while the registry is away.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from typing import Any

import orjson

from hub.config import with_credentials
from hub.errors import CallerError
from hub.outbox.database import TABLE
from hub.outbox.statements import execute, execute_async
from hub.record import Record
from hub.schema_registry.client.port import SchemaRegistry
from hub.schema_registry.client.registry_client import RegistryClient
from hub.topics.conformance.rules import judge
from hub.topics.conformance.schema_ids import SchemaIdCache
from hub.topics.gateway.event_encoder import EventEncoder

_INSERT = (
    "INSERT INTO {table} (id, aggregatetype, aggregateid, type, payload, headers) "
    "VALUES (CAST(:id AS uuid), :topic, :key, :type, :payload, CAST(:headers AS jsonb))"
)


class _Rows:
    """Rows of the outbox table, encoded and checked."""

    def __init__(
        self, url: str, token: str | None, table: str, registry: SchemaRegistry | None, timeout_s: float
    ) -> None:
        token = token or os.environ.get("HUB_TOKEN")
        user, colon, password = (token or "").partition(":")
        who = None if not token else (user, password) if colon else ("token", token)
        self.registry = registry or RegistryClient(with_credentials(url, who), timeout_s)
        self._encoder = EventEncoder(self.registry)
        self._ids = SchemaIdCache(self.registry)
        if not all(part.replace("_", "").isalnum() for part in table.split(".")):
            raise CallerError(f'"{table}" is not a table', hint="write table or schema.table")
        self.statement = _INSERT.format(table=table)

    def row(
        self, topic: str, key: str, value: Any, type_: str | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return the columns of an event. Raises CallerError, NotFound (no schema), PeerError."""
        if not topic or not key:
            raise CallerError(f'topic "{topic}": topic and key of an event may not be empty')
        return {
            "id": str(uuid.uuid4()),
            "topic": topic,
            "key": key,
            "type": type_,
            "payload": self._payload(topic, value),
            "headers": orjson.dumps({**headers}).decode(),
        }

    def _payload(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, bytes | bytearray | memoryview):
            return self._checked(topic, bytes(value))
        return self._encoder.encoded(topic, value)

    def _checked(self, topic: str, value: bytes) -> bytes:
        """Return bytes that are in the wire format of the topic's schema, or whose topic has none."""
        if self.registry.known_latest(f"{topic}-value") is None:
            return value
        self._ids.forget()
        violation = judge(Record(topic, 0, 0, 0, None, value), self._ids.of(f"{topic}-value"))
        if violation is not None:
            raise CallerError(
                f'topic "{topic}" has a schema, and the bytes are not in its format: {violation.detail}',
                hint="pass the event as a dict: it is encoded with the schema",
            )
        return value


class Outbox:
    """Outbox of an application. Thread safe.

    ``url``: the hub's server, for schemas; ``token`` as in ``hub.client.Hub``. ``table`` as in
    ``hub outbox init``.

    ::

        outbox = Outbox("http://127.0.0.1:8088")
        with Session(engine) as session, session.begin():
            session.add(order)
            outbox.publish(session, "shop.orders", order.id, {"order_id": order.id, "status": "placed"})
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8088",
        *,
        token: str | None = None,
        table: str = TABLE,
        registry: SchemaRegistry | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._rows = _Rows(url, token, table, registry, timeout_s)

    def publish(
        self,
        session: Any,
        topic: str,
        key: str,
        value: Any,
        *,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Write an event in the session's transaction and return its id (the header ``id`` in Kafka).

        ``session``: SQLAlchemy's Session or Connection, psycopg's Connection or Cursor. ``value``: a dict in
        the topic's schema, bytes that are checked against it, or None for a tombstone. ``type`` becomes the
        header ``eventType``. Raises CallerError naming the field, NotFound (no schema), PeerError.
        """
        row = self._rows.row(topic, key, value, type, headers or {})
        execute(session, self._rows.statement, row)
        return str(row["id"])


class AsyncOutbox(Outbox):
    """``Outbox`` for AsyncSession, AsyncConnection and psycopg's AsyncConnection.

    ::

        await outbox.publish(session, "shop.orders", order.id, {"order_id": order.id, "status": "placed"})
    """

    async def publish(  # type: ignore[override]
        self,
        session: Any,
        topic: str,
        key: str,
        value: Any,
        *,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """``Outbox.publish()``, awaited. Schemas are looked up in a thread."""
        row = await asyncio.to_thread(self._rows.row, topic, key, value, type, headers or {})
        await execute_async(session, self._rows.statement, row)
        return str(row["id"])
