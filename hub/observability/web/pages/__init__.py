"""[core] Pages of the web app, one module a page; pure functions compute their facts.

The facts are values; ``hub.observability.web.routes`` renders them as HTML and, at the same address below
``/api``, as JSON.
``estate.py`` declares the ports that the pages read. Most are served from memory (the collector, the monitor,
the registry node); Kafka is queried only for messages and for a topic's settings, each in a part of the page
that loads later. ``index.py`` indexes words for the search.

    explore/   topics, messages, schemas, rows, search
    monitor/   lag, latency, lineage, completeness, alerts, cluster, mirrors, views
"""
