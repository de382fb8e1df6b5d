"""[core] Lag: offsets to ages, and a history of measurements to a state with its cause.

``anchors.py`` brackets when an offset arrived. ``timed.py`` brackets when a record was written. ``rates.py``
derives events per second. ``consumers.py`` measures groups, views, appliers and mirrors with one model.
``status.py`` derives their states.
"""
