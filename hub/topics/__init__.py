"""Topics: the tree of topics in git, what to change so that the cluster is like it, and the way in for events.

What it knows: ``topics.yaml``, a tree of labels whose settings are inherited downwards, and what the cluster and the
registry have. A topic's name is the path of its labels: ``nyc.jfk.departures``.

Flow::

    topics.yaml ─▶ tree.py ─▶ plan.py ─▶ steps (the very plan that is shown) ─▶ apply.py ─▶ cluster, registry
         ▲                      │  └─▶ saved.py: a file, applied later or refused when the cluster has changed
         │                      └────▶ drift.py: what differs, and who is right
    imported.py ◀─ cluster ─▶ describe.py: one topic, closely
    event       ─▶ producer.py: encoded with the subject's latest schema ─▶ topic; the answer is its position

[core]  tree.py  inheritance, patterns     plan.py  desired and actual into steps and refusals     drift.py     saved.py
        imported.py  topics into the shortest tree that says the same
[shell] apply.py reads what a plan needs, rehearses it, carries it out in batches     describe.py  asks many within one wait
        producer.py  encodes and appends
[edge]  routes.py  HTTP     log_dirs.py  the request for sizes that librdkafka does not know
"""
