"""Positions of consumer groups, shown and reset.

A reset is planned first: the position of each partition before and after, records skipped and read again. The
command line, HTTP and the page carry out the same plan. Its digest lets a plan be refused that was made of
another situation. Kafka itself refuses positions of a group that has members, so a member that joins between
the plan and the reset is never overwritten.

- ``reset_plan.py`` [core] request, target, plan, digest, the equal command.
- ``reset.py`` [shell] read the positions, plan, commit.
"""
