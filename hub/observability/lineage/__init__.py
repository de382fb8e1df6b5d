"""[core] Lineage: ``lineage.py`` builds the graph of topics, views, stores and readers, with the lag on each edge."""
