"""The topic tree: the declared topics, and applying them to the cluster.

tree.py          [core]  topics.yaml: labels, inheritance, patterns
key_fields.py    [core]  key field of an event
plan.py          [core]  compare the tree with the cluster: steps.py, schema_steps.py and refusals
saved_plan.py    [core]  plans as JSON files, applied later exactly as shown
confirmed_plans.py [core] refuse a plan of another situation than the one that was confirmed
drift.py         [core]  differences between tree and cluster, and which one is right
import_tree.py   [core]  generate the shortest tree for a cluster's topics
live_rules.py    [shell] the project's policies, reloaded when they change
apply_plan.py    [shell] read the inputs of a plan, and apply it
apply_lock.py    [shell] lock that allows one apply at a time per cluster
"""
