"""The schema registry: Confluent's REST API on the log ``_schemas``, in Confluent's own record format.

Its state is the fold of one compacted topic of one partition; an existing topic can be taken over as it is. Facts: a schema
registered under a subject and version, settings or a mode set, a subject deleted, a context named.

Flow of a write::

    request ─▶ node: parse and compare ─▶ fenced and caught up ─▶ decide (pure) ─▶ append ─▶ apply ─▶ answer
    request ─▶ any number of nodes; a fenced node catches up and decides again; reads are from memory

Ids are decided from a state that is caught up by a writer that fenced all others. So two nodes never give one id to two
schemas, and ids of deleted schemas are never given again.

    model/        [core] subjects, records of ``_schemas``, metadata and rule sets
    formats/      [core] Avro, JSON Schema, Protobuf: parse, canonical text, differences
    compat/       [core] may this schema follow those?
    describe/     [core] a schema of any format as one model, and what changed in it
    policy/       [core] rules on the tree of topics: which hold, where a schema breaks them
    registry/     [core] the state machine: decide and apply
    codecs/       [core] values to bytes and back, in every format
    contracts/    data rules, run in child processes
    folder/       schemas in git: plan, apply, diff, search, infer
    server/       [shell] the node; SQL tables as a cache
    http/         [edge] the REST API
    client/       [edge] any registry with Confluent's API, from Python; backup
"""
