"""Rehearsals of a failover: planned on the real clusters, recorded with their result, and changing nothing.

::

    decision.py    [core]  what a worker does now: begin one, record that one was interrupted, delete old ones
    attempt.py     [shell] one rehearsal: reads both clusters and returns its result

The schedule is in config/rehearsal_schedule.py, the records are in clusters/rehearsals.py, and what people
see of them is in status/rehearsal_status.py. The worker that holds a link's tasks begins those that are due
(worker/link_rehearsals.py); ``hub mirror rehearse --now`` and the page run one at once.
"""
