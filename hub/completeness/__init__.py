"""Completeness: is everything there that was written? A ledger of counts and sums of ids, tier by tier; and canaries.

::

    producer ─ acknowledged ─▶ log ─ mirror ─▶ the copy
        │                       │                  │            each tier counts, by minute of the records' timestamps:
     receipts                 read              read            how many, and the sum of their ids modulo 2^64
        └───────────────┬───────┴──────────────────┘
                  _hub.ledger  (compacted)  ─▶ /api/audit, hub audit show, /metrics

An entry names the offsets it covers, so it may be written twice and what it does not cover is *not audited*, which is never
called lost. Entries are compared in pairs over the very same offsets. Sums find what counts alone do not: one record lost and
another one twice. Two sums of different records agree by chance with probability 2^-64; who can choose ids can make them agree.

``hub topic audit`` (``hub.topics.audit``) is another question: is each record what its topic's schema promises?

    ledger.py    [core] ids, cells, entries, their comparison, what it means
    receipts.py  [shell] what producers were told: counted, and kept in the ledger
    reading.py   [edge] a log's batches: records, and what its missing offsets were
    audit.py     [shell] a run: reads what is not audited yet, and its copies
    follow.py    [shell] the ledger followed, for those who ask
    heat.py      [core] the ledger minute by minute, for the page /completeness
    routes.py    [edge] FastAPI
    canary.py canary_filters.py canaries.py canary_routes.py   records a second that show whether the way is open
"""
