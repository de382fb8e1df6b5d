"""Topics: the tree of topics in git, what to change so that the cluster matches it, and the way in for events.

What this package knows: ``topics.yaml``, a tree of labels whose settings are inherited downwards, and what the cluster and
the registry have. A topic's name is the path of its labels: ``nyc.jfk.departures``.

Flow::

    topics.yaml ─▶ tree/: plan ─▶ steps (the very plan that is shown) ─▶ apply ─▶ cluster, registry
    HTTP, Python ─▶ gateway/: split, encoded, bounded, acknowledged ─▶ topic; one answer a record
    topic        ─▶ conformance/: judged, whoever wrote it ─▶ _hub.audit, and <topic>.quarantine in the same transaction
    <topic>.dlq  ─▶ dead_letters/: listed, repaired, replayed ─▶ topic

    tree/           topics.yaml, plans, drift
    gateway/        records in, over HTTP and from Python
    conformance/    does each record satisfy its topic's schema?
    dead_letters/   dead-letter records: listed, repaired, replayed, dismissed
    browse/         one topic, closely: settings, messages, readers
"""
