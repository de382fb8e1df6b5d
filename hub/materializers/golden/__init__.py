"""Golden tests of views: timed events are given, and the view must produce exactly the expected rows.

``cases.py`` [core] reads the cases. ``values.py`` [core] encodes events in their source's format.
``runner.py`` [edge] runs a case through the view's own plan in Spark, without Kafka; ``frames.py`` [edge] has
its events as frames, and the outcome.
"""
