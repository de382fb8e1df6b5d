"""Push queries: ``SELECT … FROM topic|view [WHERE …] EMIT CHANGES``, answered until the reader leaves.

A push query is stateless: it projects and filters the rows of one topic or view. Each page of new events, or
of changed rows, is a query of the ordinary kind (executor.py) over that page alone, so functions, grants and
limits are those of ``POST /query``. A reader takes rows at its own pace and nothing is kept for it: a slow
reader falls behind the log or skips intermediate rows of a view, as every subscriber does.

statement.py      [core]  EMIT CHANGES and SUBSCRIBE, and what a push query cannot contain
changes.py        [shell] events of a topic, or changed rows of a view, as rows
service.py        [shell] opens a push query: grants, limits, start
"""
