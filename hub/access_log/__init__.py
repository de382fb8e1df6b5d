"""The access log: who did what, in the topic ``_hub.access_log`` (docs/adr/0046-access-log.md).

::

    guard of the server, command line ─ Entry ─▶ writer.py ─ chain.py: hash of the previous record ─▶ Kafka
                                                    ▲
                      request.py: facts of the request that only deeper code knows (SQL, masked objects)

A change waits until Kafka has its record, and does not happen without. Reads and refusals are queued;
repetitions within a minute become one record with their count. Records of one process are a hash chain, and
checkpoints of it are signed with a key of the home, so ``hub access audit verify`` finds a record that was
removed, changed or moved.

    actions.py   [core]  the closed list of actions and results
    entry.py     [core]  an entry, and its CloudEvent
    chain.py     [core]  chains of hashes with signed checkpoints
    verifying.py [core]  check the chains of a topic
    repeats.py   [core]  count repeated reads
    signed_reports.py [core] reports of other packages, signed with the key of the checkpoints
    request.py   [core]  facts that a request notes while it is answered
    writer.py    [shell] the thread that writes
    search.py    [shell] read entries back, with filters
"""
