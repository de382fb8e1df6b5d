"""[core] The pages of the web app beside the overview: one module a page, pure functions that make its facts.

The facts are values; ``routes.py`` renders them as HTML and, at the same address below ``/api``, as JSON, so that both
say the same. ``estate.py`` names what the pages ask, by ports: memory first (the collector's, the monitor's, the
registry node's); Kafka is asked only for messages and for a topic's settings, each in a part of the page that comes later.
"""
