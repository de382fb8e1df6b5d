"""State of the hub at one moment, refreshed by threads so that requests never wait.

overview.py         [core]  the values of one moment; the JSON of /api/overview
reports.py          [core]  progress and state records of a view as one value
mirror_readers.py   [core]  mirrors as readers of their sources
collector.py        [shell] two threads: Kafka's end offsets, the views' progress
monitor.py          [shell] rounds that measure every consumer, in bounded bulk requests
consumer_list.py    [shell] the consumers that exist
partition_facts.py  [shell] lookups that narrow the age of what waits
contact_watch.py    [shell] the hub's processes that have lost Kafka
"""
