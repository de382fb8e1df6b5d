"""Time series of the hub's measurements, kept for charts.

catalog.py     [core]  objects, their metrics and units, the panels of a page, and PromQL of each metric
rollup.py      [core]  buckets (number, sum, smallest, largest), levels, ranges
sampling.py    [core]  the measurements of one moment as samples; unknown values have none
marks.py       [core]  events beside the lines: swaps of views, starts of processes, failovers, alerts
selection.py   [core]  which objects are kept finely when there are more than the limit
database.py    [edge]  SQLite in the home folder: samples, marks, retention, the limit of bytes
prometheus.py  [edge]  the same series from Prometheus, where `prometheus_url` names one
recorder.py    [shell] one round each sampling interval: moment, samples, marks, one transaction
answers.py     [core]  JSON and CSV of `/api/series`
reading.py     [shell] series of a range, from Prometheus or the database; what the caller may see

Flow::

    collector, monitor, latency, health, mirrors, alerts ─▶ Moment ─▶ samples ─▶ 10 s ─▶ 1 min ─▶ 1 h
                                                               └─▶ marks ─▶ charts, /api/series

A bucket without a sample is a gap: unknown is never 0. A round is one transaction that adds its samples to
all levels, so a kill at any time loses at most the round that was not committed, and doubles nothing.
"""
