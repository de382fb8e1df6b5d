"""[core] Schemas inferred from samples of a topic: ``place_samples.py`` counts values at each place,
``shapes.py`` writes the schema.
"""
