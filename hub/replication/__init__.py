"""Replication: topic trees mirrored between Kafka clusters, exactly once, with offsets translated exactly in
both directions.

The package knows ``mirrors.yaml`` (clusters, mirrors, and the labels each cluster owns), the content of the
clusters, and what it wrote itself into the target: checkpoints and the offset map, in the same transaction as
the records.

Facts: a topic has the same name in every cluster. Each label pattern has one owner region; only there do
applications write its topics. A mirror's records, its checkpoint and its map are one transaction: every
mirrored record in the target is in the map.

Flow::

    mirrors.yaml ─▶ config/ ─▶ planning/: topics, settings, ACLs, schemas first ─▶ clusters/: carried out
    partitions   ─▶ ownership/shards.py ─▶ engine/: fetch, rewrite, produce ─┬▶ target topic
                                                                             ├▶ _hub.mirror.map
                                                                             └▶ _hub.mirror.checkpoints
    groups       ─▶ ownership/group_offsets.py: exact, pending, clamped ─▶ committed at the target
    failover     ─▶ ownership/failover.py: steps, each idempotent ─▶ ownership epoch in both clusters

    config/         [core] mirrors.yaml, and which mirror carries which topic
    maps/           [core] offset maps, checkpoints
    ownership/      [core] who may write; failover as steps; groups; shards
    rewriting/      [core] record filter, field masking, records encoded again
    planning/       [core] what has to exist at the target before records flow
    clusters/       clients of both sides; control state and written state; the plan carried out
    engine/         one shard: fetch, rewrite, write in a transaction, resume
    status/         the status of a mirror; metrics; observations for alerts
    verification/   compares both sides: once, and continuously
    operations/     drill, switchover, failover, failback and promotion carried out
    rehearsal/      failovers rehearsed on schedule, with recorded results
    migration/      import from MirrorMaker 2
    worker/         ``hub mirror run``
"""
