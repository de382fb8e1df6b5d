"""[core] One materializer computes the views of a home; others with the same home stand by with a warm Spark.

::

    lease.py          whose turn it is: a fold of records, and what a process does next
    lease_thread.py   reads and writes these records, in a thread of the process
    starting.py       Kafka that comes and goes, and Spark that is opened while a process waits
    place.py          the process behind a record, as far as others on this machine can see it
"""
