"""Erasure of a person: request, second person, delay, then every place that holds the person's fields.

Fields of a person are encrypted with a key of that person in each erasable topic (hub.schema_registry.
encryption). An erasure destroys these keys, and follows what has clear text or the key itself until it is
gone. ``_hub.erasures`` is a compacted topic with one record per erasure: its state, and that of each place.

::

    request ──▶ requested ── approve ──▶ approved ── delay ──▶ running ──▶ done
                    └────────── cancel ──────┴──▶ canceled

    destroy keys ──▶ compaction of _dek_registry_keys
         └─ keys leave the memory of processes ──▶ views with decrypt are computed again
                 ──▶ former versions are removed ──▶ files of stores are rewritten

Each step is idempotent and its result is in the log before the next begins, so a server that was killed
continues where it was. What a place cannot promise has the state "not erased" with the reason.

    model.py    [core]  an erasure, its places, and what commands do to it
    places.py   [core]  find the places that hold a person, from facts of the project
    facts.py    [edge]  these facts: topics.yaml, views, sinks, mirrors, backups
    proof.py    [core]  the signed report
    log.py      [shell] read and write ``_hub.erasures``; erasures as JSON
    keys.py     [shell] destroy keys, and follow the compaction of their log
    views.py    [shell] compute views again, and follow their versions and stores
    runner.py   [shell] carries out what is due
    routes.py   [edge]  HTTP
"""
