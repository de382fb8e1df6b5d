"""The schema registry: Confluent's REST API on the log ``_schemas``, in Confluent's own record format.

What it knows is the fold of one compacted topic of one partition; an existing one can be taken over as it is. Facts:
a schema registered under a subject and version, settings or a mode set, a subject deleted, a context named.

Flow of a write::

    request ─▶ node: parse and compare ─▶ fenced and caught up ─▶ registry.decide (pure) ─▶ append ─▶ apply ─▶ answer
    request ─▶ any number of nodes; a fenced node catches up and decides again; reads are from memory

Ids are decided from a state that is caught up by a writer that fenced all others, so two nodes never give one id to
two schemas; ids of deleted schemas are never given again.

[core]  facts.py   records to facts and back           registry.py  decide and apply     formats/known.py  the formats
        holdings.py  what there is, and apply           queries.py   what is asked of it
        decide_*.py  what is decided, on guards.py      commands.py, refusals.py, settings.py  the words for it
        compatibility.py  may this follow that          sources.py   a schema with all that it references
        subject_names.py  contexts and subjects         rules.py     metadata and rule sets, merged
        bodies.py  JSON of requests and answers         codec.py     the wire format      bounded.py  caches
        folder*.py schemas in git: plan, rules, apply   state.py     the registry as plain values      stored.py  events
        words.py   diff in words    search.py           infer.py, samples.py  a schema from samples     backup.py  the log as a file
        rulebook.py  what the rules say to the registry
        policy.py  rules on the tree of topics: which hold    policy_rules.py  the rules, and what "stricter" means
        policy_checks.py  where a schema breaks them          label_patterns.py, subjects.py  from a subject to its nodes
        describe/  a schema of any format as rules see it, and what changed without any level's word
        openapi.py what every route takes and answers, in OpenAPI     exact_json.py  long integers
[shell] node.py    reads the log, fences, appends
[edge]  routes.py  HTTP as Confluent has it             exchange.py  ASGI requests and answers
        client.py, remote.py  the same from Python      tables.py  SQL tables as a cache, of rows by table_rows.py [core]
"""
