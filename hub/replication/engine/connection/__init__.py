"""Connections of an engine to the two clusters.

``port.py`` [core] is the port. ``kafka_connection.py`` [edge] implements it over the hub's protocol client;
``memory_connection.py`` [core] over the brokers in memory of ``memory_brokers.py`` [core], which keep a
broker's rules about transactions, epochs and topic ids, so that simulations run the real engine.
"""
