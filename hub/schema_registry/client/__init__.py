"""[edge] Any registry with Confluent's API, from Python: ``http.py`` one request, ``registry_client.py`` what the hub's own parts
ask, ``remote.py`` all of a registry at once. ``backup.py`` saves and restores ``_schemas``. ``stored_events_check.py`` tries a new
schema on stored events.
"""
