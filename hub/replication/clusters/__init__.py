"""Both clusters of a mirror as they are, and the plan carried out.

clusters.py                 [edge]  clients of both sides; what the planner compares
readers.py                  [edge]  readers of the topics of mirrors
control_state.py            [core]  the control topic, folded: workers, links, pauses
status_records.py           [core]  records of the status topic
control_follower.py         [shell] the control topic, followed
written_state.py            [core]  what mirrors wrote into a cluster, folded: positions, gaps, maps
offset_map_compaction.py    [core]  compaction of the offset map, which stays exact
registries.py registry_side.py     [edge]  schema registries of both sides
schemas_first.py            [edge]  schemas arrive before the events that name them
link_plan.py                [edge]  the plan of one link, from both sides as they are
carry_out.py                [edge]  steps of a plan, each idempotent
"""
