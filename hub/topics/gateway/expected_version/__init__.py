"""Append an event only if the key's newest event is the one that the writer names: ``Expected-Version``.

version.py   [core]  the version of a key as text, and its comparison with the one that is expected
index.py     [core]  newest event of each key of a topic, from its committed records
versions.py  [shell] indexes of topics, each caught up with its log before it answers
appender.py  [shell] append in a transaction that is withdrawn if another event of the key precedes

Why it is exact: an append takes its place in the log, then everything before this place is known. The index
has the committed records up to a position; the records from there to the place are read, committed or not. If
none of them has the key, the transaction is committed: no later event can change what precedes. Else it is
withdrawn, and tried again once the other one is decided. See docs/adr/0069-expected-versions.md.
"""
