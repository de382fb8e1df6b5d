"""[edge] Confluent's REST API.

``routes.py`` has paths, status codes and error codes, ``path_table.py`` [core] how a path is found;
``subject_routes.py``, ``schema_routes.py`` and ``settings_routes.py`` the handlers; ``answers.py`` what they
share; ``calls.py`` [core] what a request names; ``asgi.py`` requests and answers; ``bodies.py`` [core] their
JSON; ``levels_routes.py`` all levels in one answer; ``access_rules.py`` [core] the action that each path
requires; ``openapi.py`` the OpenAPI description, which is in ``openapi.yaml``.
"""
