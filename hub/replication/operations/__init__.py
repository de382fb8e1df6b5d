"""Operations carried out on real clusters, step by step, each step idempotent.

``operator.py`` runs switchover, failover, failback and promotion over the clusters of
``mirrored_clusters.py``:
``effects.py`` computes what is lost and delivered again (a drill is only that), ``write_access.py`` which
access rules change, and ``catch_up.py`` waits for workers, fences them, or discards a tail.

``change_plan.py`` returns the plan and the result of a change of ownership; ``pausing.py`` pauses, resumes
and drops. The command line and the server (hub/api/mirroring) call both.

``divergence/`` settles the records that only the old source has: counts, files with a signed report, and what
a failback does with them.

``by_topic.py`` finds the topics that a command means, and their states. ``group_carrier.py`` moves consumer
groups. ``never_mirrored.py`` records partitions of which nothing was mirrored.
``forget.py`` deletes what a mirror wrote about its copies.
"""
