"""Completeness: did everything that was written arrive? Counts and sums of ids, tier by tier, and canaries.

::

    producer ─ acknowledged ─▶ log ─ mirror ─▶ the copy
        │                       │                  │            each tier counts, by minute of the records' timestamps:
     receipts                 read              read            how many records, and the sum of their ids modulo 2^64
        └───────────────┬───────┴──────────────────┘
                  _hub.ledger  (compacted)  ─▶ /api/audit, hub audit show, /metrics

An entry names the offsets it covers. So writing it twice changes nothing, and offsets that no entry covers are *not
audited*, never lost. Entries are compared in pairs over the same offsets. Sums find what counts alone miss: one record lost
and another written twice. Two sums of different records agree by chance with probability 2^-64; someone who chooses ids
can make them agree.

Conformance (``hub.topics.conformance``) answers another question: does each record satisfy its topic's schema?

    counts.py            [core]  ids, entries, their comparison, and what it means
    receipts.py          [shell] records that producers were told are in the log
    batch_reader.py      [edge]  the batches of a log: records, and why offsets hold none
    counting.py          [shell] one run: count what is not audited yet, and its copies
    counts_follower.py   [shell] the entries in memory, for whoever asks
    minutes.py           [core]  counts by minute, for the page /completeness
    objectives.py        [core]  observations for alerts
    routes.py            [edge]  FastAPI
    canary/              one record a second through every path
"""
