"""Amounts of money, for all views."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def euros(cents: Column) -> Column:
    return F.coalesce(cents, F.lit(0)) / F.lit(100)
