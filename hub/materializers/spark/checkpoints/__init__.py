"""[edge] What a checkpoint of Spark says: ``committed_batches.py`` reads its logs of offsets and commits."""
