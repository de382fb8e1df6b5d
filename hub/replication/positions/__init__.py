"""Positions that Kafka does not know: translated from one side of a mirror to the other.

Consumer groups are carried by the mirror itself (ownership/group_offsets.py). A position may also be in a
checkpoint of Spark, in a topic of Kafka Connect, in a table or in a file. All of them are translated by the
mirror's offset map, and none is guessed.

translation.py       [core]  one position: exact, the next record, bounded, or unknown
lines.py             [core]  positions in lines of text: tokens, JSON, the formats of Flink
spark_logs.py        [core]  the logs of a Spark checkpoint, translated
connect_offsets.py   [core]  records of Kafka Connect's offsets topic, translated
position_table.py    [core]  rows of a table, translated; the digest of a plan
mirror_maps.py       [shell] the complete maps of one mirror, read from its clusters
spark_checkpoint.py  [edge]  a checkpoint folder, read and written again elsewhere
connect_topic.py     [edge]  the offsets topic, read at one cluster and written at the other
sql_table.py         [edge]  a table of a database, read and updated in one transaction
"""
