"""Topics: the tree of topics in git, what to change so that the cluster is like it, and the way in for events.

What it knows: ``topics.yaml``, a tree of labels whose settings are inherited downwards, and what the cluster and the
registry have. A topic's name is the path of its labels: ``nyc.jfk.departures``.

Flow::

    topics.yaml ─▶ tree.py ─▶ plan.py ─▶ steps (the very plan that is shown) ─▶ apply.py ─▶ cluster, registry
         ▲                      │  └─▶ saved.py: a file, applied later or refused when the cluster has changed
         │                      └────▶ drift.py: what differs, and who is right
    imported.py ◀─ cluster ─▶ describe.py: one topic, closely
    event       ─▶ producer.py: encoded with the subject's latest schema ─▶ topic; the answer is its position
    HTTP        ─▶ gateway.py: split, encoded, bounded, acknowledged ─▶ topic; one answer a record
    topic       ─▶ auditor.py: judged, whoever wrote it ─▶ _hub.audit, and <topic>.quarantine in the same transaction

[core]  tree.py  inheritance, patterns     plan.py  desired and actual into steps and refusals     drift.py     saved.py
        imported.py  topics into the shortest tree that says the same
        produce_request.py  what a request says     idempotency.py  requests that come twice
        audit.py  the judgement, tallies, copies     key_fields.py  which field of an event is its key
[shell] apply.py reads what a plan needs, rehearses it, carries it out in batches     describe.py  asks many within one wait     readers.py  who reads a topic
        producer.py  encodes and appends     gateway.py  many at once, over HTTP     auditor.py  the process that judges
[edge]  routes.py, gateway_routes.py, audit_routes.py  HTTP     log_dirs.py  sizes, which librdkafka cannot ask for
"""
