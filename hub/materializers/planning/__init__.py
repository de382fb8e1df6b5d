"""[core] Plans of SQL views: the engine that maintains a view, and its work.

``classify.py`` picks the cheapest engine that can: stateless, aggregate, session, join, or incremental. It
looks at the query (``query_shapes.py``, ``join_shapes.py``, ``select_parts.py``), its key (``row_keys.py``)
and the columns that the hub adds; ``classified.py`` has the result as values.
``real_time.py`` checks what Spark's real-time mode supports. ``exact_numbers.py`` rewrites sums and
arithmetic so that they give null instead of wrapping. ``validation.py`` checks a
view's file with all of these, before it runs.

The incremental engine: ``delta_planner.py`` derives which rows a change can touch and which input rows they
need,
``delta/`` reads SQL as relations and pushes
selections through them, ``delta_inputs.py`` describes sources as tables, and ``delta_plan.py``
is the resulting plan as values.
"""
