"""[core] Lag: offsets to ages, and a history of measurements to a state with its cause.

``anchors.py`` brackets when an offset arrived. ``timed.py`` brackets when a record was written. ``rates.py``
derives events per second. ``consumers.py`` measures groups, views, appliers and mirrors with one model.
``held_back.py`` finds records behind open transactions. ``states.py`` names the states, ``judge.py`` derives
them with the statistics of a trend, ``watching.py`` decides when a change is shown. docs/reference/lag.md has
the rules.
"""
