"""Completeness: verify that all written records arrived, by counts and id sums from tier to tier, and by
canaries.

::

    producer ─ acknowledged ─▶ log ─ mirror ─▶ the copy
        │                       │                  │            each tier counts, by minute of the records' timestamps:
     receipts                 read              read            how many records, and the sum of their ids modulo 2^64
        └───────────────┬───────┴──────────────────┘
                  _hub.ledger  (compacted)  ─▶ /api/audit, hub completeness show, /metrics

An entry names the offsets that it covers. Writing it twice therefore changes nothing, and offsets that no
entry covers are *not audited*, never lost. Entries are compared in pairs over the same offsets. Sums detect
what counts alone miss: one record lost and another written twice. Two sums of different records are equal by
chance with probability 2^-64; someone who chooses ids can make them equal.

Conformance (``hub.topics.conformance``) is a different check: each record against its topic's schema.

    counts.py            [core]  ids, entries and their records
    balances.py          [core]  comparison of entries: state and cause of each producer, mirror and view
    receipts.py          [shell] counts of the records that producers have acknowledged
    batch_reader.py      [edge]  the batches of a log: records, and why offsets hold none
    counting.py          [shell] one run: count what is not audited yet, and its copies
    receipt_search.py    [shell] records for which producers have receipts
    counts_follower.py   [shell] the entries in memory, for queries
    minutes.py           [core]  counts by minute, for the page /completeness
    objectives.py        [core]  observations for alerts
    routes.py            [edge]  FastAPI
    canary/              one record per second along every route
"""  # noqa: E501
