"""[core] Lag: from offsets to ages, and from a history of measurements to a state with its cause.

``anchors.py`` brackets when an offset arrived. ``timed.py`` brackets when a record was written. ``rates.py`` derives events
per second. ``consumers.py`` measures groups, views and appliers by one model. ``status.py`` judges their state.
"""
