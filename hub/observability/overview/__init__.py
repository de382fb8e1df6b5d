"""The state of everything at one moment, kept fresh by threads so that requests never wait.

overview.py         [core]  the numbers of one moment; the JSON of /api/overview
view_state.py       [core]  lag of a position, and what it means for a view
reports.py          [core]  a view's own progress and state records as one value
mirror_readers.py   [core]  mirrors as readers of their sources
collector.py        [shell] two threads: Kafka's ends, the views' progress
monitor.py          [shell] rounds that measure every consumer, in bulk and bounded
contact_watch.py    [shell] which of the hub's processes have lost Kafka
"""
