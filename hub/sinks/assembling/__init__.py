"""Source transactions of a database as domain events: an order with its lines, once, after its commit.

Debezium writes the rows of each table to a topic of its own. With ``provide.transaction.metadata`` it writes
the begin and the end of each transaction to another one, with the number of rows of each table. A sink with
``assemble:`` reads all of them and puts the rows together::

    PREFIX.transaction  BEGIN 7 ─────────────── END 7: orders 1, lines 2 ──┐
    PREFIX.public.orders        row of 7 ──────────────────────────────────┼──▶ one event of transaction 7
    PREFIX.public.lines              row of 7, row of 7 ───────────────────┘

Transactions are closed in the order of their BEGIN, which is that of their commits. Debezium writes them one
after the other, so in each partition the rows of open transactions are behind those of closed ones: the first
open row of each partition is the position that the sink commits, in the Kafka transaction of the events. A
worker that is killed reads the open rows again, and no other.

    entry.py         [edge]  ``assemble:`` in sinks.yaml
    domain_event.py  [core]  the changes of a transaction as events, and their schema
    assembler.py     [shell] one round of such a sink: read, close, append with the positions

``hub/materializers/source_transactions/`` reads Debezium's records and decides which transactions are
complete.
"""
