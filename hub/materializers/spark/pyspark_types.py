"""[edge] Types of pyspark for modules that hold a session or a query and leave the work to this package."""

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["PySparkException", "SparkSession", "StreamingQuery"]
