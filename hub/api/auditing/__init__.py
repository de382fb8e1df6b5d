"""Requests as entries of the access log.

- ``route_actions.py`` maps each route to its action and object.
- ``request_log.py`` makes the entries of a request, for the guard.
- ``open_log.py`` opens the log of a server, and ``log_routes.py`` searches it.
"""
