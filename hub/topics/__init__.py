"""Topics: the topic tree, the produce gateway, conformance checks and dead-letter records.

``topics.yaml`` declares a tree of labels whose settings are inherited downward. A topic's name is the path of
its labels: ``nyc.jfk.departures``.

Flow::

    topics.yaml ─▶ tree/: plan ─▶ steps (applied exactly as shown) ─▶ apply ─▶ cluster, registry
    HTTP, Python ─▶ gateway/: split, encoded, bounded, acknowledged ─▶ topic; one answer per record
    webhook      ─▶ webhooks/: verified by its sender's signature ─▶ gateway/
    topic        ─▶ conformance/: every record checked ─▶ _hub.audit, <topic>.quarantine (one transaction)
    <topic>.dlq  ─▶ dead_letters/: listed, repaired, replayed ─▶ topic

    tree/           topics.yaml, plans, drift
    gateway/        produce over HTTP and from Python
    conformance/    check each record against its topic's schema
    dead_letters/   list, repair, replay and dismiss dead-letter records
    webhooks/       signed requests of other systems, as events
    browse/         one topic in detail: settings, messages, readers
"""
