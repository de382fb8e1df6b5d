"""DEK registry: keys of field encryption, with Confluent's API ``/dek-registry/v1`` on the topic
``_dek_registry_keys``.

A key encryption key (KEK) names a key of a key management service (KMS), which never leaves it. A data
encryption key (DEK) encrypts fields of a subject; the registry stores it wrapped, that is, encrypted by the
KMS. Clients wrap and unwrap. Of a *shared* KEK the hub does both, with its own access to the KMS.

Flow of a write: open the writer, which fences every other node; read the log to its end; decide (pure);
append; read back. A read also begins with a look at the log's end, so all nodes answer alike. Clients keep
keys in memory, so requests are few.

    records.py  [core] keys as records of the topic, in Confluent's JSON
    state.py    [core] the state machine: queries, decisions, ``apply``
    node.py     [shell] reads and writes the log
    bodies.py   [core] bodies of requests and answers
    handlers.py [shell] one function per route
    routes.py   [edge] the REST API: paths, access, errors
"""
