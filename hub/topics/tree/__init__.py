"""The tree of topics, and how the cluster comes to match it.

tree.py          [core]  topics.yaml: labels, inheritance, patterns
key_fields.py    [core]  which field of an event is its key
plan.py          [core]  desired and actual state to steps and refusals
saved_plan.py    [core]  plans as JSON files, applied later exactly as shown
drift.py         [core]  what differs, and who is right
import_tree.py   [core]  a cluster's topics as the shortest tree
live_rules.py    [shell] the project's policies, reloaded when they change
apply_plan.py    [shell] reads what a plan needs, and carries it out
apply_lock.py    [shell] one apply at a time on a cluster
"""
