"""The schema registry: Confluent's REST API for Avro on the log ``_schemas``, in Confluent's own record format.

What it knows is the fold of one compacted topic of one partition; an existing one can be taken over as it is. Facts:
a schema registered under a subject and version, a level set, a subject deleted.

Flow of a write::

    request ─▶ node: fence, catch up to the end ─▶ registry.decide (pure) ─▶ append ─▶ read back = apply ─▶ answer
    request ─▶ any number of nodes; a fenced node catches up and decides again; reads are from memory

Ids are decided from a state that is caught up by a writer that fenced all others, so two nodes never give one id to
two schemas; ids of deleted schemas are never given again.

[core]  facts.py  records to facts and back     registry.py  decide and apply     formats/avro.py  parse, canonical form
        compatibility.py  may this follow that, and why not                       codec.py  the wire format
        policy.py  rules on the tree of topics: which hold    policy_rules.py  the rules, and what "stricter" means
        policy_checks.py  where a schema breaks them          label_patterns.py, subjects.py  from a subject to its nodes
        describe/  a schema of any format as rules see it, and what changed without any level's word
[shell] node.py   reads the log, fences, appends
[edge]  routes.py HTTP as Confluent has it      client.py  the same from Python
"""
