"""History of rows: the versions of a view's rows within a time, and the events that made them (ADR 0063).

A view with ``history: 30d`` keeps each version of its rows beside them, in SQLite and Postgres. A version
begins at the time of its changelog record: when the row was published, the same in every store. The row as of
a time is its highest version that began by then.

A period is a time in which readers got one table (``orders``, then ``orders@2``). The answer about a time is
that of the table that was served then, so swaps and rollbacks are part of the history.

::

    applier ── versions of a step ──▶ history tables ──▶ as of a time, timeline, SQL

    spec.py      [core] how a store notes the kept time
    periods.py   [core] periods, and the one that answers for a time
    changes.py   [core] which versions are kept, and the fields that changed
    causes.py    [core] the events that made a change: exactly these, or some within these positions
"""
