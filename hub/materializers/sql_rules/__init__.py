"""[core] Rules for the SQL of views, checked before Spark parses it.

``spark_functions.py`` lists the functions of the locked Spark version. ``checks.py`` refuses what Spark's
analyzer would refuse. ``determinism.py`` refuses expressions that give another value when they are repeated.
``nesting.py`` limits how deep SQL nests. ``unsupported.py`` names constructs of other dialects and what to
write instead.
"""
