"""Sinks: records of topics and rows of views, chosen by content, to webhooks, topics, databases, files
and search clusters.

A sink reads one topic and keeps its position where its target can hold it in the same transaction::

    Kafka ──▶ selection: where, fields ──▶ target ──▶ position
                 │ records that cannot be decoded, or that the target refuses for good
                 └──▶ <topic>.dlq

``topic`` and the dead-letter records: one Kafka transaction with the position of group ``hub.sink.NAME``.
``database``: the position is a row beside the rows, in one transaction. ``files``: the offsets are in the
names of the files. ``webhook``: the position follows the answers, so a request may come twice, with the same
``webhook-id``. ``search``: likewise; a repeated document has the same version, which changes nothing.
Every round also commits the position to the group by a writer named after the sink, which fences an
earlier worker of the same sink.

    sinks_file.py  [edge]  ``sinks.yaml``
    events.py      [core]  records as events: text of an event, ids, lanes of keys, positions of a part
    selection.py   [edge]  ``where`` and ``fields`` over a page of records, in SQLite in memory
    owner.py       [shell] the grants of the owner as whom a sink acts
    sink.py        [shell] one sink: read, select, deliver, commit
    assembler.py   [shell] one sink with ``assemble``: rows of a source transaction as one event
    commits.py     [shell] positions, dead-letter records and records in one transaction
    trial.py       [shell] checks before a sink runs, and the newest event that it takes
    worker.py      [shell] all sinks of a file, each in a thread; the file and pauses followed
    note.py        [edge]  state of all sinks in a file of the home folder, as rows and as metrics
    observe.py     [shell] sinks in alerts, on their page and in the lineage
    assembling/            source transactions: their boundaries, rows and events
    targets/               the five kinds of targets
"""
