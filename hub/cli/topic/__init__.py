"""[edge] ``commands.py`` hub topic, ``conformance.py`` hub topic audit, ``dlq.py`` hub dlq."""
