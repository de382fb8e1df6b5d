"""How late, how fast, how healthy: what the dashboard, ``hub lag`` and ``/metrics`` show.

It knows: *a position's lag in seconds is the age of the oldest event behind it*. When that event arrived is not read
from its timestamp (a replay carries old ones, a clock may lie) but bracketed by *anchors*: the end offsets seen at
each poll, and, for what came before the first poll, by asking the log for offsets by time. So every lag comes with an
error bound that holds, also for idle topics, bursts and replays, and right after a restart.

Flow: a ``Collector`` polls Kafka's end offsets and the views' progress, each in a thread of its own, because one that
hangs must not make the other look old. Requests only read its last ``Overview``; no request waits for Kafka. What is
not known is shown as unknown, never as zero.

::

    anchors.py   [core]   ring of (end offset, seen, still true): when an offset arrived, as a bracket
    lag.py       [core]   lag of a position in records and seconds with its bound; assess(): state and cause
    rates.py     [core]   events per second out of the same ring
    timed.py     [core]   when a record was written, as a bracket: answers to "first offset at or after T"
    connect.py   [core]   Kafka Connect's connectors and tasks, and what of it is not known
    connect_workers.py [edge] its workers over REST, each asked in a thread of its own
    consumers.py [core]   any consumer's reading: group, view, applier; the rows of /api/lag
    status.py    [core]   ten states out of a history of readings, each with its cause
    latency.py   [core]   how long events take to readers, over the last minutes
    pushes.py    [core]   when subscribers were told of events that no row names
    overview.py  [core]   the numbers of one moment, as values; the JSON of /api/overview
    lineage.py   [core]   what events go through, why one is late, as a picture and as OpenLineage
    reports.py   [core]   a view's progress and state records as one report
    collector.py [shell]  the two threads that keep the overview fresh
    monitor.py   [shell]  rounds of measuring every consumer, in bulk and bounded
    routes.py    [edge]   FastAPI: page, fragments, JSON
    metrics.py   [edge]   the same overview in Prometheus' text format
    web/                  templates and static files of our own; htmx comes from the package django-htmx

Siblings (materializers) are not imported: ``hub.api`` passes in a ``ViewSource``.
"""
