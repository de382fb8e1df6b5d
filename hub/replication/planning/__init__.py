"""[core] Plans: what has to exist at the target before records can flow, and what forbids it.

::

    plan.py           a mirror's plan: topics and subjects together, in the order of their steps
    steps.py          the steps, as values
    topic_plan.py     one topic and its settings, compared three ways
    rule_refusals.py  rules that a topic cannot have
    schema_plan.py    the same comparison for subjects
    protection.py     who may not write the copies
    write_rights.py   permissions to write, which move with ownership
"""
