"""Targets of sinks. Each has ``positions``, ``deliver`` and ``close``; see ``target.py``.

target.py            [core]  the port, and what a target may use
webhook.py           [edge]  signed HTTP requests, in lanes of keys
webhook_answers.py   [core]  what an answer means: delivered, again later, refused; pauses
addresses.py         [edge]  addresses that a request must not reach
topic.py             [shell] records for another topic
database.py          [edge]  rows of a table, and their position, in one transaction
column_values.py     [core]  values of rows for columns of a database
search.py            [edge]  documents of an index, by the _bulk API of Elasticsearch and OpenSearch
bulk.py              [core]  its requests, versions, and what the answer means for each document
files.py             [edge]  lines of files whose names have the offsets
"""
