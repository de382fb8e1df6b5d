"""Requests as entries of the access log.

- ``route_actions.py`` maps each route to its action and object.
- ``request_log.py`` makes the entries of a request, for the guard.
- ``statement_log.py`` does so for connections of Postgres' protocol.
- ``open_log.py`` opens the log of a server, and ``log_routes.py`` searches it.
"""
