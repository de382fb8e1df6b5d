"""Configuration of alerts.

- ``alerts_yaml.py`` defines ``alerts.yaml`` (routes, channels, rules) and ``alerts/*.yaml`` (queries).
- ``read_entries.py`` limits an error to its own entry.
- ``live_config.py`` reloads the files when they change.
"""
