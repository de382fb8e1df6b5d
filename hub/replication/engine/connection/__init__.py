"""Connections of an engine to the two clusters.

``port.py`` [core] is the port. ``kafka_connection.py`` [edge] implements it over the hub's protocol client.
The tests have another one in memory, with a broker's rules about transactions, epochs and topic ids, so that
simulations run the real engine.
"""
