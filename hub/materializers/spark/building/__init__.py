"""[edge] The function of a PySpark view, run by Spark's analyzer and carried to SQL.

``builder.py`` starts a process for a view whose files changed, and keeps its answer. ``build_process.py`` is
that process: it gives the function empty data frames of the sources and reads the analyzed plan of the one
that it returns. ``carried_view.py`` calls the function, ``local_modules.py`` runs the view's files from their
text, ``refused_calls.py`` refuses calls that would run a job, and ``analyzed_plan.py`` with
``expressions.py`` reads the plan as values.
"""
