"""Records of the topic ``_hub.progress``: positions and states of views and stores.

records.py           [core]  positions and states of views
engine_reports.py    [core]  the materializer's own report
store_reports.py     [core]  an applier's report about its store
view_states.py       [core]  the one state of a view, judged from all of these
progress_queue.py    [shell] what waits to be written           published.py        [edge]  one view's last progress
late_events.py       [core]  how late events were
store_watch.py       [shell] the records followed in the server
latency.py           [core]  how long events take to a store     latency_samples.py  [shell] looked up in the log
batch_traces.py      [shell] a span for each batch               span_counts.py      [shell] span counts by outcome
"""  # noqa: E501
