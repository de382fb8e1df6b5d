"""Observability: how late, how fast and how healthy everything is, for the dashboard, ``hub lag`` and ``/metrics``.

*A position's lag in seconds is the age of the oldest event behind it.* When that event arrived is not read from its
timestamp (a replay carries old ones, a clock may be wrong) but bracketed by *anchors*: the end offsets seen at each poll,
and, for anything older, the log's answer to "first offset at or after T". So every lag comes with an error bound that
also holds for idle topics, bursts and replays, and right after a restart.

A ``Collector`` polls Kafka's end offsets and the views' progress, each in a thread of its own, because one that hangs must
not make the other look old. Requests read its last ``Overview``; no request waits for Kafka. What is not known is shown as
unknown, never as zero.

    lag/         offsets to ages; the state of a consumer and its cause
    latency/     how long events take to readers of views
    lineage/     which topics become which views, and where it is late
    overview/    collector, monitor, and the values of one moment
    cluster/     brokers, disks, Kafka Connect, the hub's own processes
    export/      Prometheus, observations for alerts, JSON
    web/         the web app: templates, static files, one module a page
    format.py    [core] numbers, durations and times as people read them

Materializers are a sibling and not imported: ``hub.api`` passes in a ``ViewSource``.
"""
