"""[core] The pages of the web app: one module a page; pure functions make its facts.

The facts are values; ``routes.py`` renders them as HTML and, at the same address below ``/api``, as JSON. ``estate.py`` names
what the pages ask, by ports: memory first (the collector's, the monitor's, the registry node's); Kafka is asked only for
messages and for a topic's settings, each in a part of the page that loads later. ``index.py`` indexes words for the search.

    explore/   what there is: topics, messages, schemas, rows, search
    monitor/   how it is: lag, latency, lineage, completeness, alerts, cluster, mirrors, views
"""
