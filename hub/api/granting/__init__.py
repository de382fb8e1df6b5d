"""Requests for access in the server: ``open_requests.py`` opens them, ``page.py`` shows them to people."""
