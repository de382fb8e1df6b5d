"""[core] Lineage: topics, the views made of them, their stores and their readers.

::

    topic@nyc ─▶ mirror ─▶ topic ─▶ view ─▶ changelog ─▶ store
                             └────▶ group      └────────▶ view, group

``graph.py`` holds the graph and answers why a node is late. ``live_graph.py`` builds it from what runs.
``drawing.py`` lays it out. ``open_lineage.py`` exports it.
"""
