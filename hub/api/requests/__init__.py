"""[edge] Parts of a request for the guard: method, address, credentials and origin (``parsing.py``)."""
