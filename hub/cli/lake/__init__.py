"""[edge] ``hub lake``: Iceberg tables of topics; ``commands.py`` ls, run, verify, maintain."""
