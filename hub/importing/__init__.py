"""Import of other streaming systems' SQL: statements of ksqlDB and Flink become files of a project.

Each statement is read on its own, in order. A declaration of a stream or a table becomes an entry in a
catalog, a topic and a schema; a query becomes a view. Each view is checked by the hub's own loader before
its statement counts as taken. A statement that cannot be translated is reported with its line, the reason and
what to write instead, and the others go on. Nothing is written here: the result is a set of files and a
report.

    statements.py     [core] a text as statements and tokens
    column_types.py   [core] types of columns, as Spark, Avro, JSON Schema and Protobuf have them
    relations.py      [core] streams and tables that a statement may read
    functions.py      [core] how a function is written in Spark
    expressions.py    [core] expressions, parsed by sqlglot and rewritten for Spark
    report.py         [core] the outcome of each statement
    project_files.py  [core] the files that are made, merged with those of the project
    checking.py       [shell] a copy of the project in which every made file is checked
    made_files.py     [shell] the files of views and topics, checked
    ksql/             the statements of ksqlDB       flink/   those of Flink SQL
"""
