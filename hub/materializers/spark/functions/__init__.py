"""Functions of views in Spark's Python workers, in a sandbox unless `transforms` is `trusted`.

daemon.py     [edge]  the process that Spark starts for workers; it lets workers of a view enter a sandbox
java_udf.py   [edge]  a function as Spark's JVM knows it, with its own environment
policy.py     [edge]  the setting `transforms` as a session carries it
"""
