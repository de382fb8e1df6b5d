"""[core] Rules for the SQL of views, checked before Spark sees it.

``spark_functions.py`` lists the functions of the locked Spark version. ``checks.py`` refuses what Spark's analyzer would
refuse. ``determinism.py`` refuses what yields another value when it is repeated. ``nesting.py`` bounds how deep SQL nests.
"""
