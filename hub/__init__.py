"""An event-log-centric integration hub: one ordered log of typed events, and everything else a fold of it.

Layers, importing downwards only::

    cli                                    one file a noun; the composition root
    client                                 the hub from Python, over HTTP alone; knows nothing of the server's packages
    api                                    the HTTP app: every package's routes, errors to status codes
    demo                                   sample systems whose events fill the log
    completeness                           the ledger of what was written and what is there; canaries
    materializers replication observability    (siblings: they do not know each other)
    alerts                                 what was promised, watched; people told of it once
    topics                                 the tree of topics: settings, plan, publishing
    schema_registry                        Confluent's REST API over the log ``_schemas``
    config kafka runtime embedded          edges: settings, confluent-kafka, the loop, local processes
    log record histogram errors            [core] pure values and ports
    tracing                                trace contexts in headers, spans to a collector; known to all
"""
