"""Records that only one side has after a failover, and what a failback does with them.

::

    left_at_source.py   count and show the records that only the old source has
    diverged.py         the diverged partitions with their counts
    merging.py          ``--merge``: which records of a compacted topic are superseded
    restoring.py        ``--restore``: export, make the topic again, fill it from the other side
    settling.py         the steps of a failback that settle the records, for every kind of decision
    tail_export.py      files of the records, and the signed report

ownership/divergence.py has the decisions.
"""
