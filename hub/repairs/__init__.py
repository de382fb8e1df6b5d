"""Event repair: bad events of a topic are corrected in a new generation of the topic.

A generation is the whole content of a topic. ``_hub.generation.TOPIC.N`` has generation N, record by record,
with keys, headers and timestamps; a header names the position that a record had in the topic. A repair copies
the events that the current generation's archive lacks, and writes the repaired ones into the next
generation. Then the topic is made again under its own name and filled from that generation::

    copy     archive and next generation, in one transaction with the position; producers continue
    hold     the topic refuses new events; the rest is copied, positions of groups are noted
    switch   the topic is deleted and made again
    fill     the next generation's records, in transactions with their positions
    finish   settings and positions of groups

The state is in the compacted topic ``_hub.generations``. One transactional writer writes it and all records,
so a killed repair continues where it was, and nothing is twice. An event that another producer appended
between ``switch`` and the end of ``fill`` is found by its offset. It is copied to the end of both
generations, and the topic is made again.

model.py       [core]  state of a topic's generations, and its JSON
outcomes.py    [core]  repaired events: decoded, changed, encoded, checked against schema and key
changes.py     [core]  changes of events: a function of a script
sql_changes.py [shell] changes of events: SQL of the hub over one record
selection.py   [core]  the range of a repair, from offsets or times
plan.py        [shell] read a range, count the results, sample them; write nothing
journal.py     [shell] the state in Kafka, and the writer
copying.py     [shell] records into the generations
holding.py     [shell] a topic that refuses new events
filling.py     [shell] the topic from its next generation
groups.py      [shell] positions of consumer groups, noted and moved
switching.py   [shell] the steps of a repair, each of which can be repeated
"""
