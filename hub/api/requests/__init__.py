"""[edge] What the guard reads of a request: ``parsing.py`` its method, address, credentials and origin."""
