"""Configuration of alerts: ``alerts_yaml.py`` defines ``alerts.yaml`` (routes, channels, silences) and ``alerts/*.yaml`` (queries);
``read_entries.py`` keeps an error to its own entry; ``live_config.py`` reloads the files when they change.
"""
