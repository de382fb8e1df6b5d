"""[core] Ownership: who may write a region's topics, and how that moves.

failover.py           failover, switchover, failback and promotion as decisions
operation_steps.py    their steps, each idempotent
topic_state.py        the state of one topic, and the commands that it accepts
links.py              which link carries which topic now
link_definitions.py   which definition of a link is in force
group_offsets.py      where a consumer group continues at the target
loss_report.py        what an operation loses and delivers again
shards.py             partitions to shards, shards to workers, without a leader
"""
