"""Full-text search over views: words of rows, the language of queries, and highlights.

What this package knows: a view's file names text fields (``indexes: [{text: [title, body]}]``), and a
query is a line of words, "phrases", -exclusions, prefix* and OR. The stores keep the words and find them
(``stores/sql/text_tables.py``, ``text_search.py``); this package decides what a word is.

Facts. SQLite and Postgres split and stem texts differently, so neither does it here: both get the words that
``words.py`` makes, at write and at query time. So a query finds the same rows in both stores, and no text
of a user reaches the query language of a database. ``score`` is comparable within one answer only, because
each store ranks in its own way.

    words.py       [core]  the words of a text: case, accents, word breaks, stems; their places in the text
    declared_indexes.py [core] indexes in a view's file: fields, and the fields of a text search
    text_index.py  [core]  a text index of a view: its fields, its language, the words of a row
    text_query.py  [core]  a query: parsed once into alternatives of terms
    compiled.py    [core]  a query for FTS5 and as a tsquery
    highlights.py  [core]  the parts of a text that a query found, in short fragments
    times.py       [edge]  searches by view, and their durations, for /metrics
"""
