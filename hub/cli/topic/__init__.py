"""[edge] ``commands.py`` hub topic, ``conformance.py`` hub topic conformance, ``dlq.py`` hub dlq,
``outbox.py`` hub outbox."""
