"""Lag, throughput and health of the hub, for the dashboard, ``hub lag`` and ``/metrics``.

*A position's lag in seconds is the age of the oldest event behind it.* The arrival time of that event is not
its timestamp: a replay carries old timestamps, and a producer's clock may be wrong. It is bracketed by
*anchors*: the end offsets observed at each poll and, for older events, the log's answer to "first offset at
or after T". Every lag therefore has an error bound that also holds for idle topics, bursts, replays, and
right after a restart.

A ``Collector`` polls Kafka's end offsets and the views' progress in two threads, so that a hang of one does
not make the other look stale. Requests read its last ``Overview``; no request waits for Kafka. Unknown values
are shown as unknown, never as zero.

    lag/         offsets to ages; the state of a consumer and its cause
    latency/     time from an event to the readers of views
    lineage/     graph of topics, views, stores and readers, with the lag on each edge
    overview/    collector, monitor, and the values of one moment
    cluster/     brokers, disks, Kafka Connect, the hub's own processes
    export/      Prometheus, observations for alerts, JSON
    web/         the web app: templates, static files, one module a page
    format.py    [core] numbers, durations and times as text

Materializers are a sibling package and not imported: ``hub.api`` passes in a ``ViewSource``.
"""
