"""[core] What samples of a topic show: ``place_samples.py`` counts values at each place, ``shapes.py``
writes the schema.
"""
