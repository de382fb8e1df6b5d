"""[edge] Content of a checkpoint of Spark: ``committed_batches.py`` reads its logs of offsets and commits."""
