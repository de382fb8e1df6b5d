"""[core] The alert model: pure values and functions; time is an argument.

- ``rules.py`` defines the alert rules and observations.
- ``matching.py`` matches labels of routes and silences.
- ``alert_state.py`` has the values, ``grouping.py`` decides which groups are notified.
- ``state_machine.py`` turns rules, observations and the previous state into the new state and notifications.
- ``records.py`` serializes the state as records of ``_hub.alerts`` and folds them back.
- ``listing.py`` sorts the alerts of a state for display.
"""
