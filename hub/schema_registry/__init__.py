"""Schema registry: Confluent's REST API on the topic ``_schemas``, in Confluent's own record format.

The state is folded from one compacted topic with one partition; an existing topic is taken over
unchanged. Facts: a schema registered under a subject and version, settings or a mode set, a subject
deleted, a context named.

Flow of a write::

    request ─▶ node: parse and compare ─▶ fenced and caught up ─▶ decide (pure) ─▶ append ─▶ apply ─▶ answer
    request ─▶ any number of nodes; a fenced node catches up and decides again; reads are from memory

A writer assigns ids only after it has fenced all other writers and caught up. Two nodes therefore never
give one id to two schemas, and ids of deleted schemas are never reused.

    model/        [core] subjects, records of ``_schemas``, metadata and rule sets
    formats/      [core] Avro, JSON Schema, Protobuf: parse, canonical text, differences
    compat/       [core] compatibility of a schema with earlier versions
    describe/     [core] a schema of any format as one model, and the changes between two of them
    policy/       [core] rules on the topic tree: effective rules and violations
    registry/     [core] the state machine: decide and apply
    codecs/       [core] values to bytes and back, in every format
    contracts/    data rules, run in child processes
    folder/       schemas in git: plan, apply, diff, search, infer
    server/       [shell] the node; SQL tables as a cache
    http/         [edge] the REST API
    client/       [edge] Python client of any registry with Confluent's API; backup
"""
