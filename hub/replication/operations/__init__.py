"""Operations carried out on real clusters, step by step, each step idempotent.

``operator.py`` runs drill, switchover, failover, failback and promotion. ``group_carrier.py`` moves consumer
groups. ``never_mirrored.py`` records partitions of which nothing was mirrored. ``forget.py`` deletes what a
mirror wrote about its copies. ``left_at_source.py`` counts the records that a failover left at the old
source.
"""
