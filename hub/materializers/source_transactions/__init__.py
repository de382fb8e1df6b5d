"""Source transactions of a database, from the topics of Debezium: which are complete.

With ``provide.transaction.metadata`` Debezium writes the begin and the end of each transaction to a topic of
its own, with the number of rows of each table. Two features read it: sinks with ``assemble:`` make one event
of a transaction, and views with ``consistent_with: transaction`` never show a part of one.

    PREFIX.transaction    BEGIN 7 ───────────── END 7: orders 1, lines 2   BEGIN 8 ──
    PREFIX.public.orders         row of 7                │                       row of 8
    PREFIX.public.lines          row of 7, row of 7      │ row of 8, …
                                                        cut: everything of 7, nothing of 8

    changes.py       [core]  records of Debezium as boundaries of transactions and as changes of rows
    transactions.py  [core]  open transactions: which are complete, which can never be, what is read next
    decoding.py      [shell] values of records: JSON, or in the registry's format
    cuts.py          [shell] places in the log that divide no transaction, read ahead of a view
"""
