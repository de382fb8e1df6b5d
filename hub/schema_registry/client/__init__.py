"""[edge] Registries as the hub's own parts use them. ``port.py`` [core] has the operations, ``in_process.py``
[shell] performs them on the server's own node, ``registry_client.py`` over HTTP. ``remote.py`` reads any
registry with Confluent's API as a whole; ``http.py`` sends one request. ``backup.py`` saves and restores
``_schemas``. ``stored_events_check.py`` tries a new schema on stored events.
"""
