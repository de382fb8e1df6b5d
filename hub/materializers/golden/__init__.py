"""Golden tests of views: events with times go in, exactly the expected rows must come out.

``cases.py`` [core] reads the cases. ``values.py`` [core] encodes events in their source's format. ``runner.py`` [edge] runs
a case through the view's own plan in Spark, without Kafka.
"""
