"""[edge] ``commands.py`` hub topic, ``conformance.py`` hub topic conformance, ``dlq.py`` hub dlq."""
