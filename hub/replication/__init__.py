"""Replication: topic trees mirrored between Kafka clusters, exactly once, offsets translated exactly both ways.

What it knows: ``mirrors.yaml`` (clusters, mirrors, who owns which labels), what the clusters have, and what it wrote
itself into the target: checkpoints and the map of offsets, in the same transaction as the records.

Facts: a topic has the same name everywhere. Each label pattern has one owner region; only there is it written by
applications. A mirror's records, its checkpoint and its map are one transaction: what is in the target is in the map.

Flow::

    mirrors.yaml ─▶ mirrors.py ─▶ graph.py: which mirror carries what ─▶ plan.py: topics, configs, ACLs, schemas first
    partitions   ─▶ shards.py: shards, leases ─▶ an engine a shard: fetch, patch, produce ─┬▶ target topic
                                                                                           ├▶ _hub.mirror.map
                                                                                           └▶ _hub.mirror.checkpoints
    groups       ─▶ groups.py: exact, pending, clamped ─▶ committed at the target (joint_map.py after a change of hands)
    failover     ─▶ failover.py: plan of steps, each safe to do twice ─▶ ownership epoch in both clusters

[core]  offset_map.py  translation     joint_map.py  both directions as one     checkpoint.py  records of progress
        mirrors.py  the file           graph.py  ownership, no circles          plan.py  three-way diff
        shards.py  who does what       groups.py  consumer groups               digest.py  are both sides the same?
        failover.py  drill, switchover, failover, failback, promote     loss_report.py  what that loses
        links.py  who carries now      board.py  what is said          progress.py  what is written, folded
        reencode.py  records anew      cut.py  what becomes visible together
        lag.py  seconds, rates         summary.py  a mirror's status   shape.py  left out, changed
        mask.py  fields replaced where they lie         rules.py  left out and changed by which rules
        schemas.py  subjects, ids, settings     write_rights.py  who may write, moved with ownership
        mirror_maker.py  MirrorMaker 2's notes          alignment.py  where somebody else's copy ends
        folding.py  the map kept short
[edge]  clusters.py  both clients      apply.py  the plan carried out  compare.py  what can be compared
        metrics.py  Prometheus' families          registry_side.py  a registry read, and changed
        wire.py  the protocol          registries.py  ids of schemas
[shell] worker.py  fleets and leases   shard_run.py  a shard's thread  chores.py  a link's topics and groups
        listener.py  what is said      batch_engine.py  one shard: fetch, patch, produce, commit
        verify.py  both sides read     operate.py  a change of hands, step by step
        carrying.py  groups, marked and committed     left_behind.py  records that only the old source has
        takeover.py  in MirrorMaker 2's copies          rolling.py  both sides compared, bit by bit
"""
