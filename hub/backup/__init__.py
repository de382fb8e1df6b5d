"""Backup and restore: topics, schemas and consumer groups of a cluster, in files or in S3.

A backup is a folder of objects. A run reads what is new since the run before and writes its manifest last, so
a killed run leaves the backup as it was, and the next run continues from the last ``progress``::

    hub-backup.json                              format, id, cluster, encryption; the only object in clear text
    manifests/000007                             the whole state after run 7: every segment of every topic
    progress                                     the same, of a run that has not ended
    segments/000007/<topic>/<partition>/<first>-<run>  Kafka's own record batches, byte for byte, in zstd

Facts: only committed records are saved. A batch keeps its offsets, so compaction's holes stay known. Restore
is the mirrors' engine (hub/replication/engine) with a backup in the place of the source cluster: records,
offset map and position are one transaction of the target. So a killed restore continues where it was, exactly
once, and the positions of groups are translated by the map.

    saved_registry.py      [edge] schemas read, planned and imported with their ids

    storage/   manifest.py       [core] what a backup has, and its JSON
               sealing.py        [core] zstd, AES-256-GCM and SHA-256 of one object
               object_store.py   [edge] files and S3: put, get, list, delete
               vault.py          [shell] one backup: its head, manifests and segments
               prune.py          [shell] old runs, and segments that no run has, deleted
               last_run.py       [edge] notes of last runs in the home folder, and their age as series
    saving/    run_plan.py       [core] what a run reads: the rest, everything again, a gap
               range_reader.py   [shell] committed batches of many partitions, up to given ends
               segment_writer.py [shell] batches into segments, stored while the next ones are read
               take.py           [shell] one run
    restoring/ access_plan.py    [core] which saved access rules (ACLs) the target gets
               point_in_time.py  [core] which segments belong to a time, and where the last one is cut
               restore_plan.py   [core] what restore creates, and what forbids it
               saved_log.py      [shell] a backup as the source of the mirrors' engine
               restore.py        [shell] one restore
               verify.py         [shell] digests, and a trial restore compared record by record
"""  # noqa: E501
