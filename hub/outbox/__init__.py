"""Outbox and inbox: events in and out of an application's own database transaction.

An application writes an event as a row of its own database, in the transaction of its business data
(``publisher.py``). The relay reads committed rows from the database's log by logical decoding, in commit
order, and appends each to Kafka exactly once: records and position are one Kafka transaction. The position
is ``(LSN, events of the transaction at that LSN)``, so a large transaction is relayed in parts.

::

    application ──▶ table hub_outbox ──▶ WAL ──▶ slot (pgoutput) ──▶ relay ──▶ topics, _hub.outbox (position)

pgoutput.py      [core]  decode messages of Postgres' logical replication
events.py        [core]  rows of the table as events, with positions; batches
checkpoints.py   [core]  records of ``_hub.outbox``: positions, and events that Kafka refused
replication.py   [edge]  a replication connection: messages in, confirmations out
database.py      [edge]  table, publication, slot, and the checks of a database
statements.py    [edge]  SQL in the caller's session: SQLAlchemy or psycopg, sync or async
publisher.py     [shell] ``Outbox`` and ``AsyncOutbox``
inbox.py         [shell] ``Inbox`` and ``AsyncInbox``: an event and its effect in one commit
relay.py         [shell] the relay: one connection, one writer, one loop
note.py          [edge]  the relay's state as a file in the home folder, and as metrics
relay_state.py   [core]  that state in words
"""
