"""``hub mirror run``: ``worker.py`` is one of any number of workers, without a leader.

::

    worker.py          [shell] one process: reads the file again, starts its fleets
    fleet.py           [shell] its part in all links to one cluster: heartbeats, threads
    leases.py          [core]  which shards it should hold
    status_reports.py  [shell] watchdog of its shards, and their status records
    link_tasks.py      [shell] a link's background work: topics, groups, verification, map
    link_rehearsals.py [shell] rehearsals of a link that are due
    link_schemas.py    [shell] schemas of a link, before the events that name them
"""
