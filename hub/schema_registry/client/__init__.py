"""[edge] Python client of any registry with Confluent's API. ``http.py`` sends one request,
``registry_client.py`` has the calls that the hub's own parts make, ``remote.py`` reads a whole registry.
``backup.py`` saves and restores ``_schemas``. ``stored_events_check.py`` tries a new schema on stored events.
"""
