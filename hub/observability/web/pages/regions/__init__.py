"""Map of regions: clusters as nodes, mirrors as arrows.

facts.py    [core]  state, rate, lag and loss of each mirror, and what is heard of each cluster
drawing.py  [core]  positions of both, for an SVG that the server writes
"""
