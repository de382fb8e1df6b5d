"""[edge] The HTTP server: all packages' routes in one app, errors as status codes, resources opened and
closed once.

``app.py`` composes; each package has its own ``routes.py``. Paths do not overlap: the schema registry has
Confluent's (``/subjects``, ``/schemas``, ``/config``, ``/mode``), topics ``/topics``, views ``/views``, the
dashboard ``/`` and ``/ui``.
"""

from hub.api.app import create_app

__all__ = ["create_app"]
